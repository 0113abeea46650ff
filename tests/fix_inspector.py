"""Runs the inspector as `backtrail ui` does: a real server on a local port."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx

import backtrail
from backtrail.server import application
from backtrail.server.one_time_codes import OneTimeCodes
from backtrail.server.serve import HEADER_SECONDS, Server

TOKEN = "a-token-for-tests-only"


class Inspector(NamedTuple):
    """A running inspector, and a client that has its token."""

    store: backtrail.Store
    url: str
    client: httpx.Client
    codes: OneTimeCodes

    def link(self) -> str:
        """An address that opens the page, once."""
        return f"{self.url}/#code={self.codes.make()}"

    def get(self, path: str, /, **query: Any) -> Any:
        response = self.client.get(f"/api/v1/{path}", params=query)
        assert response.status_code == 200, response.text
        return response.json()

    def post(self, path: str, /, **body: Any) -> Any:
        response = self.client.post(f"/api/v1/{path}", json=body)
        assert response.status_code == 200, response.text
        return response.json()


@contextlib.contextmanager
def inspector(store: backtrail.Store, *, header_seconds: float = HEADER_SECONDS, **options: Any) -> Iterator[Inspector]:
    """Serve a store for as long as the block lasts."""
    app = application(store, token=TOKEN, name="test.db", **options)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = Server(app, header_seconds=header_seconds)
    worker = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    worker.start()
    while not server.started:
        assert worker.is_alive()
        time.sleep(0.01)
    try:
        with httpx.Client(
            base_url=url, headers={"authorization": f"Bearer {TOKEN}"}, timeout=60, trust_env=False
        ) as client:
            yield Inspector(store, url, client, app.state.codes)
    finally:
        server.should_exit = True
        worker.join()
        listener.close()
