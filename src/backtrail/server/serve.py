"""Runs the application: uvicorn on a socket that is already bound, with limits on slow and on many connections."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

if TYPE_CHECKING:
    from starlette.applications import Starlette

HEADER_SECONDS = 10.0  # that a client may take to send the head of a request, from its first byte or the connection on
IDLE_SECONDS = 15  # that a connection stays open without a request
MAX_HEADER = 64 * 1024
MAX_CONNECTIONS = 500


class _TimedProtocol(H11Protocol):
    """HTTP/1.1 that closes a connection whose request does not arrive: uvicorn itself would wait for ever."""

    _deadline: asyncio.TimerHandle | None = None
    header_seconds = HEADER_SECONDS

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._set_deadline()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            self._clear_deadline()  # a request has arrived
        elif self._deadline is None and not self.transport.is_closing():
            self._set_deadline()  # part of one

    def connection_lost(self, exc: Exception | None) -> None:
        self._clear_deadline()
        super().connection_lost(exc)

    def _set_deadline(self) -> None:
        self._deadline = self.loop.call_later(self.header_seconds, self.transport.close)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class Server(uvicorn.Server):
    """A uvicorn server that ends open event streams before it stops: they would delay it, and end in a traceback."""

    def __init__(self, app: Starlette, *, header_seconds: float = HEADER_SECONDS) -> None:
        protocol = type("TimedProtocol", (_TimedProtocol,), {"header_seconds": header_seconds})
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,
                ws="none",
                lifespan="off",
                log_level="warning",
                access_log=False,  # a line of it would hold the address, with whatever was searched for
                server_header=False,
                h11_max_incomplete_event_size=MAX_HEADER,
                timeout_keep_alive=IDLE_SECONDS,
                timeout_graceful_shutdown=2,
                limit_concurrency=MAX_CONNECTIONS,
            )
        )
        self._stop_watcher = app.state.watcher.stop

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._stop_watcher()
        await super().shutdown(sockets)
