"""The commits of a run: what this handle saves, and the answers that others saved meanwhile.

A process that works on a run owns its lease, and one that lost it cannot write any more. Others write to a run only to
answer a question; such an answer is taken in, any other change of theirs is a `Conflict`. The records of steps wait in
a queue, and those that wait at the same time are saved together.
"""

from __future__ import annotations

import uuid
from typing import Any

from backtrail.encode.planner import PlannedRow, Planner
from backtrail.errors import Conflict, LockLost
from backtrail.history.run_status import STATUS
from backtrail.history.save import Plan
from backtrail.history.save_arguments import NO_FACTS, Facts
from backtrail.model import Checkpoint
from backtrail.run.listing import ASKED, DUE, STEPS
from backtrail.run.recording import Record, read_records
from backtrail.run.run_state import ENDED, ERROR, RESULT, Entry, RunState

ANSWERED = "answered"  #: the custom field of a checkpoint that an answer made
OVER = (DUE, ERROR, ENDED, RESULT)  #: keys that a run which goes on has no more
_ABSORBED = 64  # answers that may have come since this handle wrote last


class RunCommits(RunState):
    """Saves one run, and the records of its steps."""

    async def save(self, plan: Plan, facts: Facts = NO_FACTS, *, compare_lists: bool = False) -> Checkpoint:
        """Commit a plan. If only answers came since this handle wrote last, they are taken in, and it is planned
        again."""
        while True:
            try:
                saved = await self.thread.save_plan(plan, facts, compare_lists=compare_lists)
            except LockLost as lost:
                raise self.lost() from lost
            except Conflict:
                if self.thread.fence is not None and await self.absorb():
                    continue
                if self.thread.fence is not None and not await self.renew():
                    raise self.lost() from None
                raise
            self.saved = True
            return saved

    async def absorb(self) -> bool:
        """Take in the answers that others gave since this handle wrote last; False if something else was written, or
        nothing."""
        base = self.thread.base_id
        newer = await self.thread.history(_ABSORBED, newest_first=True)
        at = next((n for n, one in enumerate(newer) if base is not None and uuid.UUID(one.id).bytes == base), None)
        if not at or not all(ANSWERED in one.custom for one in newer[:at]):
            return False
        root = await self.thread.read_root(newer[0].id)
        tail = await self.thread.tail(STEPS, at, newer[0].id)
        picked = await self.thread.pick([ASKED], newer[0].id)
        for record in read_records(tail):
            self.recording.add(record)
        self.asked = self._read_asked(picked.get(ASKED, {}))
        self.status, self._resumed = "waiting" if self.asked else "ready", True
        self.thread.base_id = root.checkpoint
        return True

    def _mark_running(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """(changes, keys to drop) that make a resumed run a running one, with its first commit."""
        return ({STATUS: "running"}, OVER) if self._resumed else ({}, ())

    def _marked_running(self) -> None:
        if self._resumed:
            self._resumed, self.status, self.due, self.error = False, "running", 0, None

    async def mark_running(self) -> None:
        """Save that the run was taken up, if it has saved nothing since."""
        if self._resumed and self.thread.base_id == self._entered:
            await self._append([])

    # -- the queue of records ------------------------------------------------------------------------------------------

    def enqueue(self, record: Record, item: dict[str, Any], data: bytes) -> Entry:
        """Put a record into the queue, as an item of the state and encoded; `flush` writes it."""
        entry = Entry(record, item, data)
        self._queue.append(entry)
        return entry

    async def flush(self, entry: Entry) -> None:
        """Write a record, and with it all others that wait. One call at a time."""
        if entry.written:
            return
        batch = self._queue[:]
        try:
            await (self._append(batch) if self.at_work else self._append_late(batch))
        except BaseException:
            self._queue.remove(entry)  # its caller is told; the others try for themselves
            raise
        del self._queue[: len(batch)]
        for one in batch:
            self.recording.add(one.record)
            one.written = True

    async def _append(self, batch: list[Entry]) -> None:
        append = _items(batch) if batch else None

        def plan(planner: Planner) -> PlannedRow:
            changes, over = self._mark_running()
            return planner.change(changes, append=append, drop=over)

        await self.save(plan)
        self._marked_running()

    async def _append_late(self, batch: list[Entry]) -> None:
        """Save the records of steps that ended after their block was left, in a thread or task that went on. The lease
        is taken for it; `LockLost` if another has the run. How the run stands does not change."""
        if await self.acquire() is not None:
            raise self.lost()
        try:
            await self.save(lambda planner: planner.change({}, append=_items(batch)))
        finally:
            await self.release()


def _items(batch: list[Entry]) -> tuple[str, list[Any], list[bytes]]:
    return STEPS, [one.item for one in batch], [one.data for one in batch]
