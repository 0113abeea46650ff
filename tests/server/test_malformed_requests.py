"""Whatever a client gets wrong is answered with 4xx, and a client that is slow does not hold a connection."""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

import backtrail
from backtrail.server.routes import OPERATIONS, ROOT
from fix_inspector import TOKEN, Inspector, inspector

LOGIN = f"Authorization: Bearer {TOKEN}"
HOST = "Host: 127.0.0.1"
BIG = "9" * 5000
ODD_TEXTS = ["", "\0", "²", "１２", "-1", BIG, "1e999", "NaN", "null", "[]", "\ud800", "%ff", "a" * 10_000, "@~" + BIG]
VALUES: list[Any] = [*ODD_TEXTS[:-4], 0, -1, 10**18, 1.5, True, None, [], {}, ["t"], "t", "@", "1"]
# Numbers with the same hash: a set of them takes minutes to build.
COLLIDING = b", ".join(b'{"$int": "%d"}' % ((2**61 - 1) * n + 5) for n in range(20, 20_000))
BODIES = [
    b"",
    b"\xff\xfe",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'{"thread": "t", "items": [' + BIG.encode() + b"]}",
    b'{"thread": "t", "items": [1e99999]}',
    b'{"thread": "t", "items": ["\xff"]}',
    b'{"thread": "t", "items": ["\\ud800"]}',
    b'{"thread": "t", "items": [' + b"[" * 5000 + b"]" * 5000 + b"]}",
    b'{"thread": "t", "items": [{"$type": 5, "value": 1}]}',
    b'{"thread": "t", "items": [{"$set": [' + COLLIDING + b"]}]}",
    b'{"thread": "t", "items": [{"$map": [' + COLLIDING.replace(b'{"$', b'[{"$').replace(b"}", b"}, 1]") + b"]}]}",
    b'{"thread": "t", "items": ' + b'{"$tuple": [' * 400 + b"]}" * 400 + b"}",
    b'{"thread": "t", "items": [{"$bytes": "?"}]}',
    b'{"thread": "t", "items": [{"$int": "' + BIG.encode() + b'"}]}',
    b'{"thread": "\\u0000", "items": []}',
    b'{"thread": "t", "custom": {"a": ' + BIG.encode() + b"}}",
    b'{"thread": "t", "thread": "u", "state": {}}',
]


@pytest.fixture(scope="module")
def served() -> Iterator[Inspector]:
    with backtrail.open("memory:") as store:
        thread: backtrail.Thread[Any] = store.thread("t")
        thread.save({"messages": [{"role": "user", "content": "hello"}]})
        thread.append("messages", [{"role": "assistant", "content": "hi"}])
        with inspector(store) as running:
            yield running


@pytest.mark.parametrize(
    "head",
    [
        f"GET {ROOT}/store HTTP/1.1\r\nHost: [\r\n{LOGIN}",
        f"GET {ROOT}/store HTTP/1.1\r\nHost: [::1\r\n{LOGIN}",
        f"GET {ROOT}/store HTTP/1.1\r\nHost: 127.0.0.1:port\r\n{LOGIN}",
        f"GET {ROOT}/store HTTP/1.1\r\nHost: a@127.0.0.1\r\n{LOGIN}",
        f"GET {ROOT}/store HTTP/1.1\r\n{HOST}\r\n{LOGIN}\r\nOrigin: [",
        f"GET {ROOT}/store HTTP/1.1\r\n{HOST}\r\nAuthorization: Bearer \xff\xfe",
        f"POST {ROOT}/save HTTP/1.1\r\n{HOST}\r\n{LOGIN}\r\nContent-Length: \xb2",
        f"POST {ROOT}/save HTTP/1.1\r\n{HOST}\r\n{LOGIN}\r\nContent-Length: -1",
        f"POST {ROOT}/save HTTP/1.1\r\n{HOST}\r\n{LOGIN}\r\nContent-Length: {BIG}",
        f"POST {ROOT}/save HTTP/1.1\r\n{HOST}\r\n{LOGIN}\r\nTransfer-Encoding: odd",
        f"GET {ROOT}/state?path=%ff HTTP/1.1\r\n{HOST}\r\n{LOGIN}",
        f"GET {ROOT}/%ff%fe HTTP/1.1\r\n{HOST}\r\n{LOGIN}",
        f"BREW {ROOT}/store HTTP/1.1\r\n{HOST}\r\n{LOGIN}",
        f"GET {ROOT}/store HTTP/1.1\r\n{HOST}\r\nX: {'y' * 100_000}",
        "nonsense",
    ],
)
def test_a_malformed_head_is_the_clients_mistake(served: Inspector, head: str) -> None:
    answer = _raw(served, head.encode("latin-1") + b"\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 4"), answer[:200]


