"""The security middleware: no request without the token, for another host, from another site, or too large."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

import backtrail
from backtrail.server import application
from backtrail.server.routes import OPERATIONS, ROOT
from fix_inspector import TOKEN, Inspector, inspector


@contextlib.contextmanager
def _client_without_token(served: Inspector, **headers: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, headers=headers, trust_env=False, timeout=60) as client:
        yield client


@pytest.mark.parametrize("given", [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"])
def test_no_call_succeeds_without_the_token(served: Inspector, given: str | None) -> None:
    with _client_without_token(served, **({} if given is None else {"authorization": given})) as client:
        for op in OPERATIONS:
            assert client.request(op.method, ROOT + op.path, json={} if op.writes else None).status_code == 401
        for path in ("/export", "/events", "/openapi.json", "/nothing"):
            assert client.get(ROOT + path).status_code == 401


def test_the_page_itself_holds_nothing_of_the_store_and_needs_no_token(served: Inspector) -> None:
    with _client_without_token(served) as client:
        for path in ("/", "/app.js", "/style.css", "/icon.svg"):
            answer = client.get(path)
            assert answer.status_code == 200
            assert TOKEN not in answer.text
        assert client.get("/app.js").headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize("path", ["/../app.py", "/%2e%2e/app.py", "/..%2fapp.py", "/static/app.js", "//etc/passwd"])
def test_no_path_leads_out_of_the_static_files(served: Inspector, path: str) -> None:
    with _client_without_token(served) as client:
        assert client.get(path).status_code == 401
        assert client.get(path, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 404


def test_an_inspector_that_another_application_mounts_needs_the_token_too() -> None:
    with backtrail.open("memory:") as store:
        store.thread("mine").save({"n": 1})
        app = application(store, token=TOKEN, hosts=["testserver"], read_only=True, metrics=True)
        client = TestClient(Starlette(routes=[Mount("/inside", app)]))
        key = {"authorization": f"Bearer {TOKEN}"}
        assert client.get("/inside/").status_code == client.get("/inside/app.js").status_code == 200
        for path in (f"/inside{ROOT}/threads", "/inside/metrics"):
            assert client.get(path).status_code == 401
            assert client.get(path, headers=key).status_code == 200
        assert client.post(f"/inside{ROOT}/delete", json={"thread": "mine"}).status_code == 401
        assert client.post(f"/inside{ROOT}/delete", json={"thread": "mine"}, headers=key).status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "evil@evil"]
)
def test_another_host_name_is_refused_even_with_the_token(served: Inspector, host: str) -> None:
    for path in ("/", "/api/v1/store"):
        assert _raw(served, f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}").startswith(
            "HTTP/1.1 421"
        )


def test_our_own_host_names_are_accepted(served: Inspector) -> None:
    for host in ("127.0.0.1", "LOCALHOST:99", "[::1]:7357"):
        answer = _raw(served, f"GET /api/v1/store HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}")
        assert answer.startswith("HTTP/1.1 200")


def _raw(served: Inspector, request: str) -> str:
    parts = urlsplit(served.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as connection:
        connection.sendall(f"{request}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    return answer.decode()


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_request_from_another_site_is_refused_even_with_the_token(served: Inspector, headers: dict[str, str]) -> None:
    answer = served.client.post("/api/v1/append", json={"thread": "x", "items": []}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["type"]) == (403, "WrongOrigin")
    assert served.store.count() == 2


def test_a_request_from_our_own_page_is_accepted(served: Inspector) -> None:
    headers = {"origin": served.url, "sec-fetch-site": "same-origin"}
    assert served.client.post("/api/v1/append", json={"thread": "x", "items": []}, headers=headers).status_code == 200


def test_a_form_of_another_page_has_the_wrong_type(served: Inspector) -> None:
    answer = served.client.post("/api/v1/append", data={"thread": "x"})
    assert answer.status_code == 415


def test_a_body_over_the_limit_is_refused_with_and_without_a_length() -> None:
    with backtrail.open("memory:") as store, inspector(store, max_body=1000) as served:
        declared = served.client.post("/api/v1/append", json={"thread": "x", "items": ["y" * 2000]})
        assert declared.status_code == 413
        streamed = served.client.post(
            "/api/v1/append", content=(b"y" * 100 for _ in range(50)), headers={"content-type": "application/json"}
        )
        assert streamed.status_code == 413
        assert served.post("append", thread="x", items=["y" * 500])["step"] == 1


def test_a_link_opens_the_page_once_and_holds_no_token(served: Inspector) -> None:
    code = served.codes.make()
    assert TOKEN not in served.link()
    with _client_without_token(served) as client:
        assert client.post("/open", json={"code": code}).json() == {"token": TOKEN}
        for used in (code, "", "x" * 32, "\0"):
            answer = client.post("/open", json={"code": used})
            assert (answer.status_code, answer.json()["error"]["type"]) == (403, "WrongCode")
        assert client.get("/open").status_code == 405
        assert client.post("/open", json={"code": 5}).status_code == 400


def test_codes_that_nobody_uses_are_forgotten(served: Inspector) -> None:
    first = served.codes.make()
    for _ in range(1000):
        last = served.codes.make()
    assert served.codes.exchange(first) is None
    assert served.codes.exchange(last) == TOKEN


def test_read_only_refuses_every_change() -> None:
    with backtrail.open("memory:") as store:
        store.thread("t").save({"n": 1})
        with inspector(store, read_only=True) as served:
            assert served.get("store")["read_only"] is True
            for op in OPERATIONS:
                if op.writes:
                    answer = served.client.post(ROOT + op.path, json={"thread": "t"})
                    assert (answer.status_code, answer.json()["error"]["type"]) == (403, "ReadOnly")
            assert served.get("thread", thread="t")["thread"]["step"] == 1


def test_every_response_has_the_security_headers(served: Inspector) -> None:
    for path in ("/", "/api/v1/store", "/nothing"):
        headers = served.client.get(path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in headers
