"""Files tied to a checkpoint: what a save's `files=` stands for.

History knows nothing of directories. It keeps a reference, "<snapshot>@<workspace>", and whoever can give one may stand
in its place: a workspace, which takes a snapshot for it now, or a snapshot that was taken before.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from clew.errors import InvalidInput


@runtime_checkable
class Refers(Protocol):
    """Something that can name a snapshot of files."""

    async def refer(self) -> str:
        """The reference, of a snapshot that exists by then."""


async def tied(files: Any) -> str | None:
    """The reference to keep with a checkpoint."""
    if files is None or type(files) is str:
        return files
    source = getattr(files, "core", files)  # a front door stands before what it opens
    if not isinstance(source, Refers):
        raise InvalidInput(f"files= takes a workspace or one of its snapshots, not {type(files).__qualname__}")
    return await source.refer()
