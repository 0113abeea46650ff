"""Replays spooled saves on the active side: each is repeated exactly, in the original order.

If the thread's head is the one that a save expects, the save is simply committed. A save that had already reached the
side (its answer was lost, or a delivery was interrupted and is repeated) is recognized by its row; one that its caller
has repeated elsewhere, by the id that the caller chose. If others wrote to the thread meanwhile, its rows are kept
beside theirs, and the head that lost is reported, as for any divergence.

A save to a thread that was deleted meanwhile is dropped. A save that builds on a step that no side has any more stays
in the spool: without that step it could not be read. A lineage that has to wait does not delay others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from backtrail.engines.base import Commit, Engine, Head, NewRow, Swap
from backtrail.engines.branch_origins import leads_through, previous_position
from backtrail.engines.conflicts import Refused
from backtrail.errors import Corrupt, LockLost, Unavailable
from backtrail.replicate import limits, role_record
from backtrail.replicate.anti_entropy import clear
from backtrail.replicate.report import Diverged, Keep, same_incarnation
from backtrail.replicate.spool import Spool
from backtrail.replicate.status import log

if TYPE_CHECKING:
    from backtrail.replicate.mirror import Mirror

T = TypeVar("T")
_TWINS = 1024  # rows of one id that are compared
RunLocally = Callable[[Coroutine[Any, Any, T]], Awaitable[T]]


class Stranded(Refused):
    """A save in the spool cannot be replayed: it builds on a step that the active side does not have."""

    def __init__(self, thread: str, reason: str) -> None:
        super().__init__(thread, f"what was spooled for thread {thread!r} stays in the spool: {reason}")


class ReplayTarget(NamedTuple):
    """The active side, all sides that may have tombstones, and the callbacks for the results."""

    active: Engine
    sides: Sequence[Engine]
    mark: Callable[[str], None]  #: marks a lineage for comparison with the follower
    keep: Keep


async def deliver(spool: Spool, local: RunLocally[Any], target: ReplayTarget, lineage: str) -> bool:
    """Replay the spooled saves of a lineage on the active side, and delete them here; False if more came meanwhile.
    Safe to interrupt at any point and to repeat, even by two processes at once."""
    journal, entries = await local(spool.entries(lineage))
    if journal is None:
        return True
    beside: dict[str, Head] = {}
    gone: set[str] = set()
    again: list[Commit] = []  # repeated elsewhere, and replayed only if something builds on it
    said: list[Commit] = []  # annotations
    for entry in entries:
        commit = await local(spool.commit_of(lineage, entry))
        if commit is None:
            return True  # another process has delivered it
        threads = {swap.thread for swap in commit.swaps}
        if threads & gone:
            continue
        if not threads & beside.keys() and await _repeat(target.active, commit):
            if not _begins(commit) or not await _deleted(target, commit.swaps, even_here=True):
                continue
            # Another process had replayed it before, and it was deleted since: we have revived it.
            await _end(target.active, commit)
        if await _deleted(target, commit.swaps):
            gone |= threads
            continue
        await _check_there(target, commit.swaps)
        if commit.marks and not commit.rows:
            said.append(commit)
            continue
        again.append(commit)
        if await _made_again(target.active, commit):
            continue
        for one in again:
            await _put_beside(target.active, one)
        again.clear()
        beside |= {swap.thread: swap.new for swap in commit.swaps if swap.new is not None}
    for thread in gone:
        log.warning("thread %r was deleted while saves to it were spooled: they went with it", thread)
    # Rows beside the head do not change it. So the follower is marked before the head is touched: if this process dies
    # here, either the heads differ, or the replay is repeated.
    target.mark(lineage)
    for head in beside.values():
        here = await target.active.head(head.thread)
        await target.keep(Diverged(lineage, head, same_incarnation(here, head)))
    for commit in said:
        for head in [swap.new for swap in commit.swaps if swap.new is not None]:
            await target.keep(Diverged(lineage, head, same_incarnation=True, known=True, said=tuple(commit.marks)))
    cleared: bool = await local(spool.clear(lineage, journal))
    return cleared


async def _repeat(active: Engine, commit: Commit) -> bool:
    """Commit a save unchanged; False if others wrote to its thread meanwhile."""
    try:
        await active.commit(commit)
    except LockLost:
        if commit.fence is None:
            raise  # it is our generation that is over, not the caller's lock
        return False
    except Refused:
        return await _was_made(active, commit)
    return True


async def _was_made(active: Engine, commit: Commit) -> bool:
    """True if the active side has a save, and its threads are at it or have continued from it."""
    heads: list[tuple[Head, Head]] = []
    for swap in commit.swaps:
        here = await active.head(swap.thread)
        if here is None or swap.new is None or here.owner != swap.new.owner or here.version < swap.new.version:
            return False
        heads.append((here, swap.new))
    # After the heads: a writer that continues from this save just now may start a branch with it.
    branches = {branch.id: branch for branch in await active.branches(commit.lineage)}
    if not all(leads_through(here.position, new.position, branches.get) for here, new in heads):
        return False
    for row in commit.rows:
        there = await active.row(commit.lineage, row.branch, row.step)
        # A thread that went through this step had it, even if retention has deleted it since.
        if there is not None and (there.id, there.digest) != (row.id, row.digest):
            return False
    return True


async def _made_again(active: Engine, commit: Commit) -> bool:
    """True if the thread already has the checkpoints of a save, by their ids, at other positions."""
    heads = [await active.head(swap.thread) for swap in commit.swaps]
    owners = {head.owner for head in heads if head is not None}
    branches = {branch.id: branch for branch in await active.branches(commit.lineage)}
    for row in commit.rows:
        found = await active.locate(commit.lineage, row.id, row.id, _TWINS)
        positions = [(branch, step) for branch, step, _ in found if branch in branches]
        if not any(branches[at[0]].owner in owners and at != (row.branch, row.step) for at in positions):
            return False
    return bool(commit.rows)


def _begins(commit: Commit) -> bool:
    """True if a save creates a thread: it would succeed even if that thread was deleted meanwhile."""
    return any(swap.expect is None for swap in commit.swaps)


async def _end(active: Engine, commit: Commit) -> None:
    """Delete a thread that this replay has just created, with its rows; not an error if others were faster."""
    await active.commit(
        Commit(commit.lineage, [Swap(swap.thread, swap.new.key, None) for swap in commit.swaps if swap.new is not None])
    )
    await clear(active, commit.lineage)


async def _deleted(target: ReplayTarget, swaps: Sequence[Swap], *, even_here: bool = False) -> bool:
    """True if a side has a tombstone for a thread of a save; `even_here`: even if the active side has the thread."""
    for swap in swaps:
        here = await target.active.head(swap.thread)
        if swap.new is None or (here is not None and here.owner == swap.new.owner and not even_here):
            continue
        for side in target.sides:
            if await role_record.was_deleted(side, swap.thread, swap.new.owner):
                return True
    return False


async def _check_there(target: ReplayTarget, swaps: Sequence[Swap]) -> None:
    """Refuse a save, for now, if only the other side has its thread. The thread is being copied, and its rows may be
    here already; but until its head is, there is no history beside which the save could be kept."""
    for swap in swaps:
        if swap.expect is None or swap.new is None:
            continue
        here = await target.active.head(swap.thread)
        if here is not None and here.key == swap.expect:
            raise Refused(swap.thread, f"thread {swap.thread!r} was brought over just now: tried again")
        if here is not None:
            continue
        elsewhere = [await side.head(swap.thread) for side in target.sides]
        if len(target.sides) < 2 or any(same_incarnation(head, swap.new) for head in elsewhere):
            raise Stranded(swap.thread, "only the other side has the thread")


async def _put_beside(active: Engine, commit: Commit) -> None:
    """Write the rows of a save without moving a head."""
    lineage, thread = commit.lineage, commit.swaps[0].thread
    known = {branch.id: branch for branch in await active.branches(lineage)}
    branches = [branch for branch in commit.branches if branch.id not in known]
    known |= {branch.id: branch for branch in branches}
    rows: list[NewRow] = []
    for row in commit.rows:
        there = await active.row(lineage, row.branch, row.step)
        if there is not None:
            if (there.id, there.digest) != (row.id, row.digest):
                raise Stranded(thread, f"step {row.step} of its branch is another one there")
            continue
        branch = known.get(row.branch)
        before = (row.branch, row.step - 1) if branch is None else previous_position(branch, row.step)
        if before is not None and before not in {(one.branch, one.step) for one in rows}:
            base = await active.row(lineage, *before)
            if base is None or not base.root:
                raise Stranded(thread, f"it builds on step {before[1]} of a branch, which is not there")
        rows.append(row)
    if rows or branches:
        await active.commit(Commit(lineage, rows=rows, branches=branches, blobs=commit.blobs))


class Delivery:
    """Delivers a spool to the active side of a mirror. The caller ensures that only one delivery runs at a time."""

    def __init__(self, spool: Spool, local: RunLocally[Any], mirror: Mirror) -> None:
        self._spool = spool
        self._local = local
        self._mirror = mirror
        self.under_way = False
        self.stranded: set[str] = set()  # lineages that could not be delivered

    async def deliver_all(self, without: set[str]) -> set[str]:
        """Deliver all lineages except `without`; returns these and all others that have to wait."""
        left = set(without)
        lineages: list[str] = await self._local(self._spool.lineages())
        for lineage in lineages:
            if lineage in left:
                continue
            try:
                await self._lineage(lineage)
            except (Refused, Corrupt) as error:
                self.stranded.add(lineage)
                left.add(lineage)
                self._mirror.failed(error)
                log.warning("%s", error)
        return left

    async def deliver_first(self, lineage: str) -> None:
        """Deliver a stranded lineage before the next save to it. If that is still not possible, its saves are kept
        beside that one later."""
        self.under_way = True
        try:
            await self._lineage(lineage)
        except (Refused, LockLost, Corrupt, Unavailable) as error:
            self._mirror.failed(error)
        finally:
            self.under_way = False

    async def _lineage(self, lineage: str) -> None:
        refused: Refused | None = None
        for _ in limits.DELIVERY.attempts():
            try:
                if await deliver(self._spool, self._local, self._target(), lineage):
                    self.stranded.discard(lineage)
                    return
                refused = None
            except Stranded:
                raise
            except Refused as error:  # others write to the same threads
                refused = error
        if refused is not None:
            raise refused

    def _target(self) -> ReplayTarget:
        active = self._mirror.active
        return ReplayTarget(active, self._mirror.reachable, self._mirror.mark, partial(self._mirror.keep, active))
