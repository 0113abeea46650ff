"""Running the application: uvicorn on a socket that is bound already, which lets its listeners go when it stops."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from starlette.applications import Starlette


class Server(uvicorn.Server):
    """Ends the open streams of events first: they would otherwise hold up the stop, and end in a traceback."""

    def __init__(self, app: Starlette) -> None:
        quiet = {"log_level": "warning", "access_log": False, "server_header": False, "lifespan": "off", "ws": "none"}
        super().__init__(uvicorn.Config(app, timeout_graceful_shutdown=2, **quiet))  # type: ignore[arg-type]
        self._let_go = app.state.watch.stop

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._let_go()
        await super().shutdown(sockets)
