"""Names made of parts: how an adapter tells several ids of a framework in the one id of a backtrail thread.

Parts are joined with `/`; a `/`, `%` or NUL inside a part is written like in a URL. So any id is possible, no two
different lists of parts meet in one name, and all names that begin with the same parts have a common prefix.
"""

from __future__ import annotations

_ESCAPES = {ord("%"): "%25", ord("/"): "%2F", 0: "%00"}


def escape(part: str) -> str:
    """A part as it stands in a name."""
    return part.translate(_ESCAPES)


def unescape(part: str) -> str:
    """What `escape` was given."""
    return part.replace("%2F", "/").replace("%00", "\0").replace("%25", "%")


def join(*parts: str) -> str:
    """The name of these parts."""
    return "/".join(map(escape, parts))


def split(name: str) -> list[str]:
    """The parts of a name."""
    return [unescape(part) for part in name.split("/")]
