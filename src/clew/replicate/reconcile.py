"""Making one lineage equal on two engines, by exchanging only what is missing.

The active side is right about heads. Everything else is a union: branches, rows and blobs never change once written,
and two sides that were both written to did so in different generations, hence on different branches, so that nothing
collides. What the follower has and the active side never got (it was acknowledged just before the active side changed)
is brought over first, and reported: it becomes a branch of its thread beside the head, or the thread itself where the
active side has none of that name. Only then is the follower brought up to date.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Container, Sequence
from enum import Enum, auto
from typing import NamedTuple

import msgspec

from clew.engines.base import LAST_STEP, Branch, Commit, Drop, Engine, Head, Mark, NewRow, Row, Step, Swap
from clew.errors import Conflict, LockLost
from clew.replicate import control, swept
from clew.replicate.lost import Lost, lost_to
from clew.replicate.swept import Swept

_BATCH = 4 * 1024 * 1024  # bytes in one commit
_ROWS = 256  # rows read at once
_TRIES = 16
_RINGS = "the two stores are sealed with different key rings: copy one into the other with store.copy_to()"
_APART = (
    "thread {thread!r} was written to in both stores after one was made from the other (both have their own step "
    "{step}): nothing was changed; copy one of them into an empty store"
)

Place = tuple[bytes, int]  # a step of a branch
Progress = Callable[[int, int], None]  # records and bytes shipped so far
Keep = Callable[["Diverged"], Awaitable["Kept"]]


class Apart(Conflict):
    """Both stores went on with the same branch, or are sealed with different keys: no union of them exists."""


class UnderWay(Conflict):
    """The follower has a save that the active side may be about to get: who looks again a little later will know."""


class Doubts(NamedTuple):
    """What a mirror knows of saves that only the follower has."""

    stamp: int  #: how branches of this generation are marked: of those the follower has nothing of its own
    refused: Container[tuple[bytes, int, int]]  #: keys of heads to which the active side said no
    rows: Collection[Place]  #: and the rows under them
    branches: Collection[bytes]  #: and the branches that began with them
    under_way: Callable[[Head], bool]  #: whether somebody may still be making it


NO_DOUBTS = Doubts(-1, (), (), (), lambda _: False)


class Diverged(msgspec.Struct, frozen=True):
    """A head that the follower had and the active side did not know: its rows are kept, it is not the head."""

    lineage: str
    head: Head
    same_life: bool  #: False: another thread of the same name, made on the other side
    known: bool = False  #: the active side has what this head stands on, or the same save elsewhere
    newest: bytes | None = None  #: the newest checkpoint that may have lost, if it is not the one at the head


class Kept(Enum):
    """What was done for a head that lost."""

    ENOUGH = auto()  #: nothing: it had been kept before
    COUNTED = auto()  #: the active side's head knows of what came with it
    NAMED = auto()  #: it has a label, or a name of its own


class Report(msgspec.Struct):
    """What a reconciliation did."""

    records: int = 0
    bytes: int = 0
    diverged: list[Diverged] = []
    restored: list[str] = []  #: threads that only the follower had

    def add(self, other: Report) -> None:
        self.records += other.records
        self.bytes += other.bytes
        self.diverged += other.diverged
        self.restored += other.restored


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
    """Make `lineage` equal on both sides. Safe to run beside writers and beside itself: it tries again when a head
    moved under it. Of two stores that are no `mirror`, the one that is further on a branch is right about it. `keep` is
    told of heads that lose, while the follower still has them. `UnderWay`, and nothing was changed, if there are
    `doubts` about one of them."""
    report = Report()
    for _ in range(_TRIES):
        try:
            if await _once(active, follower, _Ship(lineage, report, progress), keep, mirror, doubts):
                return report
        except (Apart, LockLost, UnderWay):
            raise
        except Conflict:
            continue
    raise Conflict(lineage, None, None, f"lineage {lineage!r} kept moving while it was copied: it is tried again later")


async def _once(active: Engine, follower: Engine, ship: _Ship, keep: Keep | None, mirror: bool, doubts: Doubts) -> bool:
    lineage, report = ship.lineage, ship.report
    # The follower's heads come first: a save that reaches both sides from here on makes the swaps below fail.
    theirs = {head.thread: head for head in await follower.heads(lineage)}
    ours = {head.thread: head for head in await active.heads(lineage)}
    news = [
        head
        for head in theirs.values()
        if head.key not in doubts.refused and await _may_be_news(active, follower, head, ours.get(head.thread))
    ]
    gone = await swept.of(active, lineage) if mirror else Swept()
    unknown: dict[str, Lost] = {}
    for head in news:
        known = (head.branch, head.step) in gone or await active.row(lineage, head.branch, head.step) is not None
        if not (known and _at_or_past(ours.get(head.thread), head, doubts.stamp)) and doubts.under_way(head):
            raise UnderWay(head.thread, None, None, f"a change of thread {head.thread!r} is under way: looked at again")
        if not known:
            unknown[head.thread] = await lost_to(active, follower, head) if mirror else Lost([], [], None, None, {})
    for lost in unknown.values():
        if lost.newest is not None:
            gone.spare(lost.way)
    gone.add(doubts.rows, doubts.branches)
    losers: list[Diverged] = []
    for thread, lost in unknown.items():
        if mirror and lost.newest is None:  # all of it was saved again
            gone.add(lost.places, lost.branches)
            if (here := ours.get(thread)) is not None and here.owner == theirs[thread].owner:
                losers.append(Diverged(lineage, theirs[thread], same_life=True, known=True, newest=lost.known))
    news = [head for head in news if (head.branch, head.step) not in gone]
    # What the active side knows, in its own generation, is where the follower was left behind: it has nothing to give.
    if any(head.thread in unknown or control.generation_of(head.branch) != doubts.stamp for head in news):
        await ship.rows(follower, active, without=gone)
    for head in news:
        here = ours.get(head.thread)
        # A name that was deleted does not come back, even if the other side had given it to another thread.
        ended = here is None and any([await control.ended(side, head.thread) for side in (active, follower)])
        if (here is None and not ended) or (here is not None and _goes_on(here, head, mirror)):
            if not await _put(active, [Swap(head.thread, here.key if here is not None else None, head)], lineage):
                return False
            if here is None:
                report.restored.append(head.thread)
            ours[head.thread] = head
        else:
            same = here is not None and here.owner == head.owner
            newest = unknown[head.thread].newest if head.thread in unknown else None
            losers.append(Diverged(lineage, head, same, same and head.thread not in unknown, newest))
    changed = False
    for found in losers:
        if found not in report.diverged:
            report.diverged.append(found)
            changed |= keep is not None and await keep(found) is not Kept.ENOUGH
    if changed:
        return False  # the active side's heads are others now
    # A delete that only the follower knows of: it was acknowledged while the follower was active.
    for thread, head in list(ours.items()):
        if thread in theirs:
            continue
        buried = await control.buried(follower, head)
        # Only a generation in between can have been the follower's.
        between = control.generation_of(head.branch) + 1 < doubts.stamp
        if not buried and between and await control.ended_later(follower, head):
            # The name was made once more there, and deleted. This one never was, and has to have another name.
            found = Diverged(lineage, head, same_life=False)
            report.diverged.append(found)
            changed |= keep is not None and await keep(found) is not Kept.ENOUGH
            buried = any(one.thread != thread and one.owner == head.owner for one in await active.heads(lineage))
        if buried:
            if not await _put(active, [Swap(thread, head.key, None)], lineage):
                return False
            del ours[thread]
    if changed:
        return False
    await ship.rows(active, follower)
    swaps = [
        Swap(thread, theirs[thread].key if thread in theirs else None, head)
        for thread, head in ours.items()
        if theirs.get(thread) != head
    ]
    swaps += [Swap(thread, head.key, None) for thread, head in theirs.items() if thread not in ours]
    if swaps and not await _put(follower, swaps, lineage):
        return False
    if gone:
        await swept.sweep(active, follower, lineage, gone, ours.values())
    if not ours:
        await clear(follower, lineage)
    return True


async def _may_be_news(active: Engine, follower: Engine, head: Head, here: Head | None) -> bool:
    """Whether the follower's head can tell of something that was acknowledged and that the active side lacks."""
    if here == head or await control.buried(active, head):
        return False
    if here is None and await control.buried(follower, head):
        return False  # it was deleted while the follower was active; a save that was still under way arrived afterwards
    if here is not None and head.kind == here.kind == "keys" and head.created != here.created:
        raise Apart(head.thread, None, None, _RINGS)
    return True


