"""The clients: a small pool of blocking psycopg connections, and one of asyncio connections.

Connections are in autocommit mode and results come in binary form. A pool lends the connection that was used last,
opens a new one only when all are lent, and makes callers beyond its size wait. After a failure all idle connections are
closed, so that a restarted server costs one failed attempt, not one per connection. psycopg itself would wait forever
for a silent server: here every wait has a timeout.

Nearly every commit is one and the same statement. It bypasses psycopg's cursors, which would take longer for it than
the server does: its parameters are bytes already, and it returns no rows.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString, Protocol, TypeVar

import msgspec
import psycopg
from psycopg import errors
from psycopg.abc import Params
from psycopg.pq import ExecStatus
from psycopg.waiting import Ready, Wait

from backtrail.engines import tls
from backtrail.engines.retry import Interrupted
from backtrail.engines.server_url import public_url
from backtrail.errors import Unavailable

T = TypeVar("T")
Query = LiteralString | bytes
Rows = list[tuple[Any, ...]]
Run = Callable[[Query, "Params | None"], Awaitable[Rows]]

#: Messages of a server that is starting, is shutting down, or has no free connection.
_PASSING = (
    "starting up",
    "shutting down",
    "in recovery",
    "not yet accepting",
    "not accepting",
    "too many clients",
    "too many connections",
    "remaining connection",
)
#: The SQLSTATE of a refusal by our own functions.
REFUSED = "BTRL0"
_AGAIN = ("40001", "40P01", "53300", "57P01", "57P02", "57P03", "57P05")


class ConnectionOptions(msgspec.Struct, frozen=True):
    """How connections are made."""

    url: str
    pool_size: int
    connect_timeout: float
    read_timeout: float
    prepare: bool
    libpq: dict[str, str]  #: options of libpq, which win over the URL's

    def __repr__(self) -> str:  # without the password
        return f"ConnectionOptions({public_url(self.url)!r})"

    def for_psycopg(self) -> dict[str, Any]:
        """The options under psycopg's names."""
        return {
            **self.libpq,
            "autocommit": True,
            "client_encoding": "UTF8",
            "connect_timeout": max(1, round(self.connect_timeout)),
            # A prepared statement belongs to a session, and a pooler may switch sessions.
            "prepare_threshold": 5 if self.prepare else None,
        }


class Statement:
    """A statement with numbered parameters of known types, all of them sent in binary form.

    Its name as a prepared statement is derived from its text, so in whatever session a pooler provides, a statement of
    this name is this one.
    """

    def __init__(self, text: bytes, types: Sequence[int]) -> None:
        self.text = text
        self.types = types
        self.formats = [psycopg.pq.Format.BINARY] * len(types)
        self.name = b"backtrail_" + hashlib.blake2b(text, digest_size=12).hexdigest().encode()


class Client(Protocol):
    """The calls that the engine makes to a server."""

    async def execute_prepared(self, statement: Statement, values: Sequence[bytes | None]) -> None:
        """A prepared statement in its own transaction, which returns no rows."""

    async def run(self, query: Query, params: Params | None = None, seconds: float | None = None) -> Rows:
        """One statement in its own transaction, for at most `seconds` (None: the read timeout)."""

    async def transaction(self, work: Callable[[Run], Awaitable[T]], seconds: float | None = None) -> T:
        """Several statements in one transaction, each for at most `seconds` (None: the read timeout)."""

    async def warm(self, connections: int) -> None:
        """Open some connections before they are needed."""

    async def sleep(self, seconds: float) -> None:
        """Sleep, without blocking other callers."""

    async def close(self) -> None:
        """Close all connections."""


def _bounded(gen: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    """Drive a generator of psycopg that waits for the server, for at most `seconds`."""
    end = time.monotonic() + seconds
    try:
        wait = next(gen)
        while True:
            ready = yield wait
            if not ready:
                _check_deadline(end, seconds)
            wait = gen.send(ready)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]


def _execute(
    pgconn: Any, prepared: set[bytes] | None, what: Statement, values: Sequence[bytes | None], seconds: float
) -> Generator[Any, Any, None]:
    """Run a statement; `prepared` holds the names of the session's prepared statements, if it may have any."""
    if prepared is not None:
        if what.name not in prepared:
            pgconn.send_prepare(what.name, what.text, what.types)
            _checked((yield from _answer(pgconn, seconds)), but=errors.DuplicatePreparedStatement)
            prepared.add(what.name)
        pgconn.send_query_prepared(what.name, values, what.formats)
        refused = _checked((yield from _answer(pgconn, seconds)), but=errors.InvalidSqlStatementName)
        if refused is None:
            return
        prepared.discard(what.name)  # a pooler switched to another session
    pgconn.send_query_params(what.text, values, what.types, what.formats)
    _checked((yield from _answer(pgconn, seconds)))


