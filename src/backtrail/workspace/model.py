"""The values that a workspace gives to users: snapshots, changes, differences, status, and the limits it takes.

Paths are `str` with undecodable bytes kept by `os.fsdecode`, so that every name survives a round trip. All of these
are frozen, and print as a person would want to read them.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any, Literal

import msgspec

from backtrail.model import counted

ChangeKind = Literal["added", "removed", "changed", "mode", "type"]

_LETTERS = {"added": "+", "removed": "-", "changed": "~", "mode": "m", "type": "t"}


class Limits(msgspec.Struct, frozen=True):
    """Limits of one snapshot. A file over `file_bytes` is skipped; over any other limit the snapshot is refused."""

    file_bytes: int = 100 * 2**20
    files: int = 500_000
    total_bytes: int = 20 * 2**30
    seconds: float = 600.0


class Skipped(msgspec.Struct, frozen=True, order=True):
    """An item of the directory that is not in the snapshot, and the reason."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class Snapshot(msgspec.Struct, frozen=True):
    """A saved state of the directory."""

    id: str
    created_at: datetime
    label: str | None
    tree: str  #: the root tree's hash, in hex: equal trees are equal directories
    files: int
    bytes: int
    workspace: str  #: the thread that keeps it
    reason: str = "snapshot"  #: "snapshot", "safety" if a restore took it, or "damaged"
    flagged: tuple[Skipped, ...] = ()  #: files that could not be read, or kept changing while they were read
    damage: str | None = None  #: why it cannot be read; then only its id is sure

    async def __file_reference__(self) -> str:
        """The reference to this snapshot in a checkpoint's `files`."""
        return f"{self.id}@{self.workspace}"

    @property
    def complete(self) -> bool:
        """True if every file that the rules include was read, and did not change meanwhile."""
        return not self.flagged


class FileEntry(msgspec.Struct, frozen=True):
    """An entry of a folder in a snapshot."""

    name: str
    kind: Literal["file", "folder", "link"]
    size: int  #: bytes of a file
    mode: int  #: permission bits


class Change(msgspec.Struct, frozen=True):
    """One path that differs. `unsaved`: only the safety snapshot of this restore holds the present content."""

    path: str
    kind: ChangeKind
    unsaved: bool = False
    text: str | None = None  #: a unified diff, where both sides are text

    def __str__(self) -> str:
        since = "in no snapshot yet" if self.kind == "removed" else "changed since the last snapshot"
        return f"{_LETTERS[self.kind]} {self.path}" + (f"   ({since})" if self.unsaved else "")


class Changes(msgspec.Struct, frozen=True):
    """The result of a restore, or of its dry run: `changes` to the directory, files that are removed among them, and
    files `kept` that the snapshot does not have, each with the reason."""

    changes: tuple[Change, ...]
    kept: tuple[Skipped, ...] = ()
    safety: str | None = None  #: the id of the snapshot that holds the state before it
    dry_run: bool = False
    merged: tuple[str, ...] = ()  #: of a revert: paths at which later changes were kept, line by line
    plan: str = ""  #: names the changes with the contents before and after: a restore that is given it does just this

    @property
    def removed(self) -> tuple[Change, ...]:
        """Changes that remove a file or an empty directory; `undo` brings them back."""
        return tuple(change for change in self.changes if change.kind == "removed")

    @property
    def unsaved(self) -> tuple[Change, ...]:
        """Changes to files that were edited since the last snapshot."""
        return tuple(change for change in self.changes if change.unsaved)

    def __len__(self) -> int:
        return len(self.changes)

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __str__(self) -> str:
        lines = [str(change) for change in self.changes]
        lines += [f"= {kept.path}   (kept: {kept.reason})" for kept in self.kept]
        return "\n".join(lines) or "nothing differs"


class JointSave(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that is saved together with a restore: both or neither, also if the process dies. Its state is that
    of the checkpoint before it."""

    thread: str
    after: str  #: the id of the checkpoint that it follows: the thread's head
    fork_of: str | None = None  #: the thread of `after`, if `thread` is made by forking it there
    custom: dict[str, Any] = {}
    label: str | None = None
    id: str = msgspec.field(default_factory=lambda: str(uuid.uuid4()))


class Restore(msgspec.Struct, frozen=True):
    """A restore that was made and not taken back."""

    id: str
    created_at: datetime
    snapshot: str  #: the id of the snapshot that was restored
    safety: str  #: the id of the snapshot that holds the state before it
    saved: tuple[str, str] | None  #: thread and id of the checkpoint that was saved together with it


class FileDiff(msgspec.Struct, frozen=True):
    """The differences between two snapshots, or between a snapshot and the directory now."""

    changes: tuple[Change, ...]

    def __len__(self) -> int:
        return len(self.changes)

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __str__(self) -> str:
        return "\n".join(change.text or str(change) for change in self.changes) or "nothing differs"


class Status(msgspec.Struct, frozen=True):
    """The directory now: the size of the next snapshot, its differences from the last one, and what it leaves out."""

    files: int
    bytes: int
    changes: tuple[Change, ...]
    skipped: tuple[Skipped, ...]
    flagged: tuple[Skipped, ...] = ()

    def __str__(self) -> str:
        lines = [f"{counted(self.files, 'file')}, {counted(self.bytes, 'byte')}"]
        lines += [str(change) for change in self.changes]
        lines += [f"! {item}" for item in self.flagged]
        lines += [f"  {item.path}   (skipped: {item.reason})" for item in self.skipped]
        return "\n".join(lines)