def _at_or_past(here: Head | None, head: Head, stamp: int) -> bool:
    """Whether the active side has been where a head stands, as far as versions tell: within its own generation."""
    of_now = control.generation_of(head.branch) == stamp
    return not of_now or here is None or here.owner != head.owner or here.version >= head.version


def _goes_on(here: Head, head: Head, mirror: bool) -> bool:
    """Whether the follower's head is simply further on the same branch. On a mirror's own branches it never is: what
    only the follower has there was not acknowledged."""
    same = here.owner == head.owner and here.branch == head.branch
    if mirror and control.generation_of(head.branch):
        return False
    return same and here.step <= head.step and here.version < head.version


async def _put(side: Engine, swaps: Sequence[Swap], lineage: str) -> bool:
    try:
        await side.commit(Commit(lineage, tuple(swaps)))
    except Conflict:
        return False
    return True


async def clear(side: Engine, lineage: str) -> None:
    """No thread is left in a lineage: neither are its rows."""
    branches = [branch.id for branch in await side.branches(lineage)]
    blobs = [id for id, _ in await side.blob_ids(lineage)]
    if branches or blobs:
        try:
            await side.drop(Drop(lineage, (), branches=branches, blobs=blobs))
        except Conflict:
            return  # a thread appeared: the next reconciliation looks again


