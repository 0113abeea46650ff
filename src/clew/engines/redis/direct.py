"""Calls straight over a connection of redis-py: what its client does around each of them takes longer than the server.

The connections are still made by redis-py's pool (TLS, logins, Sentinel, forks), but they are lent from here: the one
that was used last first, a new one only when all are lent, and callers beyond the pool's size wait. After a failure all
idle connections are suspected and given up, so that one attempt, not one for each connection, finds out that a server
was restarted. Nobody looks whether an idle connection still lives: the engine repeats what was interrupted.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from redis import exceptions

#: What a server answers, as opposed to what becomes of a connection; BUSY and LOADING replies are both.
_ANSWERS = exceptions.ResponseError


def packed(first: Sequence[bytes], args: Sequence[bytes | str | int]) -> list[bytes]:
    """A command as it travels."""
    parts = [b"*%d\r\n" % (len(first) + len(args))]
    parts += [b"$%d\r\n%b\r\n" % (len(arg), arg) for arg in first]
    for arg in args:
        raw = arg if isinstance(arg, bytes) else arg.encode() if isinstance(arg, str) else b"%d" % arg
        parts.append(b"$%d\r\n%b\r\n" % (len(raw), raw))
    return [b"".join(parts)]


class Connections:
    """Lends the connections of a pool that nobody else uses."""

    def __init__(self, pool: Any, size: int, timeout: float) -> None:
        self._pool = pool
        self._size = size
        self._timeout = timeout
        self._start()

    def _start(self) -> None:
        self._free = threading.Semaphore(self._size)
        self._idle: list[Any] = []
        self._closed = False  # what is given back from now on is closed, too
        self._process = os.getpid()

    def call(self, command: Sequence[bytes]) -> Any:
        """Send a packed command, and wait for the answer."""
        connection = self.take()
        try:
            connection.send_packed_command(command)
            answer = connection.read_response()
        except _ANSWERS as error:
            self.give_back(connection, broken=isinstance(error, exceptions.ReadOnlyError))
            raise
        except BaseException:
            # Its answer may still come: nobody may read it as the answer to something else.
            self.give_back(connection, broken=True)
            raise
        self.give_back(connection)
        return answer

    def take(self) -> Any:
        """A connection that is ready; `ConnectionError` if all are lent for too long, or if none can be made."""
        if self._process != os.getpid():
            # After a fork the parent's connections are the parent's; redis-py makes the child a new pool by itself.
            self._start()
        if not self._free.acquire(timeout=self._timeout):
            raise exceptions.ConnectionError(f"all {self._size} connections are busy: raise pool_size")
        try:
            return self._idle.pop()
        except IndexError:
            return self._made()

    def _made(self) -> Any:
        try:
            return self._pool.get_connection()
        except BaseException:
            self._free.release()
            raise

    def give_back(self, connection: Any, *, broken: bool = False) -> None:
        """Let others have it; if it is `broken`, all that are idle go with it."""
        if broken or self._closed:
            self._let_go(connection)
            self._empty()
        else:
            self._idle.append(connection)
        self._free.release()

    def _empty(self) -> None:
        while self._idle:
            self._let_go(self._idle.pop())

    def _let_go(self, connection: Any) -> None:
        connection.disconnect()
        self._pool.release(connection)

    def close(self) -> None:
        """Close those that are idle now, and the others when they come back."""
        self._closed = True
        self._empty()
