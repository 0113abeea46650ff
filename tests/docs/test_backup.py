"""docs/how-to/production-on-postgresql.md: a dump that is taken while agents write restores to a sound store."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

import backtrail
from backtrail.testing.servers import PostgresServer, postgres_binary


@pytest.mark.slow
def test_a_dump_taken_while_agents_write_has_all_that_was_acknowledged_before_it(
    own_postgres: Callable[..., PostgresServer], tmp_path: Path
) -> None:
    server = own_postgres()
    restored = server.url.replace("/postgres", "/restored")
    dump, ended = str(tmp_path / "dump"), threading.Event()
    with backtrail.open(server.url) as store:

        def write(name: str) -> None:
            while not ended.is_set():
                store.session(name).add("user", "a message")
                store.session(name).fork(f"{name}/fork-{store.session(name).count()}")

        writers = [threading.Thread(target=write, args=(f"chat-{n}",)) for n in range(3)]
        for writer in writers:
            writer.start()
        try:
            while any(store.session(f"chat-{n}").count() < 5 for n in range(3)):
                ended.wait(0.01)
            before = {f"chat-{n}": store.session(f"chat-{n}").count() for n in range(3)}
            _run("pg_dump", "--format=custom", "--schema=backtrail", f"--file={dump}", server.url)
        finally:
            ended.set()
            for writer in writers:
                writer.join()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE restored")
    _run("pg_restore", "--no-owner", "--no-privileges", "--exit-on-error", f"--dbname={restored}", dump)
    with backtrail.open(restored) as store:
        assert store.verify().ok
        for name, count in before.items():
            assert store.session(name).count() >= count
            assert store.session(name).add("user", "it goes on").step > count


def _run(program: str, *arguments: str) -> None:
    done = subprocess.run([postgres_binary(program), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
