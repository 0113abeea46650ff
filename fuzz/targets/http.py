"""Requests to the HTTP API, in the process: whatever a client sends is answered with a status below 500."""

from __future__ import annotations

import asyncio
import json
import random
from functools import cache
from typing import Any

import msgspec

import backtrail
from backtrail.server import application
from backtrail.server.routes import OPERATIONS, ROOT
from fuzz.mutate import JSON_SCALARS, TEXTS, change, damage
from fuzz.targets import battery

_TOKEN = "a-token-for-fuzzing-only"
_VALUES: dict[str, Any] = {
    "thread": "a",
    "at": "@",
    "a": "1",
    "b": "2",
    "state": {"x": [1]},
    "items": [{"n": 1}],
    "key": "messages",
}


@cache
def _application() -> Any:
    store = backtrail.open("memory:")
    battery.fill(store)
    return application(store, token=_TOKEN, name="fuzz")


def make(rng: random.Random) -> bytes:
    operation = rng.choice(OPERATIONS)
    fields = msgspec.json.schema(operation.request_type)
    names = list(next(iter(fields.get("$defs", {}).values()), {}).get("properties", {}))
    values = {name: _VALUES.get(name, rng.choice(JSON_SCALARS)) for name in names if rng.random() < 0.8}
    query, body = "", b""
    if operation.writes:
        try:
            body = json.dumps(
                change(values, rng, (*JSON_SCALARS, {"$type": 5, "value": 1}, {"$map": [[[], 1]]}))
            ).encode()
        except RecursionError:
            body = b"[" * 3000
        body = damage(body, rng) if rng.random() < 0.2 else body
    else:
        pairs = [(name, str(value) if rng.random() < 0.7 else rng.choice(TEXTS)) for name, value in values.items()]
        query = "&".join(f"{name}={_escape(value, rng)}" for name, value in pairs)
    return json.dumps([operation.method, ROOT + operation.path, query, body.decode("latin-1")]).encode()


def _escape(text: str, rng: random.Random) -> str:
    data = text.encode("utf-8", "surrogatepass")[:2000]
    return "".join(
        f"%{byte:02x}" if rng.random() < 0.9 or byte in b" &#%" or byte > 126 or byte < 33 else chr(byte)
        for byte in data
    )


def attempt(data: bytes) -> None:
    method, path, query, body = json.loads(data)
    status = asyncio.run(_send(method, path, query.encode("latin-1"), body.encode("latin-1")))
    assert status < 500, f"{method} {path} was answered with {status}"


async def _send(method: str, path: str, query: bytes, body: bytes) -> int:
    headers = [
        (b"host", b"127.0.0.1"),
        (b"authorization", f"Bearer {_TOKEN}".encode()),
        (b"content-type", b"application/json"),
    ]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query, "root_path": "", "headers": headers,
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    statuses: list[int] = []
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        return waiting.pop() if waiting else {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await _application()(scope, receive, send)
    return statuses[0]
