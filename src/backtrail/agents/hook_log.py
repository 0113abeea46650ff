"""The hook's own log: one line of JSON for each event, and for each failure. It holds no prompts and no messages.

The file is in the data directory, of mode 0600. It is replaced when it is full, and one before it is kept.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
from typing import Any

from backtrail import owned_files
from backtrail.agents.user_store import data_directory, make_data_directory
from backtrail.errors import UnsafePath

NAME = "hook.log"
MAX_BYTES = 2**20
_MAX_TEXT = 500  # characters of one field


def write(**fields: Any) -> None:
    """Add a line. `OSError` or `UnsafePath` if that cannot be done: the caller has another way to tell."""
    path = make_data_directory() / NAME
    now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
    short = {key: value[:_MAX_TEXT] if isinstance(value, str) else value for key, value in fields.items()}
    line = json.dumps({"time": now, "pid": os.getpid(), **short}) + "\n"
    handle = owned_files.open_or_create(path, os.O_WRONLY | os.O_APPEND)
    try:
        if os.fstat(handle).st_size > MAX_BYTES:
            with contextlib.suppress(FileNotFoundError):  # another process was faster
                path.rename(path.with_name(f"{NAME}.1"))
            os.close(handle)
            handle = owned_files.open_or_create(path, os.O_WRONLY | os.O_APPEND)
        owned_files.write_all(handle, line.encode())
    finally:
        os.close(handle)


def read() -> list[dict[str, Any]]:
    """All lines that there are, oldest first; a damaged one is left out."""
    found = []
    for name in (f"{NAME}.1", NAME):
        try:
            data = owned_files.read_bytes(data_directory() / name)
        except (FileNotFoundError, NotADirectoryError, UnsafePath):
            continue
        for line in data.splitlines():
            with contextlib.suppress(ValueError):  # a disk that was full cut it
                entry = json.loads(line)
                if isinstance(entry, dict):
                    found.append(entry)
    return found