@pytest.mark.parametrize("op", [op for op in OPERATIONS if op.writes], ids=lambda op: op.path)
@pytest.mark.parametrize("number", range(len(BODIES)))
def test_a_malformed_body_is_the_clients_mistake(served: Inspector, op: Any, number: int) -> None:
    answer = served.client.post(ROOT + op.path, content=BODIES[number], headers={"content-type": "application/json"})
    assert answer.status_code == 200 or 400 <= answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.json()["error"]["message"]
    assert served.client.get(f"{ROOT}/history", params={"thread": "t"}).status_code in (200, 404)


@pytest.mark.parametrize("op", [op for op in OPERATIONS if not op.writes], ids=lambda op: op.path)
def test_no_query_whatever_its_values_is_more_than_a_mistake(served: Inspector, op: Any) -> None:
    names = op.request_type.__struct_fields__
    for name in names or ("unknown",):
        for text in ODD_TEXTS:
            value = quote(text.encode("utf-8", "surrogatepass")) if text != "%ff" else text
            answer = served.client.get(f"{ROOT}{op.path}?thread=t&{name}={value}")
            assert answer.status_code == 200 or 400 <= answer.status_code < 500, (name, text[:20], answer.text)
    if not names:
        assert served.client.get(f"{ROOT}{op.path}?unknown=1").status_code == 400


@pytest.mark.parametrize("seed", range(20))
def test_random_requests_get_an_answer_below_500(served: Inspector, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(25):
        op = chance.choice(OPERATIONS)
        values: dict[str, Any] = {"thread": "t"} if chance.random() < 0.8 else {}
        for name in chance.sample(op.request_type.__struct_fields__, min(2, len(op.request_type.__struct_fields__))):
            values[name] = chance.choice(
                [*ODD_TEXTS[:-4], 0, -1, 10**18, 1.5, True, None, [], {}, ["t"], "t", "@", "1"]
            )
        if op.writes:
            body = bytearray(json.dumps(values).encode())
            if body and chance.random() < 0.5:
                body[chance.randrange(len(body))] = chance.randrange(256)
            answer = served.client.post(
                ROOT + op.path, content=bytes(body), headers={"content-type": "application/json"}
            )
        else:
            texts = {name: str(value).encode("utf-8", "surrogatepass") for name, value in values.items()}
            answer = served.client.get(ROOT + op.path + "?" + "&".join(f"{n}={quote(v)}" for n, v in texts.items()))
        assert answer.status_code < 500, (op, values, answer.text)


def test_a_request_whose_head_never_ends_is_cut_off() -> None:
    with backtrail.open("memory:") as store, inspector(store, header_seconds=0.2) as slow:
        for sent in (b"", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET / HT"):
            with _connect(slow) as connection:
                connection.sendall(sent)
                answer = b""
                while chunk := connection.recv(65536):  # ends because the server closes the connection
                    answer += chunk
            assert answer.count(b"HTTP/1.1 200") == sent.count(b"\r\n\r\n")


def test_a_body_of_which_nothing_comes_is_refused() -> None:
    with backtrail.open("memory:") as store, inspector(store, body_seconds=0.2) as slow:
        head = (
            f"POST {ROOT}/save HTTP/1.1\r\n{HOST}\r\n{LOGIN}\r\nContent-Type: application/json\r\nContent-Length: 9\r\n"
        )
        answer = _raw(slow, f"{head}\r\n{{".encode(), b"Slow")
        assert answer.startswith(b"HTTP/1.1 408")
        assert store.count() == 0


def test_an_event_stream_stays_open_longer_than_a_body_may_take() -> None:
    with (
        backtrail.open("memory:") as store,
        inspector(store, body_seconds=0.1, header_seconds=0.1) as slow,
        slow.client.stream("GET", f"{ROOT}/events") as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines) == "event: hello"
        time.sleep(0.5)
        store.thread("new").save({})
        assert "event: threads" in lines


def _connect(served: Inspector) -> socket.socket:
    parts = urlsplit(served.url)
    return socket.create_connection((parts.hostname, parts.port), timeout=60)


def _raw(served: Inspector, request: bytes, until: bytes | None = None) -> bytes:
    with _connect(served) as connection:
        connection.sendall(request)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
            if until is not None and until in answer:
                break
    return answer
