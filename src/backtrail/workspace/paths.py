"""Paths inside a workspace: bytes, relative to its root, separated by slashes. A folder's path ends in a slash.

A path that comes from the store is untrusted: `check_names` refuses every name that could lead out of the root, into
version control, or into what a coding agent runs. It is the only such check, and whatever is written to a directory
passes it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence

from backtrail.errors import UnsafePath

MAX_NAME = 255
NOT_NAMES = frozenset({b"", b".", b".."})  # names that no file can have

#: Where version control keeps its own state. Never read, never written, in any spelling that a file system may take
#: for one of these: HFS+ ignores case and some characters without width; NTFS ignores case, trailing dots and spaces,
#: has short names such as GIT~1, takes a backslash for a slash, and names the same directory with a stream after it
#: (`.git::$INDEX_ALLOCATION`). git refuses these spellings of `.git` on every system: a directory may be copied.
VERSION_CONTROL = (".git", ".hg", ".svn", ".bzr", ".jj", ".sl", ".pijul", "_darcs")

#: Where coding agents keep the settings, hooks and permissions of a project: commands in them are run. The same holds.
CODING_AGENTS = (".claude", ".codex", ".gemini", ".opencode")

_IGNORED_BY_HFS = re.compile(  # U+200C to U+200F, U+202A to U+202E, U+206A to U+206F, U+FEFF, in UTF-8
    rb"\xe2\x80[\x8c-\x8f\xaa-\xae]|\xe2\x81[\xaa-\xaf]|\xef\xbb\xbf"
)


def _spelled(names: Sequence[str]) -> re.Pattern[bytes]:
    """Finds any of the names, in a path or several joined ones, in any spelling."""
    short = [f"{name[1:]}~1" for name in names if name.startswith(".")]
    spellings = "|".join(re.escape(name) for name in (*names, *short))
    return re.compile(rf"(?:\A|[/\\])(?:{spellings})[ .]*(?:[:\\/]|\Z)".encode(), re.IGNORECASE)


_OF_VERSION_CONTROL = _spelled(VERSION_CONTROL)
_OFF_LIMITS = _spelled([*VERSION_CONTROL, *CODING_AGENTS])

_ENCODING, _ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


def check_names(names: Sequence[bytes], where: str) -> None:
    """Refuse any name that is not the plain name of one file: `UnsafePath`."""
    if _are_safe(names):
        return
    for name in names:
        if name in NOT_NAMES or b"/" in name or b"\0" in name or len(name) > MAX_NAME:
            raise UnsafePath(f"{where} holds the name {name!r}, which could lead out of the root; nothing was written")
        if is_off_limits(name):
            owner = "version control" if is_version_control(name) else "a coding agent"
            raise UnsafePath(f"{where} holds {name!r}, which belongs to {owner}; nothing was written")


def _are_safe(names: Sequence[bytes]) -> bool:
    """True if every name is safe: a few tests of all names joined are faster than several tests of each."""
    joined = b"/".join(names)
    return (
        joined.count(b"/") == max(len(names) - 1, 0)
        and b"\0" not in joined
        and max(map(len, names), default=0) <= MAX_NAME
        and NOT_NAMES.isdisjoint(names)
        and not is_off_limits(joined)
    )


def is_off_limits(name: bytes) -> bool:
    """True if a name, or any of several joined by slashes, is version control's or a coding agent's own, or is on some
    file system."""
    return _OFF_LIMITS.search(_plain(name)) is not None


def is_version_control(name: bytes) -> bool:
    """True if it is version control's."""
    return _OF_VERSION_CONTROL.search(_plain(name)) is not None


def _plain(name: bytes) -> bytes:
    return name if name.isascii() else _IGNORED_BY_HFS.sub(b"", name)


def parents(path: bytes) -> Iterable[bytes]:
    """The directories above a path, outermost first: b"a/b/c" has b"a" and b"a/b"."""
    at = path.find(b"/")
    while at >= 0:
        yield path[:at]
        at = path.find(b"/", at + 1)


def all_parents(paths: Iterable[bytes]) -> set[bytes]:
    """The directories above any of the paths."""
    found: set[bytes] = set()
    for path in paths:
        at = path.rfind(b"/")
        while at >= 0 and path[:at] not in found:
            found.add(path[:at])
            at = path.rfind(b"/", 0, at)
    return found


def folder_of(path: bytes) -> bytes:
    """The folder that holds a file or a folder: b"a/" for b"a/b" and for b"a/b/", b"" for the root."""
    return path[: path.rfind(b"/", 0, len(path) - 1) + 1]


def to_text(path: bytes) -> str:
    """A path as users get it, like `os.fsdecode`: undecodable bytes survive a round trip."""
    return path.decode(_ENCODING, _ERRORS)


def to_utf8(path: bytes) -> str:
    """A path as valid UTF-8, for records and output: undecodable bytes are written as escapes."""
    return path.decode("utf-8", "backslashreplace")
