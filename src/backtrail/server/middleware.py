"""ASGI middleware that checks every request before the application sees it.

* `Host` must be one of ours: else a hostile name that resolves to this machine could read the store (DNS rebinding);
* `Origin`, if a browser sends one, must be ours, so that no other site can send requests;
* whatever is not `public` (the files of the page) needs the token in a header: a path that was forgotten, or that an
  application around this one has changed, is closed and not open. There are no cookies, so a browser sends nothing by
  itself;
* in read-only mode every call that changes the store is refused; bodies that are too large or too slow are refused.

The response headers allow the page its own scripts and styles only, and forbid framing it.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 16 * 1024 * 1024
BODY_SECONDS = 20.0  # without a byte of the body
_NUMBER = re.compile(r"[0-9]{1,18}")  # str.isdigit() knows digits that int() does not
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:@/\s]+)(:[0-9]{0,5})?")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
    (b"cache-control", b"no-store"),
]
LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})


class BodyTooLarge(Exception):
    """A request body over the limit."""


class BodyTooSlow(Exception):
    """A request body of which nothing came for too long."""


def _path(scope: Scope) -> str:
    """The path below the place at which another application has mounted this one."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


class SecurityMiddleware:
    """Passes a request on, or answers it with an error."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        public: Iterable[str],
        hosts: Iterable[str] = LOCAL,
        read_only: bool = False,
        max_body: int = MAX_BODY,
        body_seconds: float = BODY_SECONDS,
    ) -> None:
        self._app = app
        self._public = frozenset(public)
        self._token = token.encode()
        self._hosts = frozenset(host.casefold() for host in hosts)
        self._read_only = read_only
        self._max_body = max_body
        self._body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *HEADERS]}
            await send(message)

        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        error = self._check(scope, headers)
        if error is None:
            try:
                await self._app(scope, self._limit_body(receive), send_secured)
                return
            except BodyTooLarge:
                error = 413, "TooLarge", f"the body is larger than {self._max_body:,} bytes"
            except BodyTooSlow:
                error = 408, "TooSlow", f"nothing of the body came for {self._body_seconds:g} seconds"
        await _send_error(send_secured, *error)

    def _check(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str, str] | None:
        host = headers.get("host", "")
        if _host_name(host) not in self._hosts:
            return 421, "WrongHost", "this server does not answer to that host name"
        origin = headers.get("origin")
        if origin is not None and origin.casefold() != f"{scope['scheme']}://{host}".casefold():
            return 403, "WrongOrigin", "requests from other sites are refused"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "WrongOrigin", "requests from other sites are refused"
        length = headers.get("content-length", "0")
        if not _NUMBER.fullmatch(length):
            return 400, "InvalidInput", "Content-Length is no number"
        if int(length) > self._max_body:
            return 413, "TooLarge", f"the body is larger than {self._max_body:,} bytes"
        if _path(scope) in self._public:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token):
            return (
                401,
                "WrongToken",
                "this call needs the header Authorization: Bearer <token>, "
                "with the token that `backtrail ui` found in BACKTRAIL_UI_TOKEN or in its --token-file",
            )
        if scope["method"] not in ("GET", "HEAD"):
            if self._read_only:
                return 403, "ReadOnly", "the inspector was started read-only"
            if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                return 415, "WrongType", "send the parameters as application/json"
        return None

    def _limit_body(self, receive: Receive) -> Receive:
        """Count the body as it comes in, because its length need not be declared, and do not wait for ever."""
        received, complete = 0, False

        async def counted() -> Message:
            nonlocal received, complete
            if complete:
                return await receive()  # waits until the client is gone, however long that takes
            try:
                async with asyncio.timeout(self._body_seconds):
                    message = await receive()
            except TimeoutError:
                raise BodyTooSlow from None
            complete = not message.get("more_body", False)
            received += len(message.get("body", b""))
            if received > self._max_body:
                raise BodyTooLarge
            return message

        return counted


def _host_name(host: str) -> str | None:
    """The name in a Host header, without port and brackets; None if it is malformed."""
    match = _HOST.fullmatch(host)
    return match[1].strip("[]").casefold() if match is not None else None


async def _send_error(send: Any, status: int, kind: str, message: str) -> None:
    body = json.dumps({"error": {"type": kind, "message": message}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
