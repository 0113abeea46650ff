"""The Starlette application: the API from the table of operations, the page, and the security middleware."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from backtrail import (
    BacktrailError,
    Conflict,
    InvalidInput,
    LockTimeout,
    NotFound,
    Store,
    Unavailable,
    __version__,
)
from backtrail.render.error_hints import with_cli_hints
from backtrail.render.jsonable import json_bytes
from backtrail.server.handlers import Handlers
from backtrail.server.middleware import LOCAL, MAX_BODY, SecurityMiddleware
from backtrail.server.requests import ApiRequest, EmptyRequest, ExportRequest
from backtrail.server.routes import OPERATIONS, ROOT, Operation, openapi
from backtrail.server.sse import WATCHED_THREADS, ThreadWatcher

STATIC = Path(__file__).parent / "static"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_STATUS: list[tuple[type[BacktrailError], int]] = [
    (NotFound, 404),
    (InvalidInput, 400),
    (Conflict, 409),
    (LockTimeout, 409),
    (Unavailable, 503),
    (BacktrailError, 500),
]


# msgspec's messages in the words of the API's documentation.
_MESSAGES = {
    r"^Object missing required field (`\w+`)": r"the parameter \1 is missing",
    r"^Object contains unknown field (`.+?`)": r"there is no parameter \1",
    r"^(.+) - at `\$\.(.+)`$": r"the parameter `\2`: \1",
}


def application(
    store: Store,
    *,
    token: str | None = None,
    name: str = "store",
    hosts: Iterable[str] = LOCAL,
    read_only: bool = False,
    max_body: int = MAX_BODY,
) -> Starlette:
    """The inspector of a store. `hosts` are the host names it accepts. Without a `token` one is generated; it is
    `application.state.token`."""
    token = token or secrets.token_urlsafe(32)
    handlers = Handlers(store, name=name, read_only=read_only)
    watcher = ThreadWatcher(lambda: store.threads(limit=WATCHED_THREADS, newest_first=True))
    routes = [Route(ROOT + op.path, _endpoint(handlers, op), methods=[op.method]) for op in OPERATIONS]
    routes += [
        Route(f"{ROOT}/export", _export(handlers)),
        Route(f"{ROOT}/events", _events(watcher)),
        Route(f"{ROOT}/openapi.json", _openapi),
        *_pages(),
    ]
    security = Middleware(SecurityMiddleware, token=token, hosts=hosts, read_only=read_only, max_body=max_body)
    exception_handlers: dict[Any, Any] = {
        BacktrailError: _on_error,
        msgspec.ValidationError: _on_error,
        msgspec.DecodeError: _on_error,
        HTTPException: _on_http_error,
    }
    app = Starlette(routes=routes, middleware=[security], exception_handlers=exception_handlers)
    app.state.token = token
    app.state.watcher = watcher
    return app


def _pages() -> list[Route]:
    """One route per file of the page: a request's path never becomes a path of the file system."""
    routes = []
    for file in sorted(STATIC.iterdir()):
        if file.suffix in _TYPES:
            path = "/" if file.name == "index.html" else f"/{file.name}"
            routes.append(Route(path, _page(file)))
    return routes


def _page(file: Path) -> Any:
    async def page(_: Request) -> Response:
        return FileResponse(file, media_type=_TYPES[file.suffix])

    return page


def _endpoint(handlers: Handlers, op: Operation) -> Any:
    request_type = op.request_type

    async def endpoint(request: Request) -> Response:
        if op.writes:
            parameters = msgspec.json.decode(await request.body(), type=request_type)
        else:
            parameters = _query(request, request_type)
        return _json(await run_in_threadpool(op.call, handlers, parameters))

    return endpoint


def _query(request: Request, type: type[ApiRequest]) -> Any:
    return msgspec.convert(dict(request.query_params), type, strict=False)


def _export(handlers: Handlers) -> Any:
    async def export(request: Request) -> Response:
        media, text = await run_in_threadpool(handlers.export, _query(request, ExportRequest))
        return Response(text, media_type=media, headers={"content-disposition": "attachment"})

    return export


def _events(watcher: ThreadWatcher) -> Any:
    async def events(request: Request) -> Response:
        _query(request, EmptyRequest)
        return StreamingResponse(watcher.listen(), media_type="text/event-stream")

    return events


async def _openapi(_: Request) -> Response:
    return _json(openapi(__version__))


def _json(value: Any, status: int = 200) -> Response:
    return Response(json_bytes(value), status, media_type="application/json")


async def _on_error(_: Request, error: Exception) -> Response:
    status = next((code for kind, code in _STATUS if isinstance(error, kind)), 400)
    if isinstance(error, BacktrailError):
        return _error_response(type(error).__name__, with_cli_hints(str(error)), status)
    return _error_response("InvalidInput", _reword(str(error)), status)


async def _on_http_error(request: Request, error: HTTPException) -> Response:
    where = f"{request.method} {request.url.path}"
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        return _error_response("WrongMethod", f"{where} is not answered: use {allowed}", 405, error.headers)
    return _error_response("NoSuchPath", f"there is nothing at {where}: {ROOT}/openapi.json lists what there is", 404)


def _error_response(kind: str, message: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    response = _json({"error": {"type": kind, "message": message}}, status)
    response.headers.update(headers or {})
    return response


def _reword(message: str) -> str:
    """A validation error in the words of the API's documentation."""
    for pattern, replacement in _MESSAGES.items():
        message = re.sub(pattern, replacement, message)
    return message
