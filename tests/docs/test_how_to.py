"""The how-to pages, each read by somebody who does what it says. Those with a framework are read in tests/adapters."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Client, Listener
from pathlib import Path

import pytest

from backtrail.testing.servers import PostgresServer, RedisCluster, RedisServer
from fix_reader import Reader

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
WITH_SERVERS = {"production-on-postgresql", "redis-and-cluster", "two-regions"}
WITH_FRAMEWORKS = {"leave-langgraph-savers", "leave-framework-stores"}
PAGES = sorted(HOW_TO.glob("*.md"))
ALONE = [page for page in PAGES if page.stem not in WITH_SERVERS | WITH_FRAMEWORKS]
HERE = Path(__file__).parent


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    reader = Reader(tmp_path)
    reader.install("claude", HERE / "claude_stand_in.py")
    return reader


@pytest.mark.slow
@pytest.mark.parametrize("page", ALONE, ids=lambda page: page.stem)
def test_a_how_to_does_what_it_says(page: Path, reader: Reader) -> None:
    reader.read(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_how_to_has_a_goal_a_check_what_can_go_wrong_and_links(page: Path) -> None:
    text = page.read_text()
    assert re.search(r"^\*\*Goal:\*\* ", text, re.MULTILINE)
    titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert titles[-3:] == ["Check that it worked", "What can go wrong", "See also"]


@pytest.mark.slow
def test_a_store_on_postgresql_is_backed_up_restored_and_watched(
    reader: Reader, own_postgres: Callable[..., PostgresServer]
) -> None:
    server = own_postgres()
    admin = "postgresql://postgres@localhost:5432/postgres"
    page = HOW_TO / "production-on-postgresql.md"
    reader.read(page, {admin: server.url, "localhost:5432": f"127.0.0.1:{server.port}"})
    reported = (reader.directory / "metrics.txt").read_text()
    for metric in re.findall(r"\bbacktrail_\w+", (reader.directory / "alerts.yml").read_text()):
        assert f"\n{metric} " in reported, metric


@pytest.mark.slow
def test_a_store_in_redis_and_in_a_cluster(
    reader: Reader, own_redis: Callable[..., RedisServer], redis_cluster: RedisCluster
) -> None:
    real = {
        "redis://localhost:6379/0": own_redis().url,
        "redis+cluster://localhost:7000": redis_cluster.url,
    }
    reader.read(HOW_TO / "redis-and-cluster.md", real)


@pytest.fixture
def ssh(reader: Reader, tmp_path: Path) -> Iterator[dict[str, PostgresServer]]:
    """`ssh HOST sudo systemctl stop postgresql` stops the server that is known under that name; so does `start`."""
    servers: dict[str, PostgresServer] = {}
    script = tmp_path / "ssh.py"
    with Listener(str(tmp_path / "ssh.sock")) as listener:
        script.write_text(
            "import sys\nfrom multiprocessing.connection import Client\n"
            f"with Client({str(listener.address)!r}) as client:\n    client.send(sys.argv[1:])\n    client.recv()\n"
        )
        reader.install("ssh", script)

        def obey() -> None:
            while True:
                with listener.accept() as asked:
                    words = asked.recv()
                    if not words:
                        return
                    host, action = words[0], words[3]
                    servers[host].stop() if action == "stop" else servers[host].start()
                    asked.send("done")

        obeying = threading.Thread(target=obey)
        obeying.start()
        yield servers
        with Client(str(listener.address)) as client:
            client.send([])
        obeying.join()


@pytest.mark.slow
def test_a_region_goes_away_and_nothing_is_missing_afterwards(
    reader: Reader, ssh: dict[str, PostgresServer], own_postgres: Callable[..., PostgresServer]
) -> None:
    real = {}
    for host in ("db.frankfurt.example", "db.dublin.example"):
        ssh[host] = own_postgres()
        real[f"postgresql://me:secret@{host}:5432/agents"] = ssh[host].url
    reader.read(HOW_TO / "two-regions.md", real)
