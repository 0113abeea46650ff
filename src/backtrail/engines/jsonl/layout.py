"""The directory of a JSONL store: `backtrail.json` marks it as one. Any other directory with files is refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec

from backtrail.engines.jsonl import line_format
from backtrail.engines.lockfile import LockFile
from backtrail.errors import DECODE_ERRORS, NotFound, UnsupportedFormat
from backtrail.owned_files import make_directories, read_bytes, replace_atomically, require_directory


def directory_of_a_store(directory: Path, *, create: bool, start: Callable[[], None]) -> None:
    """Refuse a directory that holds anything else, untouched; make a store in an empty one (`start` writes its first
    files)."""
    marker = directory / "backtrail.json"
    if not directory.exists() and create:
        require_directory(directory.parent)
        make_directories(directory)
    if directory.exists() and not directory.is_dir():
        raise UnsupportedFormat(f"{directory} is not a backtrail store: it is not a directory; choose another path")
    if not marker.exists():
        if directory.exists() and _in_use(directory) and not marker.exists():
            raise UnsupportedFormat(
                f"{directory} is not a backtrail store: it holds other files; choose an empty directory"
            )
        if not create:
            raise NotFound(f"there is no store at {directory}")
        with closing(LockFile(directory / ".lock")) as lock, lock:
            if not marker.exists():
                start()
                replace_atomically(
                    marker, [line_format.as_json({"backtrail": "jsonl", "format": line_format.FORMAT}), b"\n"]
                )
    _check(marker)


def _in_use(directory: Path) -> bool:
    """Hidden files do not count: they belong to version control, or to a process that is making the same store."""
    return any(not file.name.startswith(".") for file in directory.iterdir())


def _check(marker: Path) -> None:
    try:
        found = msgspec.json.decode(read_bytes(marker), type=dict[str, object])
        version = found["format"] if found.get("backtrail") == "jsonl" else None
    except (*DECODE_ERRORS, KeyError):
        version = None
    if not isinstance(version, int):
        raise UnsupportedFormat(
            f"{marker} is not that of a backtrail store: choose another directory, nothing was touched"
        )
    if version > line_format.FORMAT:
        raise UnsupportedFormat(
            f"{marker.parent} has format {version}, this backtrail reads formats up to "
            f"{line_format.FORMAT}: pip install -U backtrail"
        )
