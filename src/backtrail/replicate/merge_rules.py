"""The rules of a merge: which of two heads of a thread counts, and what a merge has to know of sealed records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from backtrail.engines.base import Commit, Engine, Head, Mark, Position, Row, Step, generation_of
from backtrail.engines.conflicts import Refused
from backtrail.replicate.deleted_threads import Deletions, Fate, fate


class Apart(Refused):
    """Both stores continued the same branch, or are sealed with different keys: they have no union."""


class Outdated(Refused):
    """One side has heads of a newer generation than the one that is to be merged: the roles have to be read again."""


class Moving(Refused):
    """The heads of a lineage kept moving while it was merged: only while nobody writes to it can it be."""

    def __init__(self, lineage: str) -> None:
        super().__init__(lineage, f"lineage {lineage!r} kept moving while it was copied: it is tried again later")


class MarkFacts(NamedTuple):
    """The part of a mark that a merge needs. Marks are ordered by it: a deletion is final, else the later counts."""

    deleted: bool  #: by a user or by retention, and not because the same save exists twice
    at: int
    duplicate: bool  #: deleted because the same save exists twice
    generation: int = 0  #: in which it was deleted


class Annotated(NamedTuple):
    """A row with an annotation."""

    at: int  #: when it was annotated
    branch: bytes
    step: Step


class SpooledRow(NamedTuple):
    """A save in a spool."""

    head: Head  #: of its thread in the spool
    position: Position
    row: Row


class Codec(ABC):
    """Opens and seals the records of a store, which engines cannot read. Raises `Corrupt` for those of others."""

    @abstractmethod
    def rewrite(self, head: Head, *, version: int, count: int, name: str | None = None, owner: bytes) -> Head:
        """A head with other fields; `name`: as the head of another thread, which forgets the moves that could be
        undone."""

    @abstractmethod
    def move(self, head: Head, branch: bytes, step: Step) -> Head:
        """A head at another row."""

    @abstractmethod
    def mark_facts(self, branch: bytes, step: Step) -> MarkFacts | None:
        """The facts of a step's mark; None if it has none."""

    @abstractmethod
    def mark(
        self,
        branch: bytes,
        step: Step,
        annotated: Annotated | None = None,
        *,
        deleted_in: int | None = None,
        duplicate: bool = False,
    ) -> Mark:
        """A mark that restores a checkpoint, or deletes it: `deleted_in` the generation in which somebody did, or as
        the `duplicate` of a save that exists twice. It has the annotation of this row: of its own, or of another row of
        the same save."""

    @abstractmethod
    async def detach(self, engine: Engine, saves: Sequence[SpooledRow]) -> Commit:
        """The saves of one thread, which this engine has, as a thread that begins with the first of them: without what
        they build on."""


class Rule:
    """Decides between the heads that source and target have of one thread. This one is for the sides of a mirror."""

    whole = True  #: the source is a store: what it lacks it may have deleted
    renews = False  #: heads get versions of the current generation, because one of the two may be a mirror

    def fate(self, theirs: Head, deletions: Deletions) -> Fate:
        """The effect of deletions on a head of the source, as far as its version tells."""
        return fate(theirs, deletions)

    def wins(self, theirs: Head, ours: Head, *, ours_seen: bool) -> bool:  # noqa: ARG002 - other rules need it
        """True if the source's head becomes the thread's head. `ours_seen`: the source has the row at the target's."""
        return _is_newer(theirs, ours)

    def begins(self, theirs: Head) -> bool:  # noqa: ARG002 - other rules need it
        """True if a head may become that of a thread which the target does not have."""
        return True


class OursUnlessAhead(Rule):
    """For two stores that are no mirror: the target's head stays, unless the source has it and continued from it."""

    renews = True

    def wins(self, theirs: Head, ours: Head, *, ours_seen: bool) -> bool:
        return ours_seen and _is_newer(theirs, ours)


def _is_newer(theirs: Head, ours: Head) -> bool:
    """True if the source's head is newer than the target's. Of two threads of one name, only generations tell: the
    number of changes is chance. One that was never mirrored keeps its name."""
    if theirs.owner != ours.owner:
        return generation_of(theirs.version) > generation_of(ours.version) > 0
    return theirs.version > ours.version
