"""No secret in the raw bytes of any engine: files, Redis values, PostgreSQL tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from psycopg import sql

import backtrail

KEY = bytes(range(32))
SECRETS = ["mushroom", "Zanzibar", "quicksilver", "tangerine", "obelisk", "marzipan", "palimpsest"]


def build(store: backtrail.Store) -> None:
    text, label, tag, custom, name, summary, paper = SECRETS
    thread: Any = store.thread("visible-id")
    thread.save({"messages": [{"text": f"{text} {n} " * 30} for n in range(5)], name: 1}, label=label, tags=[tag])
    thread.annotate(1, label=f"{label} again", custom={custom: custom})
    for n in range(70):
        thread.append("messages", [{"text": f"{text} {n} and so on " * 20}], custom={custom: [custom]})
    thread.update({"paper": f"{paper} " * 20_000, "wide": {f"{name} {n}": f"{text} " * 20 for n in range(90)}})
    thread.fork("fork").save({"x": text}, label=label)
    session = store.session("chat")
    session.add("user", f"{text} and more")
    session.set_summary(f"{summary} " * 10)


def redis_bytes(url: str, prefix: str) -> bytes:
    client = redis.Redis.from_url(url)
    found = [bytes(key) for key in client.scan_iter(match="*") if prefix.encode() in bytes(key)]
    assert found
    parts = []
    for key in found:
        kind = client.type(key)
        read: dict[bytes, Callable[[bytes], Any]] = {
            b"hash": client.hgetall,
            b"list": lambda key: client.lrange(key, 0, -1),
            b"zset": lambda key: client.zrange(key, 0, -1, withscores=True),
            b"set": client.smembers,
            b"string": client.get,
        }
        parts.append(key + b"".join(_flat(read[kind](key))))
    client.close()
    return b"".join(parts)


def _flat(value: Any) -> list[bytes]:
    if isinstance(value, bytes):
        return [value]
    if isinstance(value, dict):
        value = [part for pair in value.items() for part in pair]
    if isinstance(value, (list, tuple, set)):
        return [part for item in value for part in _flat(item)]
    return [str(value).encode()]


def postgres_bytes(url: str, schema: str) -> bytes:
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", [schema]).fetchall()
        assert tables
        parts = []
        for (table,) in tables:
            for row in connection.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, table))):
                parts += [part if isinstance(part, bytes) else str(part).encode() for part in row]
        return b"".join(parts)


@pytest.mark.parametrize("key", [KEY, None], ids=["sealed", "plain"])
@pytest.mark.parametrize("engine", ["jsonl", "redis", "postgres"])
def test_no_secret_is_in_the_raw_bytes(
    engine: str, key: bytes | None, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    name = f"secrets_{'sealed' if key else 'plain'}"
    options: dict[str, Any] = {} if key is None else {"key": key}
    read: Callable[[], bytes]
    if engine == "jsonl":
        url = f"jsonl:{tmp_path / 'store'}"
        read = lambda: b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())  # noqa: E731
    elif engine == "redis":
        url = request.getfixturevalue("redis_server").url
        options["prefix"] = name
        read = lambda: redis_bytes(url, name)  # noqa: E731
    else:
        url = request.getfixturevalue("postgres_server").url
        options["schema"] = name
        read = lambda: postgres_bytes(url, name)  # noqa: E731
    with backtrail.open(url, **options) as store:
        build(store)
        assert store.verify().ok
    raw = read()
    found = [secret for secret in SECRETS if secret.encode() in raw]
    assert b"visible-id" in raw
    if key is not None:
        assert found == []
    else:
        assert len(found) >= 6  # the test can see what is there to be seen
