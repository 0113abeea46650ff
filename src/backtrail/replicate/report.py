"""The report of a comparison: the records it copied, and the heads that lost, so that they can be kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto

import msgspec

from backtrail.engines.base import Engine, Head, Mark

Progress = Callable[[int, int], object]  # records and bytes shipped so far
Keep = Callable[["Diverged"], Awaitable["Kept"]]
KeepOn = Callable[[Engine, "Diverged"], Awaitable["Kept"]]  # on the side that was active when it was found


class Diverged(msgspec.Struct, frozen=True):
    """A head of the follower that the active side did not know. Its rows are kept, but it does not become the head."""

    lineage: str
    head: Head
    same_incarnation: bool  #: False: another thread of the same name, created on the other side
    known: bool = False  #: the active side has the row at this head, or the same save at another position
    newest: bytes | None = None  #: the newest checkpoint that may have lost, if it is not the one at the head
    here: Head | None = None  #: the head of that incarnation on the active side, if it has another name there
    said: tuple[Mark, ...] = ()  #: annotations of its checkpoints, from a spool


def same_incarnation(here: Head | None, head: Head) -> bool:
    """True if both are the same thread, and not two threads of the same name."""
    return here is not None and here.owner == head.owner


class Kept(Enum):
    """The outcome for a head that lost."""

    ENOUGH = auto()  #: nothing to do: it had been kept before
    COUNTED = auto()  #: the active side's head counts the checkpoints that came with it
    NAMED = auto()  #: it has a label, or a name of its own


class Report(msgspec.Struct):
    """Everything that a comparison did."""

    records: int = 0
    bytes: int = 0
    diverged: list[Diverged] = []
    kept: int = 0  #: those that required a change
    restored: list[str] = []  #: threads that only the follower had

    async def tell(self, losers: Sequence[Diverged], keep: Keep | None) -> bool:
        """Pass each head that lost to `keep`, once; True if that changed anything."""
        before = self.kept
        for found in losers:
            if found not in self.diverged:
                self.diverged.append(found)
                self.kept += keep is not None and await keep(found) is not Kept.ENOUGH
        return self.kept > before

    def add(self, other: Report) -> None:
        self.records += other.records
        self.bytes += other.bytes
        self.diverged += other.diverged
        self.kept += other.kept
        self.restored += other.restored
