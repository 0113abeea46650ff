"""URLs of servers: what may be shown of one, and a strict check before a driver reads it.

A URL may hold a password, and a password with an unescaped `@`, `/` or `#` makes the rest of the URL mean something
else: drivers then quote parts of it in their errors. So a URL is checked here first, and a refusal quotes nothing of
it but the scheme.
"""

from __future__ import annotations

import re
from ipaddress import IPv6Address

from backtrail.errors import InvalidInput

_SERVER = r"(?s)(?P<scheme>[a-z][a-z0-9+.-]+)://(?P<rest>.*)"
_ESCAPES = r"%(?![0-9A-Fa-f]{2})"
_NAMES = r"(?a)[\w.~%-]*"  # of a host, which may be a directory of sockets in percent escapes
_LAST_PORT = 65535


def public_url(target: str) -> str:
    """A path or URL without user name, password and options, for messages and listings."""
    match = re.match(_SERVER, target)
    if match is None:
        return target.partition("?")[0]
    # The last @ of all: an unescaped /, ? or # in a password may make the true end of it hard to tell.
    shown = re.split("[?#]", match["rest"].rpartition("@")[2], maxsplit=1)[0]
    # What should be a host and is not may be the first half of a password.
    sound = all(map(_is_host, shown.partition("/")[0].split(",")))
    return f"{match['scheme']}://{shown if sound else '…'}"


def check_server_url(url: str) -> None:
    """Refuse a URL that is not `scheme://[user[:password]@]host[:port][,…]/…`, without quoting any of it."""
    match = re.fullmatch(_SERVER, url)
    if match is None:
        scheme = url.partition(":")[0]
        raise InvalidInput(f"the URL of a {scheme}: store begins with {scheme}://, and then names a host")
    scheme = match["scheme"]
    rest = match["rest"].partition("?")[0]
    authority, _, path = rest.partition("/")
    login, _, hosts = authority.rpartition("@")
    problem = None
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        problem = "it holds a space or a control character"
    elif "#" in url or "@" in login or "@" in path or re.search(r"[\[\]]", login):
        problem = "a user name or password in it holds @, /, #, [ or ] as such"
    elif re.search(_ESCAPES, rest):
        problem = "it holds a % that two hexadecimal digits do not follow"
    elif not all(map(_is_host, hosts.split(","))):
        problem = "what should be host:port is not"
    if problem is not None:
        raise InvalidInput(
            f"the URL of this {scheme}: store is malformed: {problem}. "
            "Write such characters of a user name or password as %40 (@), %2F (/), %23 (#), %5B, %5D, %25 (%)"
        )


def _is_host(text: str) -> bool:
    """True for `name`, `name:port`, `[IPv6]` and `[IPv6]:port`; the name may be empty, for a socket."""
    if text.startswith("["):
        address, closed, port = text[1:].partition("]")
        try:
            IPv6Address(address)
        except ValueError:
            return False
        return bool(closed) and (not port or (port[0] == ":" and _is_port(port[1:])))
    name, colon, port = text.partition(":")
    return bool(re.fullmatch(_NAMES, name)) and (not colon or _is_port(port))


def _is_port(text: str) -> bool:
    return not text or (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= _LAST_PORT)
