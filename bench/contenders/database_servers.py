"""Contenders on PostgreSQL and Redis: LangGraph's PostgresSaver, a bare INSERT, a bare HSET."""

from __future__ import annotations

from typing import Any

import msgspec
import psycopg
import redis
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row

from bench.contenders.langgraph import SyncSaver
from bench.measure import Job, SyncContender

_encode = msgspec.msgpack.Encoder().encode


class LangGraphPostgres(SyncSaver):
    """PostgresSaver: a blob per channel version, so the whole list of messages at each step."""

    name = "LangGraph PostgresSaver"

    def __init__(self, url: str) -> None:
        super().__init__()
        self.db = psycopg.connect(url, autocommit=True, prepare_threshold=0, row_factory=dict_row)
        self.saver = PostgresSaver(self.db)  # type: ignore[arg-type]
        self.saver.setup()

    def close(self) -> None:
        self.db.close()


class BarePostgresInsert(SyncContender):
    """One row with the new messages, already encoded: INSERT and COMMIT in one round trip."""

    name = "floor: bare INSERT + COMMIT"

    def __init__(self, url: str, table: str) -> None:
        self._db = psycopg.connect(url, autocommit=True)
        self._db.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY, data bytea NOT NULL)")
        self._insert = f"INSERT INTO {table} VALUES (%b, %b)".encode()
        self.written = 0

    def prepare(self, job: Job) -> Any:
        data = _encode(job.new)
        self.written += len(data)
        return job.step, data

    def save(self, prepared: Any) -> None:
        self._db.execute(self._insert, prepared)

    def close(self) -> None:
        self._db.close()


class BareRedisHset(SyncContender):
    """One field of a hash with the new messages, already encoded."""

    name = "floor: bare HSET"

    def __init__(self, port: int, key: str) -> None:
        self._client = redis.Redis(port=port)
        self._key = key
        self.written = 0

    def prepare(self, job: Job) -> Any:
        data = _encode(job.new)
        self.written += len(data)
        return str(job.step), data

    def save(self, prepared: Any) -> None:
        self._client.hset(self._key, *prepared)

    def close(self) -> None:
        self._client.close()
