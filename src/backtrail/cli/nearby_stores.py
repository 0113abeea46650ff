"""Stores in a directory, to suggest one if the store that was asked for does not exist."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

_MAX_ENTRIES = 2000  # of a directory that are looked at
_MAX_SUGGESTED = 3


def suggest_store(missing: str) -> str:
    """A sentence that names the stores beside a path where there is none; "" if there are none either."""
    directory = Path(missing).parent
    try:
        with os.scandir(directory) as entries:
            names = sorted(entry.name for entry in islice(entries, _MAX_ENTRIES))
    except OSError:
        return ""
    found = [name for name in map(_store_name, [directory / name for name in names]) if name is not None]
    if not found:
        return ""
    shown = ", ".join(found[:_MAX_SUGGESTED]) + (", …" if len(found) > _MAX_SUGGESTED else "")
    return f"{'a store' if len(found) == 1 else 'stores'} beside it: {shown}"


def _store_name(path: Path) -> str | None:
    """What to give as -s for the store at this path; None if there is none."""
    if (path / "backtrail.json").is_file():
        return f"jsonl:{path}"
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            header = file.read(100)
    except OSError:
        return None
    from backtrail.engines.sqlite.database_file import APPLICATION_ID, MAGIC

    ours = header.startswith(MAGIC) and int.from_bytes(header[68:72], "big") == APPLICATION_ID
    return str(path) if ours else None
