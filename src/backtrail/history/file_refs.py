"""Files tied to a checkpoint: what a save's `files=` stands for.

History knows nothing of directories. It keeps a reference, "<snapshot>@<workspace>", and whoever can give one may stand
in its place: a workspace, which takes a snapshot for it now, or a snapshot that was taken before.
"""

from __future__ import annotations

import re
from typing import Any, Protocol, runtime_checkable

from backtrail.errors import InvalidInput

_REFERENCE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}@.+", re.DOTALL)


@runtime_checkable
class Refers(Protocol):
    """Something that can name a snapshot of files."""

    async def refer(self) -> str:
        """The reference, of a snapshot that exists by then."""


async def tied(files: Any) -> str | None:
    """The reference to keep with a checkpoint."""
    if files is None:
        return None
    if type(files) is str:  # as `checkpoint.files` has it
        if not _REFERENCE.fullmatch(files):
            raise InvalidInput(f"files={files!r:.80} names no snapshot: give a workspace, or one of its snapshots")
        return files
    source = getattr(files, "core", files)  # a front door stands before what it opens
    if not isinstance(source, Refers):
        raise InvalidInput(f"files= takes a workspace or one of its snapshots, not {type(files).__qualname__}")
    return await source.refer()
