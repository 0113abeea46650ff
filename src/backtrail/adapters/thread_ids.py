"""Thread ids made of parts: several ids of a framework in the one id of a backtrail thread.

Parts are joined with `/`; a `/`, `%` or NUL inside a part is written like in a URL. So a part may be any string, two
different lists of parts never give the same id, and ids that begin with the same parts have a common prefix.
"""

from __future__ import annotations

_ESCAPES = {ord("%"): "%25", ord("/"): "%2F", 0: "%00"}


def escape_part(part: str) -> str:
    """A part in its escaped form."""
    return part.translate(_ESCAPES)


def unescape_part(escaped: str) -> str:
    """The inverse of `escape_part`."""
    return escaped.replace("%2F", "/").replace("%00", "\0").replace("%25", "%")


def join_parts(*parts: str) -> str:
    """The id that consists of these parts."""
    return "/".join(map(escape_part, parts))


def split_parts(thread_id: str) -> list[str]:
    """The parts of an id."""
    return [unescape_part(part) for part in thread_id.split("/")]
