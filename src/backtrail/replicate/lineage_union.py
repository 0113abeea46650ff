"""The union of what two sides have of a lineage: which marks count, which checkpoints, and how many. Does no I/O."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from backtrail.engines.base import Branch, Head, Mark, Position, Step
from backtrail.engines.branch_origins import furthest, leads_through, walk_back
from backtrail.replicate.deleted_threads import Deletions, Fate
from backtrail.replicate.lineage_copy import LineageRecords
from backtrail.replicate.merge_rules import Annotated, Apart, Codec, MarkFacts
from backtrail.replicate.role_record import branch_prefix, prefix_of

Seen = Callable[[Position], int | None]  #: the generation in which somebody deleted a thread who had this row
_APART = (
    "thread {thread!r} was written to in both stores after one was made from the other (both have their own step "
    "{step}): nothing was changed; copy one of them into an empty store"
)


class LineageUnion:
    """The rows of both sides. `marks` are those that at least one side has to get; `Apart` if there is no union."""

    def __init__(self, ours: LineageRecords, theirs: LineageRecords, codec: Codec) -> None:
        self.ours, self.theirs = ours, theirs
        self.branches: dict[bytes, Branch] = {**theirs.branches, **ours.branches}
        self.marks: dict[Position, Mark] = {}
        self._codec = codec
        self._by_owner: dict[bytes, list[bytes]] = {}
        for branch in self.branches.values():
            self._by_owner.setdefault(branch.owner, []).append(branch.id)
        self._by_id: dict[bytes, set[Position]] = {}
        for side in (ours, theirs):
            for id, steps in side.steps.items():
                for number, step in steps.items():
                    self._by_id.setdefault(step.id, set()).add((id, number))
        for id in ours.steps.keys() & theirs.steps.keys():
            for number in ours.steps[id].keys() & theirs.steps[id].keys():
                one, two = ours.steps[id][number], theirs.steps[id][number]
                if one.digest != two.digest:
                    thread = self.branches[id].thread
                    raise Apart(thread, _APART.format(thread=thread, step=number))
                if one.mark != two.mark:
                    later = max(one, two, key=partial(self._rank, id))
                    self.marks[id, number] = Mark(id, number, later.mark)

    def _rank(self, branch: bytes, step: Step) -> tuple[bool, bool, int, bytes]:
        """Orders the marks of one row: a deletion is final, else the later one counts. That a save exists twice is
        found again by every merge, so it does not outweigh an annotation."""
        facts = self._codec.mark_facts(branch, step) or MarkFacts(False, -1, False)
        return facts.deleted, facts.at >= 0 and not facts.duplicate, facts.at, step.mark or b""

    def _is_deleted(self, branch: bytes, step: Step) -> bool:
        facts = self._codec.mark_facts(branch, step)
        return facts is not None and (facts.deleted or facts.duplicate)

    def _step(self, at: Position) -> Step | None:
        return self.ours.step(at) or self.theirs.step(at)

    def own_rows(self, owner: bytes) -> dict[Position, Step]:
        """The rows that this incarnation of a thread wrote, with the marks that count."""
        found: dict[Position, Step] = {}
        for id in self._by_owner.get(owner, ()):
            for number, step in {**self.theirs.steps.get(id, {}), **self.ours.steps.get(id, {})}.items():
                mark = self.marks.get((id, number))
                found[id, number] = step if mark is None else step._replace(mark=mark.data)
        return found

    def count(self, head: Head) -> int:
        """The number of checkpoints that a thread with this head has, once it is settled which of its rows count."""
        rows = self.own_rows(head.owner)
        way = {segment.branch.id: segment.last for segment in walk_back(head.position, self.branches.get)}
        by_id: dict[bytes, list[Position]] = {}
        for at, step in sorted(rows.items(), key=lambda row: (row[0][1] > way.get(row[0][0], 0), row[0])):
            by_id.setdefault(step.id, []).append(at)  # those in the history first
        return sum(self._settle(same, rows, head.position, way) for same in by_id.values())

    def _settle(self, same: list[Position], rows: dict[Position, Step], tip: Position, way: dict[bytes, int]) -> bool:
        """Settle which row of a save counts, and how it is annotated; False if none does. There may be several, because
        one side repeated it: the one in the history stays, or else the first that no side has removed. None stays if
        somebody deleted the save, who knew one of them; unless the thread is at it, or it was made again after that."""
        if rows[same[0]].mark is None and len(self._by_id[rows[same[0]].id]) == 1:
            return True  # like nearly all: it was made once, and nobody has said anything of it
        facts = {at: self._codec.mark_facts(at[0], rows[at]) for at in same}
        alive = [at for at in same if not self._is_deleted(at[0], rows[at])]
        stays: Position | None = same[0] if same[0][1] <= way.get(same[0][0], 0) else (alive or same)[0]
        gone = {at: one.generation for at, one in facts.items() if one is not None and one.deleted}
        deleted_in = max(gone.values(), default=None)
        if gone or tip in same:
            stays = tip if tip in same else next((at for at in alive if self._is_after(at, gone)), None)
        for at in same:
            annotated = self._annotated(rows[at].id) if at == stays else None
            known = facts[at]
            if (at in alive) is not (at == stays):
                if at == stays:
                    mark = self._codec.mark(at[0], rows[at], annotated)
                else:
                    mark = self._codec.mark(at[0], rows[at], deleted_in=deleted_in, duplicate=not gone)
            elif annotated is not None and (known is None or known.at < annotated.at):
                mark = self._codec.mark(at[0], rows[at], annotated)
            else:
                continue
            self.marks[at] = mark
        return stays is not None

    def _is_after(self, at: Position, deleted: dict[Position, int]) -> bool:
        """True if a save was made again after others of its rows were deleted, in these generations: in a newer one, or
        by somebody who built on a deleted row, and so knew of that."""
        newer = prefix_of(at[0]) > branch_prefix(max(deleted.values()))
        return newer or any(leads_through(at, one, self.branches.get) for one in deleted)

    def _annotated(self, id: bytes) -> Annotated | None:
        """The row of a save that was annotated last, by any thread that has it, on any side."""
        found: list[Annotated] = []
        for at in self._by_id[id]:
            for step in (self.ours.step(at), self.theirs.step(at)):
                facts = None if step is None else self._codec.mark_facts(at[0], step)
                if step is not None and facts is not None and not facts.deleted and not facts.duplicate:
                    found.append(Annotated(facts.at, at[0], step))
        return max(found, default=None)

    def seen_by(self, deletions: Deletions, owner: bytes, there: LineageRecords) -> Seen:
        """The generation in which somebody deleted a thread, or others of its name, on the other side, who had seen a
        row of it. They had also seen a save that was made once more there, unless this row of it is of a newer
        generation than the deletion."""

        def had(at: Position) -> bool:
            known = deletions.knew(at)
            return there.step(at) is not None if known is None else known

        ended = dict(deletions.others)  # the generations in which they were deleted
        if deletions.own is not None:
            ended[owner] = deletions.own.generation
        again: dict[bytes, int] = {}
        for id, steps in there.steps.items():
            of = there.branches[id].owner
            for number, step in steps.items():
                if of in ended and (of != owner or had((id, number))):
                    again[step.id] = max(again.get(step.id, 0), ended[of])

        def seen(at: Position) -> int | None:
            if had(at):
                return ended[owner]
            step = self._step(at)
            deleted_in = None if step is None else again.get(step.id)
            return None if deleted_in is None or prefix_of(at[0]) >= branch_prefix(deleted_in) else deleted_in

        return seen

    def deleted_again(self, owner: bytes, there: LineageRecords) -> Seen:
        """The generation in which a save of this thread, made again on the other side by another one, was deleted."""
        deleted = {
            step.id: facts.generation
            for id, steps in there.steps.items()
            if there.branches[id].owner != owner
            for step in steps.values()
            if (facts := self._codec.mark_facts(id, step)) is not None and facts.deleted
        }

        def seen(at: Position) -> int | None:
            step = self._step(at)
            return None if step is None else deleted.get(step.id)

        return seen

    def newest_unseen(self, owner: bytes, seen: Seen) -> tuple[Position, Step] | None:
        """The newest checkpoint of a deleted thread that whoever deleted it had not seen."""
        unseen = {at: step for at, step in self.own_rows(owner).items() if seen(at) is None}
        alive = [at for at, step in unseen.items() if not self._is_deleted(at[0], step)]
        newest = max(alive, key=lambda at: (at[1], at[0]), default=None)
        return None if newest is None else (newest, unseen[newest])

    def delete_seen(self, owner: bytes, seen: Seen, heads: list[Head]) -> None:
        """Delete the checkpoints of a deleted thread that whoever deleted it had seen. Only the others are kept, and
        those that other threads inherited; `heads` are all that will be."""
        inherited = furthest((head.position for head in heads if head.owner != owner), self.branches.get)
        for (id, number), step in self.own_rows(owner).items():
            deleted_in = seen((id, number))
            if deleted_in is not None and number > inherited.get(id, 0) and not self._is_deleted(id, step):
                self.marks[id, number] = self._codec.mark(id, step, deleted_in=deleted_in)

    def has_unique(
        self, head: Head, here: LineageRecords, there: LineageRecords, *, same: bool, end: Fate, owners: set[bytes]
    ) -> bool:
        """True if a head that lost has a checkpoint that the other side does not have. A save that was repeated there,
        by a thread of these `owners`, is recognized by its id, in whatever generation: one of the two is enough.
        `same`: the other side knows this incarnation."""
        if same and there.step(head.position) is not None:
            return False  # the other side has been here, and moved on
        if end in (Fate.UNSEEN, Fate.OUSTED):  # whoever deleted the name knew all threads of it
            owners = owners | {branch.owner for branch in there.branches.values()}
            owners -= {head.owner} if end is Fate.OUSTED else set()
        known = [steps for id, steps in there.steps.items() if there.branches[id].owner in owners]
        again = {step.id for steps in known for step in steps.values()}
        # Undone saves stay with their incarnation, so they count only if that loses.
        way = {segment.branch.id: segment.last for segment in walk_back(head.position, self.branches.get)}
        own = [
            step.id not in again and not self._is_deleted(at[0], step)
            for at, step in self.own_rows(head.owner).items()
            if here.step(at) is not None and not (same and (there.step(at) is not None or at[1] > way.get(at[0], 0)))
        ]
        # A fork is more than its saves, and has none of its own at first.
        is_fork = any(self.branches[id].owner != head.owner for id in way)
        return any(own) or (not same and (is_fork or not own))
