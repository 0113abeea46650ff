"""References to files: the `files=` of a save, stored as a reference to a snapshot.

History knows nothing of directories. It keeps a reference, "<snapshot>@<workspace>". A caller passes one, or a
`FileSource` that can make one: a workspace, which takes a snapshot now, or an existing snapshot.
"""

from __future__ import annotations

import re
from typing import Any, Protocol, runtime_checkable

from backtrail.errors import InvalidInput

_REFERENCE = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}@.+", re.DOTALL)


@runtime_checkable
class FileSource(Protocol):
    """A workspace or a snapshot; the public classes are file sources as well."""

    async def __file_reference__(self) -> str:
        """The reference of a snapshot, which exists once this returns."""
        ...


async def file_reference(files: Any) -> str:
    """The reference to keep with a checkpoint."""
    if type(files) is str:  # as `checkpoint.files` has it
        if not _REFERENCE.fullmatch(files):
            raise InvalidInput(f"files={files!r:.80} names no snapshot: give a workspace, or one of its snapshots")
        return files
    if not isinstance(files, FileSource):
        raise InvalidInput(f"files= takes a workspace or one of its snapshots, not {type(files).__qualname__}")
    return await files.__file_reference__()
