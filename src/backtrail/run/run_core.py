"""A run: it is resumed where it was, its steps are recorded, and it is kept when it ends.

Its operations are written once, as coroutines, for the sync and async facades; `run_state` has what it is made of, and
`run_commits` how it is saved.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from blake3 import blake3

from backtrail.encode.planner import PlannedRow, Planner
from backtrail.errors import InvalidInput, LockLost, StepMisused, Suspended, ThreadNotFound
from backtrail.history.records import now_micros, to_datetime
from backtrail.history.run_status import STATUS
from backtrail.history.save import check_facts
from backtrail.model import MAX_NUMBER, Checkpoint, Status, short_repr
from backtrail.run.commands import in_step_of
from backtrail.run.failures import failure_of, is_suspension, shown_with, single
from backtrail.run.listing import ASKED, DUE, NUMBERS, STEPS, Question
from backtrail.run.model import Failure, Key
from backtrail.run.recording import ASK, Identity, Record, Recording
from backtrail.run.run_commits import OVER, RunCommits
from backtrail.run.run_state import ENDED, ERROR, RESULT, SEGMENT, TOKEN, Waiting
from backtrail.run.times import moment_micros

LOOK_AGAIN = 15.0  #: seconds until a run is tried again that waits for a run inside of it


class _Overtaken(Exception):
    """The question was answered before it could be asked again."""


class RunCore(RunCommits):
    """One run of a store: saves it, records its steps, waits, ends."""

    async def checkpoint(
        self,
        /,
        messages: Any = None,
        *,
        iteration: int | None = None,
        system_prompt: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        label: str | None = None,
        tags: Any = (),
        files: Any = None,
        custom: Any = None,
    ) -> Checkpoint:
        """Save the run after an iteration. Values that are not given are taken from the attributes; the iteration goes
        up by one. Token counts are totals; the fields of `custom` are added to `run.custom`."""
        if not self.loaded:
            await self.load()
        if messages is not None:
            if type(messages) not in (list, tuple):
                raise InvalidInput(f"messages must be a list, not {type(messages).__qualname__}")
            self.messages = messages if type(messages) is list else list(messages)
        given = {"iteration": iteration, "input_tokens": input_tokens, "output_tokens": output_tokens}
        numbers: dict[str, Any] = {
            name: getattr(self, name) if given[name] is None else given[name] for name in NUMBERS
        }
        if iteration is None:
            numbers["iteration"] += 1
        for name, value in numbers.items():
            if type(value) is not int or not 0 <= value < MAX_NUMBER:
                raise InvalidInput(f"{name} must be an int from 0 up, of at most 63 bits, not {short_repr(value)}")
        if custom is not None and type(custom) is not dict:
            raise InvalidInput(f"custom must be a dict, not {type(custom).__qualname__}")
        prompt = self.system_prompt if system_prompt is None else system_prompt
        fields = {**self.custom, **(custom or {})}
        facts = await check_facts(self.thread, label, tags, None, files, None)
        counted = {SEGMENT: self.recording.segment + 1} if self.recording.count else {}

        def plan(planner: Planner) -> PlannedRow:
            changes, over = self._mark_running()
            state = {**self.state(), **numbers, "system_prompt": prompt, "custom": fields}
            return planner.change({**state, **counted, **changes}, drop=over)

        saved = await self.save(plan, facts, compare_lists=True)
        self._marked_running()
        if counted:
            self.recording.next_segment()
        self.system_prompt, self.custom = prompt, fields
        for name, value in numbers.items():
            setattr(self, name, value)
        return saved

    # -- steps --------------------------------------------------------------------------------------------------------

    @property
    def begun(self) -> bool:
        """True once the store has the run, with the token of its idempotency keys."""
        return bool(self.token)

    async def begin(self) -> None:
        """Save the run before its first step, so that it is listed, and its idempotency keys are the same ever
        after."""
        if self.begun:
            return
        token = os.urandom(16)

        def plan(planner: Planner) -> PlannedRow:
            changes, over = self._mark_running()
            fields = {} if self.saved else self.state()
            return planner.change({**fields, TOKEN: token, **changes}, drop=over)

        await self.save(plan)
        self._marked_running()
        self.token = token

    def check_at_work(self, what: str) -> None:
        """Refuse a step outside of the run's block, after its end, or inside another step of it."""
        if not self.at_work:
            raise StepMisused(
                self.id, what, f"{what} is not inside of run {self.id!r}: call it within `with store.run(id) as run:`"
            )
        if self.ended:
            raise StepMisused(self.id, what, f"{what} comes after the end of run {self.id!r}: call finish() later")
        if in_step_of(self.id):
            raise StepMisused(
                self.id,
                what,
                f"{what} is inside another step of run {self.id!r}, which is recorded as a whole: call it outside of "
                "that, or begin a run of its own for it",
            )

    def check_not_stopped(self) -> None:
        """Leave the block before the next step if the worker is to end."""
        if self.stopping():
            raise Suspended(self.id, why="was stopped with its worker")

    def claim(self, kind: str, name: str, key: Key | None, args: bytes, *, rerun: bool = False) -> Identity:
        """The identity of the step that a call means; see `Recording.claim`."""
        return self.recording.claim(kind, name, key, args, rerun=rerun)

    def step_key(self, identity: Identity) -> str:
        """The idempotency key of a step. A fork of the run has others."""
        packed = msgspec.msgpack.encode((self.id, *msgspec.structs.astuple(identity)))
        return str(uuid.UUID(bytes=blake3(self.token + packed).digest(16)))

    def copy_of(self, value: Any) -> Any:
        """A copy of a value of the state, for a result that is handed out several times."""
        return self.values.decode(self.values.encode(value))

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def wait_for(
        self, add: tuple[str, Question] | None = None, remove: str | None = None, record: Record | None = None
    ) -> None:
        """Save that the run waits: for answers to its questions, and for the sleeps in `wakes`. One question may be
        added or removed, and a step recorded, in the same commit. If the question was answered meanwhile, nothing is
        saved."""
        if not self.at_work and (add is not None or record is not None):
            raise StepMisused(self.id, "", f"the block of run {self.id!r} was left before it could wait")
        fields = {} if self.saved else self.state()

        def plan(planner: Planner) -> PlannedRow:
            if add is not None and Identity(ASK, add[0], None, add[1].segment, add[1].n) in self.recording.steps:
                raise _Overtaken
            asked = {name: one for name, one in self.asked.items() if name != remove}
            if add is not None:
                asked[add[0]] = add[1]
            self._planned = self._waiting(asked)
            changes = {**fields, **self._planned.changes}
            over = tuple(key for key in (*OVER, ASKED) if key not in changes)
            return planner.change(changes, append=None if record is None else (STEPS, [record.to_state()]), drop=over)

        try:
            await self.save(plan)
            assert self._planned is not None
            self.asked, self.status, self.due, self._resumed = *self._planned[:3], True
        except _Overtaken:
            return
        finally:
            self._planned = None
        if record is not None:
            self.recording.add(record)

    def _waiting(self, asked: dict[str, Question]) -> Waiting:
        times = [*self.wakes.values(), *([self.inner_due] if self.inner_due else [])]
        status: Status = "waiting" if asked else "sleeping" if times else "ready"
        due = min([*(one.expires for one in asked.values() if one.expires is not None), *times], default=0)
        changes: dict[str, Any] = {STATUS: status}
        if asked:
            changes[ASKED] = {name: msgspec.structs.asdict(one) for name, one in asked.items()}
        if due:
            changes[DUE] = due
        return Waiting(asked, status, due, changes)

    async def suspend(self, error: BaseException) -> None:
        """Leave the run as one that waits, on the way out of its block; one that was stopped is ready to go on.

        If it was left because a run inside of it waits, it sleeps until that may go on. Nobody tells it that a question
        of that one was answered: it is tried again now and then, and not saved each time."""
        inner = [one for one in single(error) if isinstance(one, Suspended) and one.run_id != self.id]
        if inner:
            now = now_micros()
            again = (self._resumed and self.due) or moment_micros(LOOK_AGAIN, now)
            times = [moment_micros(one.until, now) for one in inner if one.until is not None]
            self.inner_due = min([*times, *(again for one in inner if one.questions or one.until is None)])
        waits = self.status in ("waiting", "sleeping") and self._resumed and self.due == self._waiting(self.asked).due
        if self.saved and not waits:
            await self.wait_for()

    def suspended(self) -> Suspended:
        """What leaves the block of a run that waits."""
        return Suspended(self.id, tuple(self.asked), to_datetime(self.due) if self.due else None)

    def suspended_until(self, wakes: int) -> Suspended:
        """What leaves the block of a run that sleeps."""
        return Suspended(self.id, (), to_datetime(wakes))

    # -- the end ------------------------------------------------------------------------------------------------------

    async def finish(self, result: Any = None, delete: bool = False) -> None:
        """End the run: it has succeeded. A run that saved nothing, and has no result, leaves no trace."""
        if delete:
            await self._delete()
            return
        if not self.loaded:
            await self.load()
        if result is not None:
            self.result = result
        if self.status == "finished":
            return
        if not self.saved and (self.ended or self.result is None):
            if self.thread.fence is not None and not await self.renew():
                raise self.lost()
            return
        await self._end("finished", **({} if self.result is None else {RESULT: self.result}))
        self.ended = True

    async def _end(self, status: Status, items: list[Any] | None = None, **outcome: Any) -> None:
        changes = {STATUS: status, ENDED: now_micros(), **outcome}
        over = tuple(key for key in (DUE, ASKED, ERROR, RESULT) if key not in changes)

        # A run that failed is resumed at its last checkpoint: what its program had in the attributes is not saved.
        fields = {} if status == "failed" else self.state()

        def plan(planner: Planner) -> PlannedRow:
            return planner.change({**fields, **changes}, append=(STEPS, items) if items else None, drop=over)

        await self.save(plan, compare_lists=bool(fields and self.messages))
        self.status, self.due, self.asked = status, 0, {}

    async def _delete(self) -> None:
        try:
            await self.thread.delete()
        except ThreadNotFound:
            # Nothing was saved, or another process deleted it.
            if self.thread.fence is not None and not await self.renew():
                raise self.lost() from None
        except LockLost as lost:
            raise self.lost() from lost
        self.saved, self.token, self.result, self.status = False, b"", None, "running"
        self.recording, self.asked, self.ended = Recording(self.id), {}, True

    def failing(self, error: BaseException, record: Record, *, at_most_once: bool = False) -> BaseException:
        """Remember that a step's failure is raised now: if it ends the run, the step is done again on resume."""
        if not at_most_once:
            self._failing.append((error, record))
        return error

    async def fail(self, error: BaseException, failure: Failure) -> None:
        """End the run: an exception left its block. Steps whose failures ended it are done again on resume."""
        if not self.saved:
            return
        ended_by = shown_with(error)
        reopened = [
            msgspec.structs.replace(record, reopened=True, error=None, result=None, took=0, attempts=1).to_state()
            for raised, record in self._failing
            if id(raised) in ended_by
        ]
        await self._end("failed", reopened, **{ERROR: {"type": failure.type, "message": failure.message}})
        self.error = failure

    async def leave(self, error: BaseException | None) -> None:
        """Leave the block: normally, with an error, or suspended. An interrupt is none of these: the run stays as it
        is, and can be resumed."""
        self.at_work = False
        if error is None:
            await self.finish()
        elif is_suspension(error):
            await self.suspend(error)
        elif not self.is_interrupt(error) and not isinstance(error, LockLost):
            try:
                await self.fail(error, failure_of(error))
            except Exception as problem:  # noqa: BLE001  # the error of the block counts; it tells of this one
                error.add_note(f"run {self.id!r} could not be marked as failed: {problem}")

    # -- moves --------------------------------------------------------------------------------------------------------

    async def move(self, move: Callable[[], Awaitable[Checkpoint]]) -> Checkpoint:
        """Move the head (undo, redo, rewind), and fill the attributes with the checkpoint that it is at then.
        `LockTimeout` if another process is working on the run."""
        owned = self.thread.fence is not None
        taken = await self.acquire()
        if taken is not None:
            raise self.refused(0.0, taken)
        try:
            moved = await move()
            await self.load()
            self._resumed = self.status != "running"
        finally:
            if not owned:
                await self.release()
        return moved

    async def undo(self) -> Checkpoint:
        """Take back the last move of the head."""
        return await self.move(self.thread.undo)

    async def redo(self) -> Checkpoint:
        """Do again what the last undo took back."""
        return await self.move(self.thread.redo)

    async def rewind(self, at: Any) -> Checkpoint:
        """Move the head back to `at`."""
        return await self.move(lambda: self.thread.rewind(at))
