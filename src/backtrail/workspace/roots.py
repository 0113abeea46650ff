"""Roots of workspaces: which directories may be one, and what a workspace of one is called."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from blake3 import blake3

from backtrail.errors import FilesError, InvalidInput
from backtrail.history.validation import check_name
from backtrail.workspace.paths import to_utf8

PREFIX = "workspace:"  # of the ids of threads that keep snapshots


def check_root(root: Any) -> bytes:
    """The real path of a directory, which must be fit to be a workspace."""
    if not isinstance(root, str | bytes | os.PathLike) or not os.fspath(root):
        raise InvalidInput(f"workspace() takes a directory, not {root!r}")
    real = os.path.realpath(os.fsencode(root))
    if not os.path.isdir(real):
        raise FilesError(real, "it is not a directory: make it first")
    for home in {os.path.realpath(home) for home in _homes()} | {b"/"}:
        if home == real or home.startswith(real.rstrip(b"/") + b"/"):
            what = "the file system's root" if home == b"/" else "a home directory, or above one"
            raise InvalidInput(f"{os.fsdecode(real)!r} is {what}: a workspace must be a directory of its own")
    return real


def _homes() -> set[bytes]:
    """The user's home directories, by the environment and by the system; in a container there may be none."""
    found = {os.path.expanduser(b"~")} - {b"~"}
    with suppress(KeyError):
        found.add(os.fsencode(pwd.getpwuid(os.geteuid()).pw_dir))
    return found


def thread_name(real: bytes | None, name: str | None) -> str:
    """The id of the workspace's thread: from the given name, or from the directory's real path."""
    if name is not None or real is None:
        return PREFIX + check_name(name, "workspace name")
    text = to_utf8(real)
    return PREFIX + (text if len(text) <= 400 else f"{text[:300]}…{blake3(real).hexdigest(16)}")


def cache_file(cache: str | os.PathLike[str] | Literal[False] | None, real: bytes, name: str) -> Path | None:
    """The file that keeps the index, or None: it is never inside the directory itself."""
    if cache is False:
        return None
    if cache is None:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        if not os.path.isabs(base):
            return None  # the home directory is unknown
        cache = os.path.join(base, "backtrail")
    folder = Path(cache)
    if (os.path.realpath(os.fsencode(folder)) + b"/").startswith(real + b"/"):
        return None
    return folder / f"{blake3(real + bytes(1) + name.encode()).hexdigest(20)}.index"
