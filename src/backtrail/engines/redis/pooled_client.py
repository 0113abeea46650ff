"""Calls directly over redis-py's connections, because its client takes longer for a call than the server does.

The connections are still made by redis-py's pool (TLS, logins, Sentinel, forks), but they are lent from here: the one
that was used last first, a new one only when all are lent, and callers beyond the pool's size wait. After a failure all
idle connections are closed, so that a restarted server costs one failed attempt, not one per connection. Idle
connections are not checked before use: the engine repeats an interrupted call.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from redis import exceptions

#: Errors that the server sent as its answer; the connection is still usable.
_ANSWERS = exceptions.ResponseError


def packed(first: Sequence[bytes], args: Sequence[bytes | str | int]) -> list[bytes]:
    """A command in wire format: a list of byte strings, each after its length."""
    count = len(first) + len(args)
    flat: list[int | bytes] = [count]
    for part in first:
        flat += (len(part), part)
    for arg in args:
        raw = arg if isinstance(arg, bytes) else arg.encode() if isinstance(arg, str) else b"%d" % arg
        flat += (len(raw), raw)
    return [(b"*%d\r\n" + b"$%d\r\n%b\r\n" * count) % tuple(flat)]


class BlockingConnections:
    """Lends the blocking connections of a pool, which is used by nothing else, to many threads."""

    def __init__(self, pool: Any, size: int, timeout: float) -> None:
        self._pool = pool
        self._size = size
        self._timeout = timeout
        self._start()

    def _start(self) -> None:
        self._idle: list[Any] = []
        self._made = 0  # idle and lent
        self._waiting = 0
        self._change = threading.Condition()
        self._closed = False  # what is given back from now on is closed, too
        self._process = os.getpid()

    def call(self, command: Sequence[bytes]) -> Any:
        """Send a packed command, and wait for the answer."""
        connection = self.take()
        try:
            connection.send_packed_command(command)
            answer = connection.read_response()
        except _ANSWERS as error:
            # A master that was made a replica: the next connection may lead to the new one.
            self.give_back(connection, broken="READONLY" in str(error))
            raise
        except BaseException:
            # Its answer may still arrive, and must not be read as the answer to another call.
            self.give_back(connection, broken=True)
            raise
        self.give_back(connection)
        return answer

    def take(self) -> Any:
        """A connection that is ready; `ConnectionError` if all are lent for too long, or if none can be made."""
        if self._process != os.getpid():
            # After a fork the connections belong to the parent; redis-py makes a new pool for the child by itself.
            self._start()
        try:
            return self._idle.pop()  # list.pop is atomic: no lock is needed
        except IndexError:
            return self._waited()

    def _waited(self) -> Any:
        end = time.monotonic() + self._timeout
        with self._change:
            # `give_back` reads this number after it returns a connection: either we see that connection, or we are
            # woken.
            self._waiting += 1
            try:
                while self._made >= self._size:
                    with contextlib.suppress(IndexError):
                        return self._idle.pop()
                    if not self._change.wait(end - time.monotonic()):
                        raise exceptions.ConnectionError(f"all {self._size} connections are busy: raise pool_size")
                self._made += 1
            finally:
                self._waiting -= 1
        try:
            return self._pool.get_connection()
        except BaseException:
            self._gone()
            raise

    def give_back(self, connection: Any, *, broken: bool = False) -> None:
        """Let others have it; if it is `broken`, all that are idle go with it."""
        if broken or self._closed:
            self._let_go(connection)
            self._empty()
        else:
            self._idle.append(connection)
            if self._waiting:
                with self._change:
                    self._change.notify()

    def _empty(self) -> None:
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return
            self._let_go(connection)

    def _let_go(self, connection: Any) -> None:
        connection.disconnect()
        self._pool.release(connection)
        self._gone()

    def _gone(self) -> None:
        with self._change:
            self._made -= 1
            self._change.notify()

    def close(self) -> None:
        """Close those that are idle now, and the others when they come back."""
        self._closed = True
        self._empty()


class AsyncConnections:
    """The same for asyncio, on one event loop; here the pool only makes connections and does not count them."""

    def __init__(self, pool: Any, size: int, timeout: float) -> None:
        self._pool = pool
        self._size = size
        self._timeout = timeout
        self._free = asyncio.Semaphore(size)
        self._idle: list[Any] = []
        self._closed = False  # what is given back from now on is closed, too

    async def call(self, command: Sequence[bytes]) -> Any:
        """Send a packed command, and wait for the answer."""
        connection = await self.take()
        try:
            await connection.send_packed_command(command)
            answer = await connection.read_response()
        except _ANSWERS as error:
            await self.give_back(connection, broken="READONLY" in str(error))
            raise
        except BaseException:
            await self.give_back(connection, broken=True)
            raise
        await self.give_back(connection)
        return answer

    async def take(self) -> Any:
        """A connection that is ready; `ConnectionError` if all are lent for too long, or if none can be made."""
        if self._free.locked():
            await self._waited()
        else:
            await self._free.acquire()  # does not wait
        if self._idle:
            return self._idle.pop()
        connection = None
        try:
            connection = self._pool.make_connection()
            await connection.connect()
        except BaseException:
            self._free.release()
            if connection is not None:
                await connection.disconnect(nowait=True)
            raise
        return connection

    async def _waited(self) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._free.acquire()
        except TimeoutError as error:
            raise exceptions.ConnectionError(f"all {self._size} connections are busy: raise pool_size") from error

    async def give_back(self, connection: Any, *, broken: bool = False) -> None:
        """Let others have it; if it is `broken`, all that are idle go with it."""
        if broken or self._closed:
            suspects, self._idle = [connection, *self._idle], []
            self._free.release()
            for suspect in suspects:
                await suspect.disconnect(nowait=True)
        else:
            self._idle.append(connection)
            self._free.release()

    async def close(self) -> None:
        """Close those that are idle now, and the others when they come back."""
        self._closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            # Closing TLS waits for the other side's close_notify, but not for long.
            with contextlib.suppress(exceptions.TimeoutError, OSError):
                await connection.disconnect()
        await asyncio.sleep(0)  # a loop closes sockets in its next iteration, and this may be the last one
