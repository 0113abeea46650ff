"""Anti-entropy: makes one lineage equal on two engines, by exchanging only what is missing.

The active side's heads count. Everything else is a union: branches, rows and blobs never change once written, and two
sides that were both written to were so in different generations, hence on different branches, so nothing collides.
Saves that only the follower has (acknowledged just before a failover) are copied to the active side first, and
reported: they become an abandoned branch of their thread, or the thread itself if the active side has none of that
name. Only then does the follower get what it lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
from typing import NamedTuple

from backtrail.engines.base import Commit, Drop, Engine, Head, HeadKey, Mark, Position, Swap
from backtrail.engines.conflicts import Refused
from backtrail.replicate import limits, role_record, sweep_tombstones
from backtrail.replicate.lost_heads import Lost, lost_to
from backtrail.replicate.report import Diverged, Keep, Progress, Report, same_incarnation
from backtrail.replicate.row_copy import Apart, Transfer
from backtrail.replicate.sweep_tombstones import Swept

_RINGS = "the two stores are sealed with different key rings: copy one into the other with store.copy_to()"


class UnderWay(Refused):
    """The follower has a save that the active side may be about to get: the comparison is repeated a little later."""


class Doubts(NamedTuple):
    """A mirror's knowledge of saves that only the follower has and that may not count."""

    generation: int  #: the one in the prefix of new branches, on which the follower has nothing of its own
    refused: Container[HeadKey]  #: keys of heads that the active side refused
    rows: Collection[Position]  #: and the rows under them
    branches: Collection[bytes]  #: and the branches that began with them
    under_way: Callable[[Head], bool]  #: True if another process may still be saving it
    spools: bool = False  #: True if saves that build on them may wait in a spool


NO_DOUBTS = Doubts(-1, (), (), (), lambda _: False)


async def reconcile(
    active: Engine,
    follower: Engine,
    lineage: str,
    *,
    mirror: bool = False,
    keep: Keep | None = None,
    progress: Progress | None = None,
    doubts: Doubts = NO_DOUBTS,
) -> Report:
    """Make `lineage` equal on both sides. Safe to run beside writers and beside itself: it is retried if a head moves
    meanwhile. If the two stores are not sides of a `mirror`, the one that is further on a branch counts. `keep` is
    called with heads that lost, while the follower still has them. Raises `UnderWay`, and changes nothing, if there are
    `doubts` about one of them."""
    report = Report()
    transfer = Transfer(lineage, report, progress)
    for _ in limits.COMPARISON.attempts():
        try:
            if await _Comparison(active, follower, transfer, keep, mirror, doubts).made_equal():
                return report
        except (Apart, UnderWay):
            raise
        except Refused:
            continue
    raise Refused(lineage, f"lineage {lineage!r} kept moving while it was copied: it is tried again later")