def _answer(pgconn: Any, seconds: float) -> Generator[Any, Any, Any]:
    """Like psycopg's own generator for a statement, but it writes before it waits, and has a timeout."""
    end = time.monotonic() + seconds
    answer = None
    while pgconn.flush():
        ready = yield Wait.RW
        if ready & Ready.R:
            pgconn.consume_input()
        elif not ready:
            _check_deadline(end, seconds)
    while True:
        while pgconn.is_busy():
            if (yield Wait.R):
                pgconn.consume_input()
            else:
                _check_deadline(end, seconds)
        result = pgconn.get_result()
        if result is None:
            return answer
        answer = result


def _check_deadline(end: float, seconds: float) -> None:
    if time.monotonic() > end:
        raise psycopg.OperationalError(f"no answer within {seconds:g} s")


def _checked(result: Any, but: type[psycopg.Error] = errors.Error) -> psycopg.Error | None:
    """Raise the error of a result, if any; return it instead if it is a `but`."""
    if result.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        return None
    error = errors.error_from_result(result)
    if type(error) is but:
        return error
    raise error


class _BlockingConnection(psycopg.Connection[tuple[Any, ...]]):
    wait_timeout: float = 30.0
    prepared: set[bytes] | None = None

    def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        return super().wait(_bounded(gen, self.wait_timeout), *args, **options)

    def execute_prepared(self, statement: Statement, values: Sequence[bytes | None], seconds: float) -> None:
        super().wait(_execute(self.pgconn, self.prepared, statement, values, seconds))


class _AsyncConnection(psycopg.AsyncConnection[tuple[Any, ...]]):
    wait_timeout: float = 30.0
    prepared: set[bytes] | None = None

    async def wait(self, gen: Any, *args: Any, **options: Any) -> Any:
        return await super().wait(_bounded(gen, self.wait_timeout), *args, **options)

    async def execute_prepared(self, statement: Statement, values: Sequence[bytes | None], seconds: float) -> None:
        await super().wait(_execute(self.pgconn, self.prepared, statement, values, seconds))


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        if error.sqlstate == REFUSED:
            raise
        raise _translation(error) from error


def _translation(error: psycopg.Error) -> Unavailable:
    state, text = error.sqlstate or "", " ".join(str(error).split())
    if state in _AGAIN or state.startswith("08") or any(phrase in text for phrase in _PASSING):
        return Interrupted(f"PostgreSQL is not ready: {text}")
    if not state and tls.handshake_failed_by_libpq(text):
        return Unavailable(
            f"PostgreSQL and backtrail do not agree on TLS: {text}; check the host name and the ssl… options"
        )
    if isinstance(error, psycopg.OperationalError) and not state and "FATAL" not in text:
        return Interrupted(f"PostgreSQL did not answer: {text}")
    if isinstance(error, errors.DiskFull | errors.OutOfMemory | errors.ReadOnlySqlTransaction):
        return Unavailable(f"PostgreSQL cannot write now, nothing was written: {text}")
    return Unavailable(f"PostgreSQL refused the call, nothing was written: {text}")


