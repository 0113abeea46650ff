"""Merging: makes one lineage equal on two stores, in two operations.

`absorb` brings everything that a source has into a target: rows, branches and blobs are united, of two marks on a row
the later one counts, and of two heads of a thread the one with the higher version. A head that loses, with checkpoints
that the other does not have, becomes a thread `name#diverged-n`. Deletions are told from threads that one side never
had by their tombstones. `overwrite` then makes the source equal to the target, which has everything.

Both are optimistic: they read all heads of the lineage first, copy what is missing, and change the heads in one commit
that is refused if any head has moved since. So a save, a sweep or another merge at the same time makes one of the two
start over, and a merge that dies at any point is simply made again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from backtrail.engines.base import (
    LAST_STEP,
    Branch,
    Commit,
    Drop,
    Engine,
    Head,
    Mark,
    Position,
    Step,
    Swap,
    generation_of,
    next_version,
)
from backtrail.engines.branch_origins import furthest, leads_through, walk_back
from backtrail.engines.conflicts import Refused
from backtrail.replicate import limits
from backtrail.replicate.deleted_threads import Deletions, Fate, fate, find_deletions
from backtrail.replicate.lineage_copy import Copied, LineageRecords, copy_blobs, copy_rows

LABEL = "diverged"
_STAYS = (Fate.ALIVE, Fate.NEWER)  # of heads that keep the names of their threads
_SUFFIX = re.compile(rf"#{LABEL}-\d+$")
_LONGEST = 480  # characters of a name that another name is made from
_APART = (
    "thread {thread!r} was written to in both stores after one was made from the other (both have their own step "
    "{step}): nothing was changed; copy one of them into an empty store"
)
_RINGS = "the two stores are sealed with different key rings: copy one into the other with store.copy_to()"


class Apart(Refused):
    """Both stores continued the same branch, or are sealed with different keys: they have no union."""


class Outdated(Refused):
    """One side has heads of a newer generation than the one that is to be merged: the roles have to be read again."""


class MarkFacts(NamedTuple):
    """The part of a mark that a merge needs. Marks are ordered by it: a deletion is final, else the later counts."""

    deleted: bool  #: by a user or by retention, and not because the same save exists twice
    at: int
    duplicate: bool  #: deleted because the same save exists twice


class Codec(Protocol):
    """Opens and seals the records of a store, which engines cannot read. Raises `Corrupt` for those of others."""

    def rewrite(self, head: Head, *, version: int, count: int, name: str | None = None, owner: bytes) -> Head:
        """A head with other fields; `name`: as the head of another thread."""

    def mark_facts(self, branch: bytes, step: Step) -> MarkFacts | None:
        """The facts of a step's mark; None if it has none."""

    def mark_deleted(self, branch: bytes, step: Step, *, duplicate: bool) -> Mark:
        """A mark that deletes a checkpoint; `duplicate`: because the same save exists twice."""

    def mark_restored(self, branch: bytes, step: Step) -> Mark:
        """A mark that restores a checkpoint which was deleted as a duplicate."""


class Rule:
    """Decides between the heads that source and target have of one thread. This one is for the sides of a mirror."""

    whole = True  #: the source is a store: what it lacks it may have deleted
    renews = False  #: heads get versions of the current generation, because one of the two may be a mirror

    def fate(self, theirs: Head, deletions: Deletions, *, seen: bool) -> Fate:
        """The effect of deletions on a head of the source. `seen`: the target has its row."""
        return fate(theirs, deletions, seen=seen)

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


class _Lost(msgspec.Struct, frozen=True):
    """A head that lost, with the records of its own side and of the other one."""

    head: Head
    here: LineageRecords
    there: LineageRecords
    fate: Fate
    again: bool = False  #: the other side has the same thread under another name


class Merged(msgspec.Struct):
    """Everything that a merge did."""

    copied: Copied
    diverged: list[tuple[str, str]] = []  #: threads whose heads lost, and the names under which those are kept
    waits_for: set[str] = set()  #: lineages whose threads have names on the other side that threads of this one need


def _is_newer(one: Head, other: Head) -> bool:
    """True if a head is newer than another of the same name. Two threads have the same number of changes by chance."""
    if one.owner != other.owner:
        return generation_of(one.version) > generation_of(other.version)
    return one.version > other.version


async def merge(
    target: Engine,
    source: Engine,
    lineage: str,
    codec: Codec,
    *,
    generation: int = 0,
    rule: Rule | None = None,
    copied: Copied | None = None,
) -> Merged:
    """Make `lineage` equal on both engines. New versions are made on the target, in this generation of a mirror: the
    target is its active side. Retried while heads move; `Refused` if they keep moving."""
    merged = Merged(copied or Copied())
    await _merge(target, source, lineage, codec, generation, rule or Rule(), merged, {lineage})
    return merged


