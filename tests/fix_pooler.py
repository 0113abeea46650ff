"""A pooler in transaction mode, as strict as one can be: hardly ever the same session twice in a row.

It speaks as much of PostgreSQL's protocol as it needs: it replays the server's greeting to clients, lends a session at
the first message of a transaction, and takes it back when the server reports that the transaction is over. Sessions are
shared by all clients and lent in turn, so session state that a client leaves behind is gone the next time.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator

import pytest

from fix_proxy import stop_listening

_NO_VERSIONS = (80877103, 80877104)  # questions for TLS and for GSSAPI
_ENDS_A_TURN = (b"S", b"Q")  # Sync and Query are answered by ReadyForQuery


class Gone(Exception):
    """The other side closed the connection."""


class Stream:
    """Messages on a socket: a letter, a length, a body."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self._read = b""

    def exactly(self, count: int) -> bytes:
        while len(self._read) < count:
            data = self.end.recv(1 << 16)
            if not data:
                raise Gone
            self._read += data
        taken, self._read = self._read[:count], self._read[count:]
        return taken

    def message(self) -> tuple[bytes, bytes]:
        """(letter, the whole message)."""
        head = self.exactly(5)
        return head[:1], head + self.exactly(int.from_bytes(head[1:], "big") - 4)

    @property
    def buffered(self) -> bool:
        """Is there a whole message that needs no waiting?"""
        return len(self._read) >= 5 and len(self._read) > int.from_bytes(self._read[1:5], "big")


class Pooler:
    """Listens on a free port, in front of the server on `port`."""

    def __init__(self, port: int, sessions: int) -> None:
        self.target = port
        self.lent = 0  #: transactions so far
        self.named: set[bytes] = set()  #: names of statements that clients wanted to keep
        self._size = sessions
        self._sessions: dict[bytes, deque[Stream]] = {}
        self._made: dict[bytes, int] = {}
        self._greetings: dict[bytes, bytes] = {}
        self._change = threading.Condition()
        self._ends: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Close every connection, and listen no more."""
        self._open = False
        stop_listening(self._listener)
        with self._change:
            for end in list(self._ends):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def _kept(self, end: socket.socket) -> Stream:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._change:
            self._ends.add(end)
        return Stream(end)

    def _accept(self) -> None:
        while self._open:
            with contextlib.suppress(OSError):
                client = self._kept(self._listener.accept()[0])
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: Stream) -> None:
        with contextlib.suppress(Gone, OSError, ValueError), client.end:
            login = self._login(client)
            session = self._take(login)
            self._give_back(login, session)
            client.end.sendall(self._greetings[login])
            while True:
                letter, message = client.message()
                if letter == b"X":
                    return
                self._transaction(login, client, letter, message)

    def _login(self, client: Stream) -> bytes:
        while True:
            length = client.exactly(4)
            body = client.exactly(int.from_bytes(length, "big") - 4)
            if int.from_bytes(body[:4], "big") not in _NO_VERSIONS:
                return length + body
            client.end.sendall(b"N")

    def _take(self, login: bytes) -> Stream:
        with self._change:
            free = self._sessions.setdefault(login, deque())
            self._made.setdefault(login, 0)
            can = self._change.wait_for(lambda: free or self._made[login] < self._size, timeout=60)
            assert can, "no session comes back"
            if self._made[login] == self._size:
                return free.popleft()
            self._made[login] += 1
        session = self._kept(socket.create_connection(("127.0.0.1", self.target)))
        session.end.sendall(login)
        greeting = b""
        while True:
            letter, message = session.message()
            greeting += message
            if letter == b"Z":
                break
            assert letter in (b"R", b"S", b"K", b"N"), message
        self._greetings[login] = greeting
        return session

    def _give_back(self, login: bytes, session: Stream) -> None:
        with self._change:
            self._sessions[login].append(session)
            self._change.notify_all()  # those who wait may wait for sessions of another login

    def _transaction(self, login: bytes, client: Stream, letter: bytes, message: bytes) -> None:
        session = self._take(login)
        with self._change:
            self.lent += 1
        try:
            self._until_idle(client, session, letter, message)
        except BaseException:
            # The client went in the middle of a transaction, or the server did: nobody gets this session again.
            session.end.close()
            with self._change:
                self._made[login] -= 1
                self._change.notify_all()
            raise
        self._give_back(login, session)

    def _until_idle(self, client: Stream, session: Stream, letter: bytes, message: bytes) -> None:
        turns = 0
        with selectors.DefaultSelector() as selector:
            selector.register(client.end, selectors.EVENT_READ, client)
            selector.register(session.end, selectors.EVENT_READ, session)
            while True:
                if letter == b"P" and (name := message[5 : message.index(b"\0", 5)]):
                    self.named.add(name)
                turns += letter in _ENDS_A_TURN
                session.end.sendall(message)
                while not client.buffered:
                    if not session.buffered and session not in {key.data for key, _ in selector.select()}:
                        break
                    letter, message = session.message()
                    client.end.sendall(message)
                    if letter == b"Z":
                        turns -= 1
                        if not turns and message[-1:] == b"I":
                            return
                letter, message = client.message()


@pytest.fixture
def pooler_to() -> Iterator[Callable[..., Pooler]]:
    """Make poolers to ports of this machine."""
    with contextlib.ExitStack() as stack:

        def make(port: int, sessions: int = 3) -> Pooler:
            pooler = Pooler(port, sessions)
            stack.callback(pooler.close)
            return pooler

        yield make


@pytest.fixture(scope="module")
def pooler(postgres_server: object) -> Iterator[Pooler]:
    """One for all tests of a module, in front of the server that all tests share."""
    pooler = Pooler(postgres_server.port, 3)  # type: ignore[attr-defined]
    yield pooler
    pooler.close()