class BlockingClient:
    """Over `psycopg.Connection`: never suspends, and may be used from many threads."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options
        self._free = threading.Semaphore(options.pool_size)
        self._idle: list[_BlockingConnection] = []
        self._closed = False  # what is given back from now on is closed, too
        self._process = os.getpid()

    def _take(self) -> _BlockingConnection:
        if self._process != os.getpid():
            # After a fork these connections belong to the parent: drop them without sending anything to the server.
            self._idle, self._process = [], os.getpid()
            self._free = threading.Semaphore(self._options.pool_size)
        if not self._free.acquire(timeout=self._options.read_timeout):
            raise Unavailable(f"all {self._options.pool_size} connections are busy: raise pool_size")
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def _connect(self) -> _BlockingConnection:
        try:
            connection = _BlockingConnection.connect(self._options.url, **self._options.for_psycopg())
        except BaseException:
            self._free.release()
            raise
        connection.prepared = set() if self._options.prepare else None
        return connection

    def _give_back(self, connection: _BlockingConnection) -> None:
        if (
            self._closed
            or connection.closed
            or connection.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE
        ):
            connection.close()
            while self._idle:
                self._idle.pop().close()
        else:
            self._idle.append(connection)
        self._free.release()

    async def execute_prepared(self, statement: Statement, values: Sequence[bytes | None]) -> None:
        try:
            connection = self._take()
            try:
                connection.execute_prepared(statement, values, self._options.read_timeout)
            finally:
                self._give_back(connection)
        except psycopg.Error as error:
            if error.sqlstate == REFUSED:
                raise
            raise _translation(error) from error

    async def run(self, query: Query, params: Params | None = None, seconds: float | None = None) -> Rows:
        with _translated():
            connection = self._take()
            connection.wait_timeout = seconds or self._options.read_timeout
            try:
                cursor = connection.execute(query, params, binary=True)
                return cursor.fetchall() if cursor.description else []
            finally:
                self._give_back(connection)

    async def transaction(self, work: Callable[[Run], Awaitable[T]], seconds: float | None = None) -> T:
        with _translated():
            connection = self._take()
            connection.wait_timeout = seconds or self._options.read_timeout

            async def run(query: Query, params: Params | None = None) -> Rows:
                cursor = connection.execute(query, params)
                return cursor.fetchall() if cursor.description else []

            try:
                with connection.transaction():
                    return await work(run)
            finally:
                self._give_back(connection)

    async def warm(self, connections: int) -> None:
        taken: list[_BlockingConnection] = []
        try:
            with _translated():
                while len(taken) < connections:
                    taken.append(self._take())
        finally:
            for connection in taken:
                self._give_back(connection)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 (a blocking engine blocks)

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()


class AsyncClient:
    """Over `psycopg.AsyncConnection`, for one event loop."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options
        self._free = asyncio.Semaphore(options.pool_size)
        self._idle: list[_AsyncConnection] = []
        self._closed = False  # what is given back from now on is closed, too

    async def _take(self) -> _AsyncConnection:
        try:
            async with asyncio.timeout(self._options.read_timeout):
                await self._free.acquire()
        except TimeoutError as error:
            raise Unavailable(f"all {self._options.pool_size} connections are busy: raise pool_size") from error
        return self._idle.pop() if self._idle else await self._connect()

    async def _connect(self) -> _AsyncConnection:
        try:
            connection = await _AsyncConnection.connect(self._options.url, **self._options.for_psycopg())
        except BaseException:
            self._free.release()
            raise
        connection.prepared = set() if self._options.prepare else None
        return connection

    async def _give_back(self, connection: _AsyncConnection) -> None:
        if (
            self._closed
            or connection.closed
            or connection.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE
        ):
            suspects, self._idle = [connection, *self._idle], []
            for suspect in suspects:
                await suspect.close()
        else:
            self._idle.append(connection)
        self._free.release()

    async def execute_prepared(self, statement: Statement, values: Sequence[bytes | None]) -> None:
        try:
            connection = await self._take()
            try:
                await connection.execute_prepared(statement, values, self._options.read_timeout)
            finally:
                await self._give_back(connection)
        except psycopg.Error as error:
            if error.sqlstate == REFUSED:
                raise
            raise _translation(error) from error

    async def run(self, query: Query, params: Params | None = None, seconds: float | None = None) -> Rows:
        with _translated():
            connection = await self._take()
            connection.wait_timeout = seconds or self._options.read_timeout
            try:
                cursor = await connection.execute(query, params, binary=True)
                return await cursor.fetchall() if cursor.description else []
            finally:
                await self._give_back(connection)

    async def transaction(self, work: Callable[[Run], Awaitable[T]], seconds: float | None = None) -> T:
        with _translated():
            connection = await self._take()
            connection.wait_timeout = seconds or self._options.read_timeout

            async def run(query: Query, params: Params | None = None) -> Rows:
                cursor = await connection.execute(query, params)
                return await cursor.fetchall() if cursor.description else []

            try:
                async with connection.transaction():
                    return await work(run)
            finally:
                await self._give_back(connection)

    async def warm(self, connections: int) -> None:
        taken: list[_AsyncConnection] = []
        try:
            with _translated():
                while len(taken) < connections:
                    taken.append(await self._take())
        finally:
            for connection in taken:
                await self._give_back(connection)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            await self._idle.pop().close()