class _Comparison:
    """One comparison of a lineage on both sides, and the changes that follow from it. Each part returns False if a head
    moved meanwhile, or if its changes require another comparison."""

    def __init__(
        self, active: Engine, follower: Engine, transfer: Transfer, keep: Keep | None, mirror: bool, doubts: Doubts
    ) -> None:
        self._active, self._follower = active, follower
        self._transfer = transfer
        self._lineage, self._report = transfer.lineage, transfer.report
        self._keep = keep
        self._mirror = mirror
        self._doubts = doubts
        self._theirs: dict[str, Head] = {}
        self._ours: dict[str, Head] = {}
        self._news: list[Head] = []  # heads of the follower that the active side may lack
        self._lost: dict[str, Lost] = {}  # by thread: the steps that only the follower has
        self._unknown: set[str] = set()  # threads whose head is at one of these steps
        self._taken: set[str] = set()  # names that the active side has given to threads of other lineages
        self._gone = Swept()  # rows, branches and blobs that the follower is to delete

    async def made_equal(self) -> bool:
        """True if both sides are equal now."""
        await self._look()
        return await self._bring_over() and await self._end_what_ended() and await self._bring_up_to_date()

    async def _look(self) -> None:
        active, follower, lineage, doubts = self._active, self._follower, self._lineage, self._doubts
        # The follower's heads are read first: a save that reaches both sides from now on makes the swaps below fail.
        self._theirs = {head.thread: head for head in await follower.heads(lineage)}
        self._ours = {head.thread: head for head in await active.heads(lineage)}
        news = [head for head in self._theirs.values() if await self._may_be_news(head)]
        gone = await sweep_tombstones.read(active, lineage) if self._mirror else Swept()
        for head in news:
            there = await active.row(lineage, head.branch, head.step) is not None
            known = there or head.position in gone
            past = known and _at_or_past(self._ours.get(head.thread), head, doubts.generation)
            if not past and doubts.under_way(head):
                raise UnderWay(head.thread, f"a change of thread {head.thread!r} is under way: look again")
            if self._mirror and not there:
                self._lost[head.thread] = await lost_to(active, follower, head, self._ours.get(head.thread))
            if not known:
                self._unknown.add(head.thread)
            if head.thread not in self._ours and await active.head(head.thread) is not None:
                self._taken.add(head.thread)
        lost = {thread: self._lost[thread] for thread in self._unknown & self._lost.keys()}
        again = [one for thread, one in lost.items() if self._saved_again(thread, one)]
        if again:  # the follower is to delete it, also if we do not get that far
            rows, branches = [at for one in again for at in one.positions], [id for one in again for id in one.branches]
            await sweep_tombstones.write(active, Drop(lineage, (), rows=rows, branches=branches))
            gone = await sweep_tombstones.read(active, lineage)
        for one in lost.values():
            if one not in again:
                gone.spare(one.way)
        gone.add(doubts.rows, doubts.branches)
        self._news, self._gone = news, gone

    def _saved_again(self, thread: str, lost: Lost) -> bool:
        """True if a thread was created on both sides, and the active one has each of its saves. If the active side
        already has some of its rows without a head, or something may build on them, the thread has to be kept."""
        other = thread in self._ours and not same_incarnation(self._ours[thread], self._theirs[thread])
        return other and lost.newest is None and lost.known is None and not self._doubts.spools

    async def _may_be_news(self, head: Head) -> bool:
        """True if the follower's head may be an acknowledged save that the active side lacks."""
        here = self._ours.get(head.thread)
        if head.key in self._doubts.refused or here == head or await role_record.is_deleted(self._active, head):
            return False
        if here is None and await role_record.is_deleted(self._follower, head):
            return False  # it was deleted while the follower was active, and a save in progress arrived afterwards
        if here is not None and head.kind == here.kind == "keys" and head.created != here.created:
            raise Apart(head.thread, _RINGS)
        return True

    async def _bring_over(self) -> bool:
        """Copy rows that only the follower has to the active side, and report the heads that lost."""
        active, follower, lineage, generation = self._active, self._follower, self._lineage, self._doubts.generation
        losers: list[Diverged] = []
        news = [head for head in self._news if head.position not in self._gone]
        # If the active side knows them all, and from its own generation, the follower only lags and has nothing else.
        if any(head.thread in self._unknown or role_record.generation_of(head.branch) != generation for head in news):
            marks = await self._transfer.rows(follower, active, without=self._gone)
            if not await _put(active, (), lineage, marks):
                return False
        for head in news:
            here = self._ours.get(head.thread)
            # A deleted name is not revived, even if the other side had given it to another thread.
            sides = (active, follower)
            ended = here is None and any([await role_record.was_any_deleted(side, head.thread) for side in sides])
            free = here is None and not ended and head.thread not in self._taken and self._renamed(head) is None
            if free or (here is not None and _goes_on(here, head, self._mirror)):
                if not await _put(active, [Swap(head.thread, here.key if here is not None else None, head)], lineage):
                    return False
                if here is None:
                    self._report.restored.append(head.thread)
                self._ours[head.thread] = head
            else:
                losers.append(self._loser(head))
        return not await self._report.tell(losers, self._keep)

    def _renamed(self, head: Head) -> Head | None:
        """The head of the same thread under another name: it lost here and was renamed, and won on the other side."""
        return next((one for one in self._ours.values() if one.owner == head.owner and one.thread != head.thread), None)

    def _loser(self, head: Head) -> Diverged:
        here = self._ours.get(head.thread)
        same = same_incarnation(here, head)
        lost = self._lost.get(head.thread)
        if here is None and (renamed := self._renamed(head)) is not None:
            known = head.thread not in self._unknown
            return Diverged(self._lineage, head, same_incarnation=True, known=known, here=renamed)
        if lost is None or not same:
            return Diverged(self._lineage, head, same, known=same and head.thread not in self._unknown)
        return Diverged(self._lineage, head, same, lost.newest is None, lost.newest or lost.known)

    async def _end_what_ended(self) -> bool:
        """Delete threads that only the follower knows to be deleted: acknowledged while the follower was active."""
        active, follower, lineage = self._active, self._follower, self._lineage
        changed = False
        for thread, head in list(self._ours.items()):
            if thread in self._theirs:
                continue
            buried = await role_record.is_deleted(follower, head)
            # The follower can have been active only in a generation in between.
            between = role_record.generation_of(head.branch) + 1 < self._doubts.generation
            if not buried and between and await role_record.was_deleted_later(follower, head):
                # The follower created this name once more and deleted that thread. This one was never deleted, and
                # needs another name.
                changed |= await self._report.tell([Diverged(lineage, head, same_incarnation=False)], self._keep)
                buried = any(one.thread != thread and one.owner == head.owner for one in await active.heads(lineage))
            if buried:
                if not await _put(active, [Swap(thread, head.key, None)], lineage):
                    return False
                del self._ours[thread]
        return not changed

    async def _bring_up_to_date(self) -> bool:
        """Copy to the follower what only the active side has, and its heads; delete what was deleted."""
        active, follower, lineage = self._active, self._follower, self._lineage
        ours, theirs = self._ours, self._theirs
        marks = await self._transfer.rows(active, follower)
        swaps = [
            Swap(thread, theirs[thread].key if thread in theirs else None, head)
            for thread, head in ours.items()
            if theirs.get(thread) != head
        ]
        ends = [Swap(thread, head.key, None) for thread, head in theirs.items() if thread not in ours]
        still: list[Swap] = []
        if marks:  # a mark changes together with a head: if none has moved here, these are still the newest
            still = [Swap(thread, head.key, head) for thread, head in theirs.items() if ours.get(thread) == head]
        if not await _put(follower, [*swaps, *ends, *still], lineage, marks):
            new = [swap.thread for swap in swaps if swap.expect is None]
            if ends and any([await follower.head(thread) is not None for thread in new]):
                # Threads of two lineages may have exchanged their names: one has to free its own first.
                await _put(follower, ends, lineage)
            return False
        if self._gone:
            await sweep_tombstones.apply(active, follower, lineage, self._gone, ours.values())
        if not ours:
            await clear(active, lineage)
            await clear(follower, lineage)
        # Before its heads moved, others may have deleted rows on the follower that we copied from it: compare again.
        return not ((swaps or ends) and self._report.kept)


