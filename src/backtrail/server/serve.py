"""Runs the application: uvicorn on a socket that is already bound."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from starlette.applications import Starlette


class Server(uvicorn.Server):
    """A uvicorn server that ends open event streams before it stops: they would delay it, and end in a traceback."""

    def __init__(self, app: Starlette) -> None:
        quiet = {"log_level": "warning", "access_log": False, "server_header": False, "lifespan": "off", "ws": "none"}
        super().__init__(uvicorn.Config(app, timeout_graceful_shutdown=2, **quiet))  # type: ignore[arg-type]
        self._stop_watcher = app.state.watcher.stop

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._stop_watcher()
        await super().shutdown(sockets)
