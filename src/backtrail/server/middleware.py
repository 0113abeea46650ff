"""Who may ask: the checks that stand before every request, as ASGI middleware.

* the `Host` must be one of ours, or a page on a hostile name that resolves to this machine could read the store;
* the `Origin`, where a browser sends one, must be ours, so that no other site can send requests in its name;
* every call of the API needs the token in a header. There are no cookies, so nothing is sent along by itself;
* in read-only mode nothing that changes the store is let through, and no body is larger than the limit.

The page may load its own scripts and styles and nothing else, and is never put into another page's frame.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 16 * 1024 * 1024
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
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
    """A body over the limit: reading stops at once."""


class GuardMiddleware:
    """Lets a request through, or answers it with a refusal."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        hosts: Iterable[str] = LOCAL,
        read_only: bool = False,
        max_body: int = MAX_BODY,
    ) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = frozenset(host.casefold() for host in hosts)
        self._read_only = read_only
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *HEADERS]}
            await send(message)

        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refuse(scope, headers)
        if refusal is None:
            try:
                await self._app(scope, self._limited(receive), secured)
                return
            except BodyTooLarge:
                refusal = 413, "TooLarge", f"the body is larger than {self._max_body:,} bytes"
        await _answer(secured, *refusal)

    def _refuse(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str, str] | None:
        host = headers.get("host", "")
        name = urlsplit(f"//{host}").hostname if host else None
        if name is None or name.casefold() not in self._hosts:
            return 421, "WrongHost", "this server does not answer to that host name"
        origin = headers.get("origin")
        if origin is not None and origin.casefold() != f"{scope['scheme']}://{host}".casefold():
            return 403, "WrongOrigin", "requests from other sites are refused"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "WrongOrigin", "requests from other sites are refused"
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._max_body:
            return 413, "TooLarge", f"the body is larger than {self._max_body:,} bytes"
        if not scope["path"].startswith("/api/"):
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token):
            return (
                401,
                "WrongToken",
                "this call needs the header Authorization: Bearer <token>; `backtrail ui` prints the token",
            )
        if scope["method"] not in ("GET", "HEAD"):
            if self._read_only:
                return 403, "ReadOnly", "the inspector was started read-only"
            if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                return 415, "WrongType", "send the parameters as application/json"
        return None

    def _limited(self, receive: Receive) -> Receive:
        """The body without a declared length is counted as it comes in."""
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._max_body:
                raise BodyTooLarge
            return message

        return counted


async def _answer(send: Any, status: int, kind: str, message: str) -> None:
    body = json.dumps({"error": {"type": kind, "message": message}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
