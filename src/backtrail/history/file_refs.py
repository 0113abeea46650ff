"""Files tied to a checkpoint: the values that a save's `files=` takes.

History knows nothing of directories. It keeps a reference, "<snapshot>@<workspace>", and asks a `FileSource` for it: a
workspace takes a snapshot now, a snapshot names itself.
"""

from __future__ import annotations

import re
from typing import Any, Protocol, runtime_checkable

from backtrail.errors import InvalidInput

_REFERENCE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}@.+", re.DOTALL)


@runtime_checkable
class FileSource(Protocol):
    """A workspace or a snapshot. What a user gives is one, the public classes included."""

    async def __file_reference__(self) -> str:
        """The reference of a snapshot that exists when this returns."""
        ...


async def tied(files: Any) -> str | None:
    """The reference to keep with a checkpoint."""
    if files is None:
        return None
    if type(files) is str:  # as `checkpoint.files` has it
        if not _REFERENCE.fullmatch(files):
            raise InvalidInput(f"files={files!r:.80} names no snapshot: give a workspace, or one of its snapshots")
        return files
    if not isinstance(files, FileSource):
        raise InvalidInput(f"files= takes a workspace or one of its snapshots, not {type(files).__qualname__}")
    return await files.__file_reference__()
