"""The application: routes made of the table of operations, the page, and the guard before all of it."""

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
from backtrail.render.hints import advised
from backtrail.render.jsonable import json_bytes
from backtrail.server.handlers import Handlers
from backtrail.server.middleware import LOCAL, MAX_BODY, GuardMiddleware
from backtrail.server.requests import Ask, AskExport, AskNothing
from backtrail.server.routes import OPERATIONS, ROOT, Operation, openapi
from backtrail.server.sse import NEWEST, Watch

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


_WORDS = {
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
    """The inspector of a store. `hosts` are the names it answers to; `token` is made up where none is given, and is
    then `application.state.token`."""
    token = token or secrets.token_urlsafe(32)
    desk = Handlers(store, name=name, read_only=read_only)
    watch = Watch(lambda: store.threads(limit=NEWEST, newest_first=True))
    routes = [Route(ROOT + op.path, _endpoint(desk, op), methods=[op.method]) for op in OPERATIONS]
    routes += [
        Route(f"{ROOT}/export", _export(desk)),
        Route(f"{ROOT}/events", _events(watch)),
        Route(f"{ROOT}/openapi.json", _document),
        *_pages(),
    ]
    guard = Middleware(GuardMiddleware, token=token, hosts=hosts, read_only=read_only, max_body=max_body)
    handlers: dict[Any, Any] = {
        BacktrailError: _refused,
        msgspec.ValidationError: _refused,
        msgspec.DecodeError: _refused,
        HTTPException: _no_such_path,
    }
    app = Starlette(routes=routes, middleware=[guard], exception_handlers=handlers)
    app.state.token = token
    app.state.watch = watch
    return app


def _pages() -> list[Route]:
    """One route per file of the page: no path of a request is ever a path of the file system."""
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


def _endpoint(desk: Handlers, op: Operation) -> Any:
    asked = op.asked

    async def endpoint(request: Request) -> Response:
        parameters = msgspec.json.decode(await request.body(), type=asked) if op.writes else _query(request, asked)
        return _json(await run_in_threadpool(op.call, desk, parameters))

    return endpoint


def _query(request: Request, asked: type[Ask]) -> Any:
    return msgspec.convert(dict(request.query_params), asked, strict=False)


def _export(desk: Handlers) -> Any:
    async def export(request: Request) -> Response:
        media, text = await run_in_threadpool(desk.export, _query(request, AskExport))
        return Response(text, media_type=media, headers={"content-disposition": "attachment"})

    return export


def _events(watch: Watch) -> Any:
    async def events(request: Request) -> Response:
        _query(request, AskNothing)
        return StreamingResponse(watch.listen(), media_type="text/event-stream")

    return events


async def _document(_: Request) -> Response:
    return _json(openapi(__version__))


def _json(value: Any, status: int = 200) -> Response:
    return Response(json_bytes(value), status, media_type="application/json")


async def _refused(_: Request, error: Exception) -> Response:
    status = next((code for kind, code in _STATUS if isinstance(error, kind)), 400)
    if isinstance(error, BacktrailError):
        return _refusal(type(error).__name__, advised(str(error)), status)
    return _refusal("InvalidInput", _parameters(str(error)), status)


async def _no_such_path(request: Request, error: HTTPException) -> Response:
    where = f"{request.method} {request.url.path}"
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        return _refusal("WrongMethod", f"{where} is not answered: use {allowed}", 405, error.headers)
    return _refusal("NoSuchPath", f"there is nothing at {where}: {ROOT}/openapi.json lists what there is", 404)


def _refusal(kind: str, message: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    answer = _json({"error": {"type": kind, "message": message}}, status)
    answer.headers.update(headers or {})
    return answer


def _parameters(message: str) -> str:
    """What is wrong with a request, in the words of its documentation."""
    for theirs, ours in _WORDS.items():
        message = re.sub(theirs, ours, message)
    return message