class _Ship:
    """Copies what one side lacks of a lineage, in batches that are each one commit."""

    def __init__(self, lineage: str, report: Report, progress: Progress | None) -> None:
        self.lineage = lineage
        self.report = report
        self._progress = progress

    async def rows(
        self,
        source: Engine,
        target: Engine,
        without: Swept | None = None,
    ) -> None:
        """Blobs first, then branches with their rows and marks: nothing ever points at what is not there yet.

        `without`: the source is the follower, which replaces nothing, and gives none of these."""
        authority = without is None
        without = without or Swept()
        await self._blobs(source, target, without.blobs)
        known = {branch.id for branch in await target.branches(self.lineage)}
        for branch in await source.branches(self.lineage):
            await self._branch(source, target, branch, branch.id not in known, authority, without)

    async def _blobs(self, source: Engine, target: Engine, without: Container[bytes]) -> None:
        have = {id for id, _ in await target.blob_ids(self.lineage)}
        found = await source.blob_ids(self.lineage)
        lacking = [(id, size) for id, size in found if id not in have and id not in without]
        batch: list[bytes] = []
        weight = 0
        for id, size in lacking:
            batch.append(id)
            weight += size
            if weight >= _BATCH:
                await self._copy_blobs(source, target, batch)
                batch, weight = [], 0
        if batch:
            await self._copy_blobs(source, target, batch)

    async def _copy_blobs(self, source: Engine, target: Engine, ids: list[bytes]) -> None:
        found = await source.blobs(self.lineage, ids)
        await target.commit(Commit(self.lineage, blobs=found))
        self._count(len(found), sum(map(len, found.values())))

    async def _branch(
        self,
        source: Engine,
        target: Engine,
        branch: Branch,
        new: bool,
        authority: bool,
        without: Swept,
    ) -> None:
        steps = await source.steps(self.lineage, branch.id, 0, LAST_STEP)
        ours = {step.step: step for step in steps if (branch.id, step.step) not in without}
        if new and steps and not ours:
            return
        theirs = {} if new else {step.step: step for step in await target.steps(self.lineage, branch.id, 0, LAST_STEP)}
        for number, step in theirs.items():
            if number in ours and ours[number].digest != step.digest:
                raise Apart(branch.thread, None, None, _APART.format(thread=branch.thread, step=number))
        lacking = sorted(number for number in ours if number not in theirs)
        marks = [
            Mark(branch.id, number, step.mark)
            for number, step in ours.items()
            if _lacks_mark(step, theirs.get(number), authority)
        ]
        first = (branch,) if new else ()
        for i in range(0, len(lacking), _ROWS):
            numbers = lacking[i : i + _ROWS]
            chosen = set(numbers)
            rows = await source.rows(self.lineage, branch.id, numbers[0], numbers[-1])
            for batch in _batches([row for row in rows if row.step in chosen]):
                await self._copy(target, Commit(self.lineage, rows=[_new(branch.id, r) for r in batch], branches=first))
                first = ()
        if first or marks:
            await self._copy(target, Commit(self.lineage, branches=first, marks=marks))

    async def _copy(self, target: Engine, commit: Commit) -> None:
        await target.commit(commit)
        self._count(len(commit.rows), sum(len(row.root) + len(row.payload) + len(row.meta) for row in commit.rows))

    def _count(self, records: int, size: int) -> None:
        self.report.records += records
        self.report.bytes += size
        if self._progress is not None:
            self._progress(self.report.records, self.report.bytes)


def _lacks_mark(ours: Step, theirs: Step | None, authority: bool) -> bool:
    """Whether what is said of a step has to be said there as well; or, with authority, not to be said any more."""
    if theirs is None or not authority:
        return ours.mark is not None and (theirs is None or theirs.mark is None)
    return ours.mark != theirs.mark


def _new(branch: bytes, row: Row) -> NewRow:
    return NewRow(branch, row.step, row.id, row.meta, row.digest, row.root, row.payload)


def _batches(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows in runs of at most a few megabytes."""
    batches: list[list[Row]] = []
    weight = 0
    for row in rows:
        if not batches or weight >= _BATCH:
            batches.append([])
            weight = 0
        batches[-1].append(row)
        weight += len(row.root) + len(row.payload) + len(row.meta)
    return batches


async def differing(active: Engine, follower: Engine, page: int = 1000) -> list[str]:
    """The lineages whose heads are not the same on both sides, found page by page; nothing but heads is read."""
    found: dict[str, None] = {}
    for side, other in ((active, follower), (follower, active)):
        after: str | None = None
        while heads := await side.threads(after=after, limit=page):
            last = heads[-1].thread
            twins = {head.thread: head for head in await _upto(other, after, last, page)}
            for head in heads:
                if not control.hidden(head.thread) and twins.get(head.thread) != head:
                    found[head.lineage] = None
            after = last
    return list(found)


async def _upto(side: Engine, after: str | None, last: str, page: int) -> list[Head]:
    """The heads behind `after`, up to and with `last`."""
    found: list[Head] = []
    while heads := await side.threads(after=after, limit=page):
        found += [head for head in heads if head.thread <= last]
        if heads[-1].thread >= last:
            break
        after = heads[-1].thread
    return found
