"""Absorbing: brings everything that a source has of a lineage into a target, and makes the source equal to it.

For each thread it decides which head counts, by the rule of the merge and by tombstones. Then it copies rows to the
target and changes its heads in one commit, and does the same to the source.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

import msgspec

from backtrail.engines.base import (
    LAST_STEP,
    Branch,
    Drop,
    Engine,
    Head,
    Swap,
    generation_of,
    next_version,
)
from backtrail.engines.branch_origins import furthest, leads_through
from backtrail.engines.conflicts import Refused
from backtrail.replicate.deleted_threads import Deletions, Fate, diverged, fate, find_deletions
from backtrail.replicate.lineage_copy import LineageRecords, copy_blobs, copy_rows
from backtrail.replicate.lineage_union import LineageUnion, Seen
from backtrail.replicate.merge_rules import Apart, Codec, Rule

_RINGS = "the two stores are sealed with different key rings: copy one into the other with store.copy_to()"


class _Claim(msgspec.Struct, frozen=True):
    """A head of one side, which claims the name of its thread; with the records of its side and of the other one, and
    what deletions on the other side mean for it."""

    head: Head
    here: LineageRecords
    there: LineageRecords
    fate: Fate = Fate.ALIVE

    @property
    def may_stay(self) -> bool:
        """True if no deletion takes the name away."""
        return self.fate in (Fate.ALIVE, Fate.NEWER)


class Pair(msgspec.Struct, frozen=True):
    """Two stores that are merged, and how. New versions of heads are made in this generation."""

    target: Engine
    source: Engine
    codec: Codec
    generation: int
    rule: Rule
    deleters: Collection[Engine]  #: those that may have tombstones of threads of the source


class Merged(msgspec.Struct):
    """Everything that a merge did."""

    diverged: list[tuple[str, str]] = []  #: threads whose heads lost, and the names under which those are kept
    waits_for: set[str] = set()  #: lineages whose threads have names on the other side that threads of this one need


class Absorption:
    """Brings what a source has of a lineage into a target."""

    _ours: LineageRecords
    _theirs: LineageRecords
    _union: LineageUnion

    def __init__(self, pair: Pair, lineage: str, merged: Merged) -> None:
        self._target, self._source, self._deleters = pair.target, pair.source, pair.deleters
        self._codec, self._generation, self._rule = pair.codec, pair.generation, pair.rule
        self._lineage = lineage
        self._merged = merged
        self._final: dict[str, Head] = {}  # the heads that both will have
        self._lost: list[_Claim] = []
        self._ended: list[tuple[bytes, Seen]] = []  # threads, with what somebody has deleted of them
        self._looked_up: list[tuple[bool, Head, Deletions]] = []  # heads, of the source or not, with their deletions
        self._diverged: list[tuple[str, str]] = []
        self._waiting: set[str] = set()  # threads of the source whose names a thread of another lineage has to free

    # -- deciding ------------------------------------------------------------------------------------------------------

    async def decide(self, ours: LineageRecords, theirs: LineageRecords) -> None:
        """Find the heads, marks and counts that both will have; `Apart` if there is no union."""
        self._ours, self._theirs = ours, theirs
        self._union = LineageUnion(ours, theirs, self._codec)
        self._final = dict(ours.heads)
        for thread, head in ours.heads.items():
            if self._rule.whole and thread not in theirs.heads and not _is_record(head):
                await self._decide_alone(head, ours, theirs)
        for thread, head in theirs.heads.items():
            known = ours.heads.get(thread)
            if known is None:
                await self._decide_alone(head, theirs, ours)
            elif known != head:
                await self._decide_between(known, head)
        for lost in self._lost:
            await self._keep(lost)
        self._separate_owners()
        for owner, seen in self._ended:
            self._union.delete_seen(owner, seen, self._threads())
        for thread, head in self._final.items():
            if not _is_record(head):
                self._final[thread] = self._counted(head)
        for side in (ours, theirs):
            self._touch(side)

    def _touch(self, side: LineageRecords) -> None:
        """Change a head of a side that gets more threads: a sweep that has read its heads must notice."""
        new = self._final.keys() - side.heads.keys()
        same = [thread for thread, head in side.heads.items() if self._final.get(thread) == head]
        threads = [self._final[thread] for thread in sorted(same) if not _is_record(self._final[thread])]
        if new and threads and len(same) == len(side.heads):
            head = threads[0]
            version = next_version(head.version, self._generation)
            self._final[head.thread] = self._codec.rewrite(head, version=version, count=head.count, owner=head.owner)

    def _threads(self) -> list[Head]:
        """The heads that both will have, of threads."""
        return [head for head in self._final.values() if not _is_record(head)]

    async def _claim(self, head: Head, here: LineageRecords, there: LineageRecords) -> _Claim:
        """The claim of a head: as it is, or moved to the newest checkpoint that was not deleted with its thread."""
        if _is_record(head):
            return _Claim(head, here, there)
        from_source = here is self._theirs
        deletions = await self._find_deletions(head, from_source)
        self._looked_up.append((from_source, head, deletions))
        end = self._rule.fate(head, deletions) if from_source else fate(head, deletions)
        if end is Fate.DEAD or (end is Fate.ALIVE and not deletions.others):
            return _Claim(head, here, there, end)
        seen = self._union.seen_by(deletions, head.owner, there)
        if end is not Fate.ALIVE and seen(head.position) is not None:  # whoever deleted the thread has been here
            unseen = self._union.newest_unseen(head.owner, seen)
            if unseen is None:
                return _Claim(head, here, there, Fate.DEAD)
            (branch, _), step = unseen
            head = self._codec.move(head, branch, step)  # it was undone, and is kept all the same
            end = Fate.OUSTED if end is Fate.OUSTED else Fate.UNSEEN
        if all(one.owner != head.owner for one in there.heads.values()):
            self._ended.append((head.owner, seen))  # else an earlier merge kept it there under another name
        return _Claim(head, here, there, end)

    async def _find_deletions(self, head: Head, from_source: bool) -> Deletions:
        return await find_deletions(self._deleters if from_source else (self._source,), head)

    async def _other_lineage(self, side: Engine, thread: str) -> Head | None:
        """The head of a thread of this name in another lineage."""
        other = await side.head(thread)
        if other is not None and other.lineage == self._lineage:
            raise Refused(thread, f"thread {thread!r} was created just now: look again")
        return other

    async def _decide_alone(self, head: Head, here: LineageRecords, there: LineageRecords) -> None:
        """Decide about a thread that only one side has, in this lineage."""
        claim, from_source = await self._claim(head, here, there), here is self._theirs
        other = await self._other_lineage(self._target if from_source else self._source, head.thread)
        stays = claim.may_stay
        if from_source and stays:
            # An earlier merge may have given it another name on one side, and not come to do so on the other.
            renamed = not _is_record(head) and any(one.owner == head.owner for one in self._final.values())
            stays = self._rule.begins(head) and not renamed
        if stays and other is not None:
            wins = self._rule.wins
            stays = wins(head, other, ours_seen=False) if from_source else not wins(other, head, ours_seen=False)
            if stays:
                self._merged.waits_for.add(other.lineage)  # it has to free the name first
        if not stays:
            self._final.pop(head.thread, None)
            self._lose(claim)
        elif from_source and other is not None:
            self._waiting.add(head.thread)
        else:
            self._final[head.thread] = head

    async def _decide_between(self, ours: Head, theirs: Head) -> None:
        """Decide between the two heads of a thread, or of two threads of one name."""
        if ours.kind == theirs.kind == "keys" and ours.created != theirs.created:
            raise Apart(ours.thread, _RINGS)
        wins = self._rule.wins(theirs, ours, ours_seen=self._theirs.step(ours.position) is not None)
        if ours.owner == theirs.owner:
            there, here = _Claim(theirs, self._theirs, self._ours), _Claim(ours, self._ours, self._theirs)
        else:
            there = await self._claim(theirs, self._theirs, self._ours)
            here = await self._claim(ours, self._ours, self._theirs)
            wins = there.may_stay and (wins or not here.may_stay)
        if wins:
            self._final[ours.thread] = theirs
        self._lose(here if wins else there)

    def _lose(self, claim: _Claim) -> None:
        if claim.fate is not Fate.DEAD:
            self._lost.append(claim)

    async def _keep(self, lost: _Claim) -> None:
        """Keep a head that lost, if it has checkpoints that the other side does not have."""
        head = lost.head
        if _is_record(head):
            return
        winner, owners = self._final.get(head.thread), {one.owner for one in self._final.values()}
        same = lost.fate is Fate.UNSEEN or head.owner in owners  # perhaps under another name
        if same and winner is not None and leads_through(winner.position, head.position, self._union.branches.get):
            return  # the winner continued it, even if its side has no copy of this row, as a spool
        if not self._union.has_unique(head, lost.here, lost.there, same=same, end=lost.fate, owners=owners):
            return
        name = await self._free_name(head.thread)
        alive = head.owner in owners
        version = next_version(0 if alive else head.version, self._generation)
        owner, count = (os.urandom(16), 0) if alive else (head.owner, head.count)
        self._final[name] = self._codec.rewrite(head, version=version, count=count, name=name, owner=owner)
        self._diverged.append((head.thread, name))
        self._ended.append((head.owner, self._union.deleted_again(head.owner, lost.there)))

    def _separate_owners(self) -> None:
        """Make forks of all heads but the newest of an incarnation. One side may have given it another name, while the
        other one continued it under its own: then each of the two would count the rows of both."""
        owners: set[bytes] = set()
        for head in sorted(self._threads(), key=lambda one: one.version, reverse=True):
            if head.owner in owners:
                version, owner = next_version(head.version, self._generation), os.urandom(16)
                fork = self._codec.rewrite(head, version=version, count=0, name=head.thread, owner=owner)
                self._final[head.thread] = fork
            owners.add(head.owner)

    async def _free_name(self, thread: str) -> str:
        number = 1
        while True:
            name = diverged(thread, number)
            taken = name in self._final or name in self._theirs.heads
            if not taken and await self._target.head(name) is None and await self._source.head(name) is None:
                return name
            number += 1

    def _counted(self, head: Head) -> Head:
        """A head that counts its checkpoints of both sides. It stays as it is if the side that it came from has them
        all, with the same marks; both, if they have the same head: one may have more rows of it under another name."""
        sides = [side for side in (self._ours, self._theirs) if side.heads.get(head.thread) == head]
        current = not self._rule.renews or generation_of(head.version) >= self._generation
        count = self._union.count(head)
        rows = self._union.own_rows(head.owner)
        if count == head.count and not sides:
            return head  # it was made just now
        # Marks may have come before the head: it waited for its name, which a thread of another lineage had.
        whole = count == head.count and all(side.step(at) == step for side in sides for at, step in rows.items())
        if current and whole:
            return head
        version = next_version(head.version, self._generation)
        return self._codec.rewrite(head, version=version, count=count, owner=head.owner)

    # -- writing -------------------------------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Write what the target lacks; `Refused` if one of its heads has moved, or if it takes another attempt."""
        whole = await self._bring(self._source, self._target, self._theirs, self._ours)
        self._merged.diverged += self._diverged
        if not whole:
            raise _again(self._lineage)

    async def overwrite(self) -> None:
        """Make the source equal to the target; `Refused` as above."""
        taken = set(self._waiting)
        for thread in self._final.keys() - self._theirs.heads.keys():
            other = await self._source.head(thread) if self._merged.waits_for else None
            if other is not None and other.lineage != self._lineage:
                taken.add(thread)  # its lineage is merged next, and frees the name
        if not await self._bring(self._target, self._source, self._ours, self._theirs, taken):
            raise _again(self._lineage)
        if not taken:
            await self._drop_leftovers()

    async def _drop_leftovers(self) -> None:
        """Drop from the source what belongs to no thread and what the target never had: no sweep would find it."""
        living, ours, theirs = self._living(self._threads()), self._ours, self._theirs
        branches = [id for id in theirs.branches if id not in ours.branches and id not in living]
        rows = [
            (id, number)
            for id, steps in theirs.steps.items()
            if id not in branches
            for number in steps
            if number > living.get(id, 0) and ours.step((id, number)) is None
        ]
        if branches or rows:
            expect = [(head.thread, head.key) for head in self._final.values()]
            await self._source.drop(Drop(self._lineage, expect, rows=rows[::-1], branches=branches))

    async def _bring(
        self, source: Engine, target: Engine, has: LineageRecords, lacks: LineageRecords, taken: Collection[str] = ()
    ) -> bool:
        """Copy rows to a side, and change its heads in one commit with those that were held back. False if it has to
        be done once more."""
        # A sweep of a lineage without heads does not notice that a copy needs its branches. So the heads that come
        # first are older than those of the other side: if a sweep has freed a branch meanwhile, or this process dies,
        # the two still differ. From then on sweeps notice, and the next attempt brings what is missing and the heads.
        # (A spool has not all rows that its heads need: its delivery checks them.)
        whole = bool(lacks.heads) or not lacks.branches or not self._rule.whole
        heads = {thread: head for thread, head in self._final.items() if thread not in taken}
        heads |= {thread: lacks.heads[thread] for thread in taken if thread in lacks.heads}  # they stay for now
        # A row at which a thread stands that waits for its name comes with that, unless another thread needs it now.
        coming = furthest((head.position for head in heads.values() if not _is_record(head)), self._union.branches.get)
        waiting = {self._final[thread].position for thread in taken if thread in self._final}
        waiting = {(id, number) for id, number in waiting if number > coming.get(id, 0)}
        # The target gets what its heads need; the source becomes equal, with the garbage that a sweep would find. Only
        # a sweep of a lineage without heads would not notice that more garbage has come.
        equal = target is self._source and bool(lacks.heads)
        lacking = self._lacking(has, lacks, None if equal else heads.values())
        lacking = {
            branch: [number for number in numbers if (branch.id, number) not in waiting]
            for branch, numbers in lacking.items()
        }
        if lacking:
            await copy_blobs(source, target, self._lineage)
        hold = {head.position for head in (*has.heads.values(), *lacks.heads.values())}
        held = await copy_rows(source, target, self._lineage, lacking, lacks.branches, hold, has)
        new = {(branch.id, number) for branch, numbers in lacking.items() for number in numbers}
        marks = {(mark.branch, mark.step): mark for mark in held.marks}
        for at, mark in self._union.marks.items():
            known = (has if at in new else lacks).step(at)
            if known is not None and (known.mark != mark.data or at in marks):
                marks[at] = mark
        if not whole:
            heads = {thread: self._older(head) for thread, head in heads.items()}
        swaps = []
        for thread in {**lacks.heads, **heads}:  # also those that stay: they must not have moved
            old = lacks.heads.get(thread)
            swaps.append(Swap(thread, None if old is None else old.key, heads.get(thread)))
        if heads != lacks.heads or held.rows or held.branches or marks:
            if target is self._target and self._rule.whole:
                await has.check_unmoved(source, self._lineage)  # its threads may have been deleted since
            await self._check_deletions(from_source=target is self._target)
            await target.commit(msgspec.structs.replace(held, swaps=swaps, marks=list(marks.values())))
        return whole or not heads

    async def _check_deletions(self, *, from_source: bool) -> None:
        """Raise `Refused` if a name was given to a thread and deleted since it was looked up: the side that is written
        to has no head of that name, as before."""
        for of_source, head, known in self._looked_up:
            if of_source is from_source and await self._find_deletions(head, from_source) != known:
                raise Refused(head.thread, f"thread {head.thread!r} was deleted just now: look again")

    def _older(self, head: Head) -> Head:
        """A head that loses against this one."""
        if _is_record(head):
            return head
        return self._codec.rewrite(head, version=head.version - 1, count=head.count, owner=head.owner)

    def _lacking(
        self, has: LineageRecords, lacks: LineageRecords, heads: Iterable[Head] | None
    ) -> dict[Branch, Collection[int]]:
        """The rows that one side lacks; only those that these heads need, or that belong to their threads."""
        living = self._living(self._threads() if heads is None else [one for one in heads if not _is_record(one)])
        found: dict[Branch, Collection[int]] = {}
        for id, branch in has.branches.items():
            known = lacks.steps.get(id, {})
            last = LAST_STEP if heads is None else living.get(id, -1)
            numbers = [number for number in has.steps[id] if number not in known and number <= last]
            if numbers or (last >= 0 and id not in lacks.branches):
                found[branch] = numbers
        return found

    def _living(self, heads: list[Head]) -> dict[bytes, int]:
        """The last step of each branch that belongs to one of these heads, or that such a branch or head builds on."""
        owners = {head.owner for head in heads}
        own = [branch for branch in self._union.branches.values() if branch.owner in owners]
        origins = [branch.origin for branch in own if branch.origin is not None]  # also of what was abandoned
        reach = furthest((*(head.position for head in heads), *origins), self._union.branches.get)
        return {**reach, **{branch.id: LAST_STEP for branch in own}}


def _again(lineage: str) -> Refused:
    return Refused(lineage, f"lineage {lineage!r} has its first heads on a side: look again")


def _is_record(head: Head) -> bool:
    """True for a record that is no thread: it has no row."""
    return head.step == 0