def _at_or_past(here: Head | None, head: Head, generation: int) -> bool:
    """True if the active side has been at this head, judged by versions, which count only within its own generation."""
    of_now = role_record.generation_of(head.branch) == generation
    return not of_now or here is None or here.owner != head.owner or here.version >= head.version


def _goes_on(here: Head, head: Head, mirror: bool) -> bool:
    """True if the follower's head is simply further on the same branch. On a mirror's own branches it never is: a save
    that only the follower has there was not acknowledged."""
    same = here.owner == head.owner and here.branch == head.branch
    if mirror and role_record.generation_of(head.branch):
        return False
    return same and here.step <= head.step and here.version < head.version


async def _put(side: Engine, swaps: Sequence[Swap], lineage: str, marks: Sequence[Mark] = ()) -> bool:
    try:
        if swaps or marks:
            await side.commit(Commit(lineage, tuple(swaps), marks=marks))
    except Refused:
        return False
    return True


async def clear(side: Engine, lineage: str) -> None:
    """Delete everything of a lineage in which no thread is left."""
    branches = [branch.id for branch in await side.branches(lineage)]
    blobs = [id for id, _ in await side.blob_ids(lineage)]
    if branches or blobs:
        try:
            await side.drop(Drop(lineage, (), branches=branches, blobs=blobs))
        except Refused:
            return  # a thread appeared: left to the next comparison


async def differing(active: Engine, follower: Engine, page: int = 1000) -> list[str]:
    """The lineages whose heads are not the same on both sides, compared page by page; only heads are read."""
    found: dict[str, None] = {}
    for side, other in ((active, follower), (follower, active)):
        after: str | None = None
        while heads := await side.threads(after=after, limit=page):
            last = heads[-1].thread
            twins = {head.thread: head for head in await _upto(other, after, last, page)}
            for head in heads:
                if not role_record.is_own_record(head.thread) and twins.get(head.thread) != head:
                    found[head.lineage] = None
            after = last
    return list(found)


async def _upto(side: Engine, after: str | None, last: str, page: int) -> list[Head]:
    """The heads after `after`, up to and including `last`."""
    found: list[Head] = []
    while heads := await side.threads(after=after, limit=page):
        found += [head for head in heads if head.thread <= last]
        if heads[-1].thread >= last:
            break
        after = heads[-1].thread
    return found
