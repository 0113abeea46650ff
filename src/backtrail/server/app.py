"""The Starlette application: the API from the table of operations, the page, and the security middleware."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import iterate_in_threadpool, run_in_threadpool
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
    OverBudget,
    Store,
    ThreadInfo,
    Unavailable,
    __version__,
)
from backtrail.render.error_hints import with_cli_hints
from backtrail.render.jsonable import json_bytes
from backtrail.server.handlers import Handlers
from backtrail.server.middleware import BODY_SECONDS, LOCAL, MAX_BODY, SecurityMiddleware
from backtrail.server.one_time_codes import OneTimeCodes
from backtrail.server.requests import (
    ApiRequest,
    EmptyRequest,
    ExportRequest,
    FindRequest,
    ImageRequest,
    OpenRequest,
    TreeRequest,
)
from backtrail.server.routes import OPERATIONS, ROOT, Operation, openapi
from backtrail.server.sse import WATCHED_THREADS, ThreadWatcher

STATIC = Path(__file__).parent / "static"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_STATUS: list[tuple[type[BacktrailError], int]] = [
    (NotFound, 404),
    (InvalidInput, 400),
    (Conflict, 409),
    (LockTimeout, 409),
    (OverBudget, 413),
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
    body_seconds: float = BODY_SECONDS,
    metrics: bool = False,
) -> Starlette:
    """The inspector of a store. `hosts` are the host names it accepts. Without a `token` one is generated; it is
    `application.state.token`. A link `/#code=…` with a code from `application.state.codes` opens the page, once.
    `metrics`: answer `/metrics` in the text format of Prometheus, with the token."""
    token = token or secrets.token_urlsafe(32)
    handlers = Handlers(store, name=name, read_only=read_only)
    codes = OneTimeCodes(token)

    def poll() -> list[ThreadInfo]:
        handlers.health.watch_size()
        return store.threads(limit=WATCHED_THREADS, newest_first=True)

    watcher = ThreadWatcher(poll)
    pages = [*_pages(), Route("/open", _open(codes), methods=["POST"])]
    routes = [Route(ROOT + op.path, _endpoint(handlers, op), methods=[op.method]) for op in OPERATIONS]
    routes += [
        Route(f"{ROOT}/export", _export(handlers)),
        Route(f"{ROOT}/find", _find(handlers)),
        Route(f"{ROOT}/file", _file(handlers)),
        Route(f"{ROOT}/image", _image(handlers)),
        Route(f"{ROOT}/events", _events(watcher)),
        Route(f"{ROOT}/openapi.json", _openapi),
        *pages,
    ]
    if metrics:
        routes.append(Route("/metrics", _metrics(handlers)))
    security = Middleware(
        SecurityMiddleware,
        token=token,
        public=[route.path for route in pages],
        hosts=hosts,
        read_only=read_only,
        max_body=max_body,
        body_seconds=body_seconds,
    )
    exception_handlers: dict[Any, Any] = {
        BacktrailError: _on_error,
        HTTPException: _on_http_error,
    }
    app = Starlette(routes=routes, middleware=[security], exception_handlers=exception_handlers)
    app.state.token = token
    app.state.codes = codes
    app.state.watcher = watcher
    return app


def _pages() -> list[Route]:
    """One route per file of the page: a request's path never becomes a path of the file system."""
    routes = []
    for file in sorted(STATIC.rglob("*")):
        if file.suffix in _TYPES:
            path = "/" if file.name == "index.html" else f"/{file.relative_to(STATIC).as_posix()}"
            routes.append(Route(path, _page(file)))
    return routes


def _page(file: Path) -> Any:
    async def page(_: Request) -> Response:
        return FileResponse(file, media_type=_TYPES[file.suffix])

    return page


def _endpoint(handlers: Handlers, op: Operation) -> Any:
    request_type = op.request_type

    async def endpoint(request: Request) -> Response:
        parameters = _body(await request.body(), request_type) if op.writes else _query(request, request_type)
        return _json(await run_in_threadpool(op.call, handlers, parameters))

    return endpoint


def _body(body: bytes, type: type[ApiRequest]) -> Any:
    """The parameters in a JSON body."""
    try:
        return msgspec.json.decode(body, type=type)
    except (ValueError, RecursionError) as error:  # also for numbers and nesting that Python has limits for
        raise InvalidInput(_reword(str(error))) from error


def _query(request: Request, type: type[ApiRequest]) -> Any:
    """The parameters in a query string."""
    try:
        return msgspec.convert(dict(request.query_params), type, strict=False)
    except ValueError as error:
        raise InvalidInput(_reword(str(error))) from error


def _open(codes: OneTimeCodes) -> Any:
    async def open_(request: Request) -> Response:
        token = codes.exchange(_body(await request.body(), OpenRequest).code)
        if token is None:
            return _error_response("WrongCode", "this link was used already: `backtrail ui` prints the next one", 403)
        return _json({"token": token})

    return open_


def _export(handlers: Handlers) -> Any:
    async def export(request: Request) -> Response:
        media, text = await run_in_threadpool(handlers.export, _query(request, ExportRequest))
        return Response(text, media_type=media, headers={"content-disposition": "attachment"})

    return export


def _metrics(handlers: Handlers) -> Any:
    async def metrics(request: Request) -> Response:
        _query(request, EmptyRequest)
        text = await run_in_threadpool(handlers.health.metrics)
        return Response(text, media_type="text/plain; version=0.0.4")

    return metrics


def _find(handlers: Handlers) -> Any:
    async def find(request: Request) -> Response:
        matches = handlers.find(_query(request, FindRequest))  # refuses what is not clear before anything is sent
        lines = (json_bytes(match) + b"\n" for match in matches)
        return StreamingResponse(iterate_in_threadpool(lines), media_type="application/x-ndjson")

    return find


def _file(handlers: Handlers) -> Any:
    async def file(request: Request) -> Response:
        content = await run_in_threadpool(handlers.file, _query(request, TreeRequest))
        headers = {"content-disposition": "attachment"}  # a stored page must not become a page of this site
        return Response(content, media_type="application/octet-stream", headers=headers)

    return file


def _image(handlers: Handlers) -> Any:
    async def image(request: Request) -> Response:
        found = await run_in_threadpool(handlers.image, _query(request, ImageRequest))
        return Response(found.data, media_type=found.media_type)

    return image


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
    return _error_response(type(error).__name__, with_cli_hints(str(error)), status)


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
