"""TLS: certificate files are checked before the first connection; a failed handshake is distinguished from a cut one.

A handshake that fails will fail again, so it is reported at once and not retried. A connection that is cut during the
handshake is retried.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from backtrail.errors import InvalidInput

_CUT = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
#: libpq's wording. "SSL SYSCALL error" and "SSL connection has been closed" are not listed: they mean a cut connection.
_BY_LIBPQ = ("certificate", "SSL was required", "SSL error: ", "private key", "server does not support SSL")


def checked_files(files: Mapping[str, str]) -> None:
    """Raise `InvalidInput` unless each of these certificates and keys (option name -> path) is a file."""
    for option, file in files.items():
        if file and file != "system" and not Path(file).is_file():
            raise InvalidInput(f"{option}: there is no file {file!r}")


def handshake_failed(error: BaseException) -> bool:
    """True if an error, or one of its causes, says that either side refused the TLS handshake."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ssl.SSLError) and not isinstance(seen, _CUT):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


def handshake_failed_by_libpq(text: str) -> bool:
    """The same, for an error message of libpq."""
    return any(phrase in text for phrase in _BY_LIBPQ)
