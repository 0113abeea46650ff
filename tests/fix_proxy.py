"""A TCP proxy that misbehaves on demand: it delays, cuts, swallows answers, holds them back, or keeps silent.

It also counts round trips: each time the client speaks after the server did, a new one begins.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

CHUNK = 1 << 16


class Proxy:
    """Listens on a free port and passes everything on to `port`, unless told otherwise."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.delay = 0.0
        self.silent = False  #: take what clients say, and pass nothing on
        self.refusing = False  #: close new connections at once
        self.trips = 0
        self.held_for = 0  #: keep all answers back until so many connections wait for one at the same time
        self._asking: set[socket.socket] = set()
        self._enough = threading.Condition()
        self._cut_answers = 0
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_next_answers(self, count: int = 1) -> None:
        """Let the next requests through, but cut the connection instead of passing on the answer."""
        with self._lock:
            self._cut_answers = count

    @property
    def cuts_left(self) -> int:
        """How many answers are still to be cut."""
        return self._cut_answers

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        with self._lock:
            return len(self._pairs)

    def cut(self) -> None:
        """Cut all connections."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self._end(pair)

    def close(self) -> None:
        """Cut all, and listen no more."""
        self._open = False
        stop_listening(self._listener)
        with self._enough:
            self.held_for = 0
            self._enough.notify_all()
        self.cut()

    def _accept(self) -> None:
        while self._open:
            try:
                client, _ = self._listener.accept()
                if self.refusing:
                    client.close()
                    continue
            except OSError:
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            for end in client, server:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            pair = (client, server)
            with self._lock:
                self._pairs.append(pair)
            threading.Thread(target=self._serve, args=(pair,), daemon=True).start()

    def _serve(self, pair: tuple[socket.socket, socket.socket]) -> None:
        client, server = pair
        asked = False
        with selectors.DefaultSelector() as selector, contextlib.suppress(OSError, ValueError):
            selector.register(client, selectors.EVENT_READ)
            selector.register(server, selectors.EVENT_READ)
            while pair in self._pairs:  # a pair that was cut says nothing more, not even that it ended
                for key, _ in selector.select(timeout=1.0):
                    data = key.fileobj.recv(CHUNK)  # type: ignore[union-attr]
                    if not data:
                        return self._end(pair)
                    if self.silent:
                        continue
                    if key.fileobj is client:
                        if not asked:
                            asked = True
                            with self._lock:
                                self.trips += 1
                            self._ask(client)
                        server.sendall(data)
                        continue
                    asked = False
                    with self._lock:
                        cut = self._cut_answers > 0
                        self._cut_answers -= cut
                    if cut:
                        return self._end(pair)
                    if self.delay:
                        time.sleep(self.delay)
                    if self.held_for:
                        self._hold()
                    self._asking.discard(client)
                    client.sendall(data)
        return self._end(pair)

    def _ask(self, client: socket.socket) -> None:
        with self._enough:
            self._asking.add(client)
            if len(self._asking) >= self.held_for:
                self.held_for = 0  # once is proof enough
                self._enough.notify_all()

    def _hold(self) -> None:
        with self._enough:
            self._enough.wait_for(lambda: not self.held_for)

    def _end(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            if pair in self._pairs:
                self._pairs.remove(pair)
        for end in pair:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def stop_listening(listener: socket.socket) -> None:
    """A thread that waits in accept() would keep a socket listening that is only closed."""
    with contextlib.suppress(OSError):
        listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.fixture
def proxy_to() -> Iterator[Callable[[int], Proxy]]:
    """Make proxies to ports of this machine."""
    with contextlib.ExitStack() as stack:

        def make(port: int) -> Proxy:
            proxy = Proxy(port)
            stack.callback(proxy.close)
            return proxy

        yield make
