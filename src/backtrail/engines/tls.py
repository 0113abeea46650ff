"""Certificates: what is known before the first connection, and what a failed handshake means.

A handshake that fails will fail again: it is said at once, and not tried until the deadline. A connection that is
cut while it is made is another matter.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from backtrail.errors import InvalidInput

_CUT = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
#: How libpq puts it. "SSL SYSCALL error" and "SSL connection has been closed" are not among them: those were cut.
_BY_LIBPQ = ("certificate", "SSL was required", "SSL error: ", "private key", "server does not support SSL")


def checked_files(files: Mapping[str, str]) -> None:
    """Make sure that certificates and keys, by the names of their options, are files."""
    for option, file in files.items():
        if file and file != "system" and not Path(file).is_file():
            raise InvalidInput(f"{option}: there is no file {file!r}")


def handshake_failed(error: BaseException) -> bool:
    """Whether TLS was refused, by us or by them, according to an error or to one behind it."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError) and not isinstance(seen, _CUT):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def handshake_failed_by_libpq(text: str) -> bool:
    """The same, by what libpq says."""
    return any(phrase in text for phrase in _BY_LIBPQ)
