"""One-time codes, by which a link opens the inspector without carrying the token.

A link ends up in the history of a browser, in the arguments of the program that opens it, and in the scrollback and
the logs of a terminal. So it carries a code instead, which the page exchanges for the token, once.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable

_MOST = 1000  # codes that are not used yet; beyond that, the oldest is forgotten


class OneTimeCodes:
    """Codes that each buy the token once. `on_used` is called after that, for example to print the next link."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._digests: dict[bytes, None] = {}  # in the order in which they were made
        self._lock = threading.Lock()
        self.on_used: Callable[[], object] | None = None

    def make(self) -> str:
        """A new code."""
        code = secrets.token_urlsafe(24)
        with self._lock:
            self._digests[_digest(code)] = None
            while len(self._digests) > _MOST:
                del self._digests[next(iter(self._digests))]
        return code

    def exchange(self, code: str) -> str | None:
        """The token for a code that was not used yet; None for any other."""
        with self._lock:
            # Digests are compared, so the time that a lookup takes says nothing of a code.
            if _digest(code) not in self._digests:
                return None
            del self._digests[_digest(code)]
        if self.on_used is not None:
            self.on_used()
        return self._token


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).digest()