async def _merge(
    target: Engine,
    source: Engine,
    lineage: str,
    codec: Codec,
    generation: int,
    rule: Rule,
    merged: Merged,
    seen: set[str],
) -> None:
    for _ in limits.COMPARISON.attempts():
        theirs = {head.thread: head for head in await source.heads(lineage)}
        ours = {head.thread: head for head in await target.heads(lineage)}
        if ours == theirs and not await _has_leftovers(target, source, lineage):
            if not ours:
                await clear(target, lineage)
                await clear(source, lineage)
            return
        newest = max(generation_of(head.version) for head in (*ours.values(), *theirs.values()))
        if not rule.renews and newest > generation:
            raise Outdated(lineage, f"lineage {lineage!r} was written to in generation {newest}: read the roles again")
        merged.waits_for.clear()
        try:
            records = await LineageRecords.read(source, lineage, theirs)
            absorption = Absorption(target, source, lineage, codec, generation, rule, merged)
            await absorption.decide(await LineageRecords.read(target, lineage, ours), records)
            await absorption.commit()
            await absorption.overwrite()
        except (Apart, Outdated):
            raise
        except Refused:
            continue
        waits_for = set(merged.waits_for)
        for other in waits_for - seen:
            await _merge(target, source, other, codec, generation, rule, merged, seen | {other})
        if absorption.waits and waits_for & (seen - {lineage}):
            return  # for a lineage whose merge waits for this one: it is done again after that
    raise Refused(lineage, f"lineage {lineage!r} kept moving while it was copied: it is tried again later")


