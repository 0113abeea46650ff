"""docs/how-to/retention-and-legal-deletes.md says where deleted words are on each engine, and when they are gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

import backtrail
from backtrail.engines.sqlite import database_file
from backtrail.testing.servers import PostgresServer, RedisServer, until

WORDS = b"my number is 555-0123"
OTHERS = b"something that stays"


def found_in(words: bytes, directory: Path) -> bool:
    return any(words in path.read_bytes() for path in directory.rglob("*") if path.is_file())


def save_and_delete(store: backtrail.Store, bob: int = 40) -> None:
    for n in range(40):
        store.session("ann").add("user", f"{WORDS.decode()}, said {n} times; {'and so on ' * 40}")
        store.session("bob").add("user", f"{OTHERS.decode()}, {n}")
    fork = store.session("ann").fork("ann/again")
    fork.add("user", f"{WORDS.decode()}, in a fork")
    store.session("ann").delete()
    assert WORDS.decode() in fork.messages()[0]["content"]  # a fork keeps what it shares
    fork.delete()
    store.prune()
    store.compact()
    assert not store.session("ann").exists()
    assert len(store.session("bob").messages()) == bob


@pytest.mark.parametrize("url", ["backtrail.db", "jsonl:lines"])
def test_deleted_words_are_in_no_file_of_a_compacted_store(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with backtrail.open(url) as store:
        save_and_delete(store)
        assert not found_in(WORDS, tmp_path)
    assert not found_in(WORDS, tmp_path)
    assert found_in(OTHERS, tmp_path)


def test_one_message_goes_with_the_checkpoints_that_have_it(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "backtrail.db") as store:
        session = store.session("ann")
        for text in (OTHERS.decode(), WORDS.decode(), OTHERS.decode()):
            session.add("user", text + " and so on" * 40)
        with_it = session.history()[1:]
        session.replace([message for message in session.messages() if WORDS.decode() not in message["content"]])
        for checkpoint in with_it:
            session.thread.delete(checkpoint)
        store.prune()
        store.compact()
        assert not found_in(WORDS, tmp_path)
        assert len(session.messages()) == 2
        assert store.verify().ok


def test_a_process_that_reads_keeps_the_wal_of_sqlite_until_the_next_compact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_file, "BUSY_MS", 100)  # so long compact waits for the reader; a minute otherwise
    path = tmp_path / "backtrail.db"
    with backtrail.open(path) as store:
        store.session("bob").add("user", OTHERS.decode())
        with sqlite3.connect(path) as reading:
            reading.execute("BEGIN")
            reading.execute("SELECT count(*) FROM heads").fetchone()
            save_and_delete(store, bob=41)
            assert found_in(WORDS, tmp_path)
        reading.close()
        store.compact()
        assert not found_in(WORDS, tmp_path)


def test_a_mirror_deletes_the_words_on_both_sides(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "one.db", replica=str(tmp_path / "two.db")) as store:
        save_and_delete(store)
    assert not found_in(WORDS, tmp_path)
    assert all(OTHERS in (tmp_path / name).read_bytes() for name in ("one.db", "two.db"))


def test_postgresql_has_the_words_in_its_tables_until_they_are_rewritten_and_longer_in_its_wal(
    own_postgres: Callable[..., PostgresServer],
) -> None:
    server = own_postgres()
    data = server.directory / "data"
    with backtrail.open(server.url) as store, psycopg.connect(server.url, autocommit=True) as connection:
        save_and_delete(store)
        connection.execute("CHECKPOINT")
        assert found_in(WORDS, data / "base")  # a vacuum frees space, and leaves what is in it
        connection.execute("VACUUM FULL")
        connection.execute("CHECKPOINT")
        assert not found_in(WORDS, data / "base")
        assert found_in(OTHERS, data / "base")
        assert found_in(WORDS, data / "pg_wal")
        assert store.verify().ok


def test_redis_drops_the_words_from_its_log_when_that_is_rewritten(own_redis: Callable[..., RedisServer]) -> None:
    server = own_redis()
    with backtrail.open(server.url) as store, redis.Redis(port=server.port) as client:
        save_and_delete(store)
        assert not _in_memory(WORDS, client)
        assert found_in(WORDS, server.directory)
        client.bgrewriteaof()
        until(lambda: not _rewriting(client), "the append-only file is rewritten")
        until(lambda: not found_in(WORDS, server.directory), "the old append-only file is gone")
        assert found_in(OTHERS, server.directory)


def _in_memory(words: bytes, client: Any) -> bool:
    hashes = (key for key in client.scan_iter() if client.type(key) == b"hash")
    return any(words in value for key in hashes for value in client.hvals(key))


def _rewriting(client: Any) -> bool:
    facts = client.info("persistence")
    return bool(facts["aof_rewrite_in_progress"] or facts["aof_rewrite_scheduled"])
