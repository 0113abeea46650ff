"""Writes a transcript of our own making beside the agent's, and removes it again if nobody has used it."""

from __future__ import annotations

import os
from pathlib import Path

from backtrail.agents.conversations.model import CannotFork, Fork
from backtrail.errors import UnsafePath
from backtrail.owned_files import create_exclusive, read_bytes, sync_directory, write_all

MAX_TRANSCRIPT = 512 * 2**20  #: bytes; larger ones are not copied


def read_transcript(path: str | None) -> bytes:
    """The transcript's bytes up to its last complete line; `CannotFork` if there are none."""
    if path is None:
        raise CannotFork("the agent did not say where its transcript is")
    try:
        if Path(path).stat().st_size > MAX_TRANSCRIPT:
            raise CannotFork(f"its transcript {path} is larger than {MAX_TRANSCRIPT:,} bytes")
        data = read_bytes(Path(path))
    except FileNotFoundError:
        raise CannotFork(f"its transcript {path} is gone") from None
    except (OSError, UnsafePath) as error:
        raise CannotFork(f"its transcript {path} cannot be read: {error}") from error
    return data[: data.rfind(b"\n") + 1]


def write_copy(path: Path, data: bytes) -> None:
    """Write a new transcript, on disk when this returns; `CannotFork`, and no file, if it cannot be written."""
    try:
        handle = create_exclusive(path)
    except OSError as error:
        raise CannotFork(f"{path} cannot be made: {error.strerror}") from error
    try:
        try:
            write_all(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
        sync_directory(path.parent)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise CannotFork(f"{path} cannot be written: {error.strerror}") from error


def remove_copy(made: Fork) -> None:
    """Remove a transcript that was written here, all or a part of it, unless the agent has appended to it since."""
    if made.path is None:
        return
    path = Path(made.path)
    try:
        if path.lstat().st_size <= made.size:
            path.unlink()
    except FileNotFoundError:
        return
