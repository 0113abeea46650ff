"""What each server carried out, commit by commit: for questions that the ledger of callers cannot answer.

A caller does not know which side took its change, and what that side had then. Such questions are asked only where a
promise seems to be broken, so the commits are kept as they are, and searched when somebody asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from backtrail.engines.base import Branch, Commit, Position, generation_of
from backtrail.engines.branch_origins import leads_through
from backtrail.replicate.role_record import branch_prefix, prefix_of

if TYPE_CHECKING:
    from .workload import Call


class CarriedOut(NamedTuple):
    """A commit that a server carried out, for a call of a process or in the background."""

    server: str
    commit: Commit
    call: Call | None
    at: float


class Trace:
    """All commits of both servers, in their order."""

    def __init__(self) -> None:
        self.carried_out: list[CarriedOut] = []

    def add(self, server: str, commit: Commit, call: Any, at: float) -> None:
        self.carried_out.append(CarriedOut(server, commit, call, at))

    def _positions(self, id: str) -> set[Position]:
        """All rows of a checkpoint. There are several if it was saved again on the other side."""
        sought = bytes.fromhex(id.replace("-", ""))
        return {(row.branch, row.step) for one in self.carried_out for row in one.commit.rows if row.id == sought}

    def made_again_after(self, id: str, deletion: Call) -> bool:
        """True if this checkpoint was saved in a newer generation than that in which it was deleted."""
        generations = [] if deletion.generation is None else [deletion.generation]
        generations += [
            generation_of(swap.new.version)
            for one in self.carried_out
            if one.call is deletion and one.commit.marks and not one.commit.rows
            for swap in one.commit.swaps
            if swap.new is not None
        ]
        if not generations:
            return False
        return any(prefix_of(branch) > branch_prefix(min(generations)) for branch, _ in self._positions(id))

    def in_two_threads(self, id: str) -> bool:
        """True if a checkpoint was saved by two threads of one name, neither of which knew the other."""
        return len(self.owners(id)) > 1

    def in_two_lineages(self, id: str) -> bool:
        """True if these two threads were in different lineages, so that no merge has seen both."""
        rows = self._positions(id)
        made = (one for one in self.carried_out if any((row.branch, row.step) in rows for row in one.commit.rows))
        return len({one.commit.lineage for one in made}) > 1

    def owners(self, id: str) -> set[bytes]:
        """The threads that saved a checkpoint, by their incarnations."""
        branches = self._branches()
        return {branches[branch].owner for branch, _ in self._positions(id) if branch in branches}

    def _branches(self) -> dict[bytes, Branch]:
        return {branch.id: branch for one in self.carried_out for branch in one.commit.branches}

    def had_fork(self, id: str) -> bool:
        """True if a thread has had this checkpoint in its history, and had not saved it itself."""
        branches, owners, positions = self._branches(), self.owners(id), self._positions(id)
        heads = {swap.new for one in self.carried_out for swap in one.commit.swaps if swap.new is not None}
        forks = [head.position for head in heads if head.step and head.owner not in owners]
        return any(leads_through(at, row, branches.get) for at in forks for row in positions)

    def stood_at(self, id: str, names: list[str], since: float) -> bool:
        """True if one of these threads stood at a checkpoint after that moment, on any server."""
        positions = self._positions(id)
        standing: set[tuple[str, str]] = set()
        for one in self.carried_out:
            if one.at >= since and standing:
                return True
            for swap in one.commit.swaps:
                if swap.thread in names:
                    here = swap.new is not None and swap.new.position in positions
                    (standing.add if here else standing.discard)((one.server, swap.thread))
        return bool(standing)

    def replaced(self, annotation: Call) -> bool:
        """True if an acknowledged annotation was made where this one was known."""
        marks: dict[tuple[str, Position], bytes | None] = {}
        wrote: set[bytes | None] = set()
        for server, commit, call, _ in self.carried_out:
            annotates = call is not None and call.kind == "annotate" and not commit.rows
            for mark in commit.marks:
                place = server, (mark.branch, mark.step)
                if annotates and call is annotation:
                    wrote.add(mark.data)
                elif annotates and call is not None and call.acknowledged and call.target == annotation.target:
                    known = marks.get(place)
                    if known is not None and known in wrote and mark.data not in wrote:
                        return True
                marks[place] = mark.data
        return False