class Absorption:
    """Brings what a source has of a lineage into a target."""

    _ours: LineageRecords
    _theirs: LineageRecords
    _branches: dict[bytes, Branch]

    def __init__(
        self,
        target: Engine,
        source: Engine,
        lineage: str,
        codec: Codec,
        generation: int,
        rule: Rule,
        merged: Merged,
        sides: Collection[Engine] = (),
    ) -> None:
        self._target, self._source = target, source
        self._lineage = lineage
        self._codec, self._generation, self._rule = codec, generation, rule
        self._merged = merged
        self._sides = sides or (target,)  # those that may have tombstones of threads of the source
        self._final: dict[str, Head] = {}  # the heads that both will have
        self._lost: list[_Lost] = []
        self._ended: list[tuple[bytes, LineageRecords]] = []  # incarnations that were deleted, by a side with these
        self._diverged: list[tuple[str, str]] = []
        self.waits: set[str] = set()  #: threads of the source whose names the target has to free first
        self._marks: dict[Position, Mark] = {}  # on rows that exist already

    # -- deciding ------------------------------------------------------------------------------------------------------

    async def decide(self, ours: LineageRecords, theirs: LineageRecords) -> None:
        """Find the heads, marks and counts that both will have; `Apart` if there is no union."""
        self._ours, self._theirs = ours, theirs
        self._branches = {**theirs.branches, **ours.branches}
        self._merge_marks()
        self._final = dict(ours.heads)
        for thread, head in ours.heads.items():
            if self._rule.whole and thread not in theirs.heads:
                await self._decide_ours(head)
        for head in theirs.heads.values():
            if self._ours.heads.get(head.thread) != head:
                await self._decide_theirs(head)
        for lost in self._lost:
            await self._keep(lost)
        for owner, there in self._ended:
            self._delete_seen(owner, there)
        for thread, head in self._final.items():
            if not _is_record(head):
                self._final[thread] = self._counted(head)

    async def _fate(self, head: Head, here: LineageRecords, there: LineageRecords) -> Fate:
        """The fate of a head of one side, as far as the other side knows it."""
        seen = there.step(head.position) is not None
        if here is self._theirs:
            end = self._rule.fate(head, await find_deletions(self._sides, head), seen=seen)
        else:
            end = fate(head, await find_deletions((self._source,), head), seen=seen)
        if end in (Fate.NEWER, Fate.UNSEEN):
            self._ended.append((head.owner, there))
        return end

    async def _decide_ours(self, head: Head) -> None:
        """Decide about a head that only the target has."""
        if _is_record(head):
            return
        end = await self._fate(head, self._ours, self._theirs)
        other = await self._other_lineage(self._source, head.thread)
        stays = end in _STAYS
        if stays and other is not None and not self._rule.wins(other, head, ours_seen=False):
            self._merged.waits_for.add(other.lineage)  # it has to free the name first
        elif not stays or other is not None:
            del self._final[head.thread]
            if end is not Fate.DEAD:
                self._lost.append(_Lost(head, self._ours, self._theirs, end))

    async def _other_lineage(self, side: Engine, thread: str) -> Head | None:
        """The head of a thread of this name in another lineage."""
        other = await side.head(thread)
        if other is not None and other.lineage == self._lineage:
            raise Refused(thread, f"thread {thread!r} was created just now: look again")
        return other

    async def _decide_theirs(self, head: Head) -> None:
        """Decide about a head of the source that the target does not have."""
        here = self._ours.heads.get(head.thread)
        if here is not None and head.kind == here.kind == "keys" and head.created != here.created:
            raise Apart(head.thread, _RINGS)
        if here is None:
            await self._decide_new(head)
            return
        wins = self._rule.wins(head, here, ours_seen=self._theirs.step(here.position) is not None)
        end = Fate.ALIVE
        if head.owner != here.owner and not _is_record(head):
            theirs = await self._fate(head, self._theirs, self._ours)
            ours = await self._fate(here, self._ours, self._theirs)
            wins = theirs in _STAYS and (ours not in _STAYS or wins)
            end = ours if wins else theirs
        if wins:
            self._final[head.thread] = head
        if end is not Fate.DEAD:
            lost = (here, self._ours, self._theirs) if wins else (head, self._theirs, self._ours)
            self._lost.append(_Lost(*lost, end))

    async def _decide_new(self, head: Head) -> None:
        """Decide about a thread that only the source has."""
        end = Fate.ALIVE if _is_record(head) else await self._fate(head, self._theirs, self._ours)
        other = await self._other_lineage(self._target, head.thread)
        stays = end in _STAYS and self._rule.begins(head)
        renamed = any(one.owner == head.owner for one in self._final.values()) and not _is_record(head)
        if stays and renamed:
            # An earlier merge gave it this name on the source, before the thread could lose its own name here.
            self._lost.append(_Lost(head, self._theirs, self._ours, end, again=True))
        elif stays and other is None:
            self._final[head.thread] = head
        elif stays and other is not None and self._rule.wins(head, other, ours_seen=False):
            self._merged.waits_for.add(other.lineage)
            self.waits.add(head.thread)
        elif end is not Fate.DEAD:
            self._lost.append(_Lost(head, self._theirs, self._ours, end))

    async def _keep(self, lost: _Lost) -> None:
        """Keep a head that lost, if it has checkpoints that the other side does not have."""
        head = lost.head
        if _is_record(head) or not self._has_unique(lost):
            return
        name = await self._free_name(head.thread)
        alive = any(one.owner == head.owner for one in self._final.values())
        version = next_version(0 if alive else head.version, self._generation)
        owner, count = (os.urandom(16), 0) if alive else (head.owner, head.count)
        self._final[name] = self._codec.rewrite(head, version=version, count=count, name=name, owner=owner)
        self._diverged.append((head.thread, name))

    def _delete_seen(self, owner: bytes, there: LineageRecords) -> None:
        """Delete the checkpoints of a deleted thread that whoever deleted it had seen; only the others are kept, and
        those that forks inherited."""
        forks = [head for head in self._final.values() if head.owner != owner and not _is_record(head)]
        renamed = [head for head in there.heads.values() if head.owner == owner]
        inherited = furthest((head.position for head in (*forks, *renamed)), self._branches.get)
        for id, steps in there.steps.items():
            if self._branches[id].owner == owner:
                for number, step in steps.items():
                    if number > inherited.get(id, 0) and not self._is_deleted(id, step):
                        self._marks[id, number] = self._codec.mark_deleted(id, step, duplicate=False)

    def _has_unique(self, lost: _Lost) -> bool:
        """True if a head that lost has a checkpoint that the other side does not have. A save that was repeated there
        is recognized by its id."""
        head, here, there = lost.head, lost.here, lost.there
        winner = self._final.get(head.thread)
        same = lost.fate is Fate.UNSEEN or lost.again or (winner is not None and winner.owner == head.owner)
        passed = winner is not None and leads_through(winner.position, head.position, self._branches.get)
        if same and (passed or there.step(head.position) is not None):
            return False  # the other side has been here, and moved on
        owners = {one.owner for one in self._final.values()}
        if lost.fate in (Fate.UNSEEN, Fate.OUSTED):  # whoever deleted the name knew all threads of it
            owners |= {branch.owner for branch in there.branches.values()}
            owners -= {head.owner} if lost.fate is Fate.OUSTED else set()
        known = [steps for id, steps in there.steps.items() if there.branches[id].owner in owners]
        again = {step.id for steps in known for step in steps.values()}
        own: list[bool] = []
        for segment in walk_back(head.position, self._branches.get):
            if segment.branch.owner != head.owner:
                break  # what a fork inherited
            for number, step in here.steps.get(segment.branch.id, {}).items():
                at = (segment.branch.id, number)
                if number <= segment.last and not (same and there.step(at) is not None):
                    own.append(step.id not in again and not self._is_deleted(at[0], step))
        return any(own) or not (own or same)  # a fork has nothing of its own at first

    def _is_deleted(self, branch: bytes, step: Step) -> bool:
        facts = self._codec.mark_facts(branch, step)
        return facts is not None and (facts.deleted or facts.duplicate)

    async def _free_name(self, thread: str) -> str:
        number = 1
        while True:
            name = f"{_SUFFIX.sub('', thread)[:_LONGEST]}#{LABEL}-{number}"
            taken = name in self._final or name in self._theirs.heads
            if not taken and await self._target.head(name) is None and await self._source.head(name) is None:
                return name
            number += 1

    def _merge_marks(self) -> None:
        """Choose between the marks of rows that both sides have."""
        for id in self._ours.steps.keys() & self._theirs.steps.keys():
            ours, theirs = self._ours.steps[id], self._theirs.steps[id]
            for number in ours.keys() & theirs.keys():
                one, two = ours[number], theirs[number]
                if one.digest != two.digest:
                    thread = self._branches[id].thread
                    raise Apart(thread, _APART.format(thread=thread, step=number))
                if one.mark != two.mark:
                    later = max(one, two, key=partial(self._mark_rank, id))
                    self._marks[id, number] = Mark(id, number, later.mark)

    def _counted(self, head: Head) -> Head:
        """A head that counts its checkpoints of both sides. It stays as it is if the side that it came from has them
        all, with the same marks."""
        ours, theirs = self._ours.heads.get(head.thread), self._theirs.heads.get(head.thread)
        if ours is not None and ours == theirs:
            return head
        sides = [side for side, known in ((self._ours, ours), (self._theirs, theirs)) if known == head]
        union: dict[Position, Step] = {}
        for id, branch in self._branches.items():
            if branch.owner == head.owner:
                steps = {**self._theirs.steps.get(id, {}), **self._ours.steps.get(id, {})}
                for number, step in steps.items():
                    mark = self._marks.get((id, number))
                    union[id, number] = step if mark is None else step._replace(mark=mark.data)
        current = not self._rule.renews or generation_of(head.version) >= self._generation
        if current and sides and all(sides[0].step(at) == step for at, step in union.items()):
            return head
        self._mark_duplicates(head, union)
        count = sum(not self._is_deleted(at[0], step) or at == head.position for at, step in union.items())
        if not sides and count == head.count:
            return head  # it was made just now
        version = next_version(head.version, self._generation)
        return self._codec.rewrite(head, version=version, count=count, owner=head.owner)

    def _mark_rank(self, branch: bytes, step: Step) -> tuple[MarkFacts, bytes]:
        facts = self._codec.mark_facts(branch, step)
        return facts or MarkFacts(False, -1, False), step.mark or b""

    def _mark_duplicates(self, head: Head, union: dict[Position, Step]) -> None:
        """Mark saves that exist twice among these rows, because one side repeated them. The one in the history stays,
        or else the first. If each side has removed the other's copy, one of them is restored."""
        by_id: dict[bytes, list[Position]] = {}
        for at, step in sorted(union.items()):
            by_id.setdefault(step.id, []).append(at)
        way = {segment.branch.id: segment.last for segment in walk_back(head.position, self._branches.get)}
        for same in by_id.values():
            facts = {at: self._codec.mark_facts(at[0], union[at]) for at in same}
            if len(same) == 1 or any(one is not None and one.deleted for one in facts.values()):
                continue
            alive = [at for at in same if (one := facts[at]) is None or not one.duplicate]
            in_history = [at for at in same if at[1] <= way.get(at[0], 0)]
            stays = (in_history or alive or same)[0]
            for at in same:
                if (at in alive) is not (at == stays):
                    restore = self._codec.mark_restored
                    delete = partial(self._codec.mark_deleted, duplicate=True)
                    mark = (restore if at == stays else delete)(at[0], union[at])
                    self._marks[at] = mark
                    union[at] = union[at]._replace(mark=mark.data)

    # -- writing -------------------------------------------------------------------------------------------------------

    async def commit(self) -> None:
        """Write what the target lacks; `Refused` if one of its heads has moved."""
        await self._bring(self._source, self._target, self._theirs, self._ours)
        for thread, name in self._diverged:
            self._merged.diverged.append((thread, name))

    async def overwrite(self) -> None:
        """Make the source equal to the target; `Refused` if one of its heads has moved."""
        taken = set()
        for thread in self._final.keys() - self._theirs.heads.keys():
            other = await self._source.head(thread) if self._merged.waits_for else None
            if other is not None and other.lineage != self._lineage:
                taken.add(thread)  # its lineage is merged next, and frees the name
        await self._bring(self._target, self._source, self._ours, self._theirs, taken)
        if not taken and not self.waits:
            await self._drop_leftovers()

    async def _drop_leftovers(self) -> None:
        """Drop from the source what belongs to no thread and what the target never had: no sweep would find it."""
        living, ours, theirs = self._living(self._final.values()), self._ours, self._theirs
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
    ) -> None:
        """Copy rows to a side, and change its heads in one commit with those that were held back."""
        heads = {thread: head for thread, head in self._final.items() if thread not in taken}
        if target is self._source:
            heads |= {thread: self._theirs.heads[thread] for thread in self.waits}
        waiting = {self._final[thread].position for thread in taken}  # they come with their heads
        # The target gets what its heads need; the source becomes equal, with the garbage that a sweep would find.
        lacking = self._lacking(has, lacks, heads.values() if target is self._target else None)
        lacking = {
            branch: [number for number in numbers if (branch.id, number) not in waiting]
            for branch, numbers in lacking.items()
        }
        if lacking:
            await copy_blobs(source, target, self._lineage, self._merged.copied)
        hold = {head.position for head in (*has.heads.values(), *lacks.heads.values())}
        held = await copy_rows(source, target, self._lineage, lacking, lacks.branches, hold, self._merged.copied)
        new = {(branch.id, number) for branch, numbers in lacking.items() for number in numbers}
        marks = {(mark.branch, mark.step): mark for mark in held.marks}
        for at, mark in self._marks.items():
            known = (has if at in new else lacks).step(at)
            if known is not None and (known.mark != mark.data or at in marks):
                marks[at] = mark
        swaps = []
        for thread in {**lacks.heads, **heads}:  # also those that stay: they must not have moved
            old = lacks.heads.get(thread)
            swaps.append(Swap(thread, None if old is None else old.key, heads.get(thread)))
        if heads != lacks.heads or held.rows or held.branches or marks:
            if target is self._target and self._rule.whole:
                await has.check_unmoved(source, self._lineage)  # its threads may have been deleted since
            commit = Commit(self._lineage, swaps, held.rows, held.branches, list(marks.values()))
            await target.commit(commit)
            self._merged.copied.add(commit)

    def _lacking(
        self, has: LineageRecords, lacks: LineageRecords, heads: Iterable[Head] | None
    ) -> dict[Branch, Collection[int]]:
        """The rows that one side lacks; only those that these heads need, or that belong to their threads."""
        living = self._living(self._final.values() if heads is None else heads)
        found: dict[Branch, Collection[int]] = {}
        for id, branch in has.branches.items():
            known = lacks.steps.get(id, {})
            last = LAST_STEP if heads is None else living.get(id, -1)
            numbers = [number for number in has.steps[id] if number not in known and number <= last]
            if numbers or (last >= 0 and id not in lacks.branches):
                found[branch] = numbers
        return found

    def _living(self, heads: Iterable[Head]) -> dict[bytes, int]:
        """The last step of each branch that is in the history of one of these heads, or belongs to one of them."""
        heads = [head for head in heads if not _is_record(head)]
        owners = {head.owner for head in heads}
        reach = furthest((head.position for head in heads), self._branches.get)
        return {**reach, **{id: LAST_STEP for id, branch in self._branches.items() if branch.owner in owners}}


def _is_record(head: Head) -> bool:
    """True for a record that is no thread: it has no row."""
    return head.step == 0


async def _has_leftovers(target: Engine, source: Engine, lineage: str) -> bool:
    """True if a merge changed all heads, but was stopped before it had dropped what only the source has."""
    known = {branch.id for branch in await target.branches(lineage)}
    return any(branch.id not in known for branch in await source.branches(lineage))


async def clear(side: Engine, lineage: str) -> None:
    """Delete everything of a lineage in which no thread is left."""
    branches = [branch.id for branch in await side.branches(lineage)]
    blobs = [id for id, _ in await side.blob_ids(lineage)] if branches else []
    if branches:
        try:
            await side.drop(Drop(lineage, (), branches=branches, blobs=blobs))
        except Refused:
            return  # a thread appeared: left to the next merge
