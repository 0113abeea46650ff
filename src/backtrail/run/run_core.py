"""A run: it is resumed where it was, its steps are recorded, and it is kept when it ends.

Its operations are written once, as coroutines, for the sync and async facades. The state of a run is its task,
iteration, messages, system prompt, token counts and custom fields, which a handle has as plain attributes, filled by
`resume`; and its recording: status, steps, open questions. A process that works on a run owns its lease: a second
process gets an error that names the owner, and one that lost the lease cannot write any more. Others write to a run
only to answer a question; such an answer is taken in, any other change of theirs is a `Conflict`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
from blake3 import blake3

from backtrail.encode.planner import PlannedRow, Planner
from backtrail.encode.row_format import Root
from backtrail.encode.values import Values
from backtrail.errors import Conflict, InvalidInput, LockLost, RunFinished, StepMisused, Suspended, ThreadNotFound
from backtrail.history.context import Context
from backtrail.history.records import LAST_TIME, now_micros, to_datetime
from backtrail.history.run_status import STATUS, STATUSES, base_kind
from backtrail.history.save import Plan, check_facts
from backtrail.history.save_arguments import NO_FACTS, Facts
from backtrail.history.thread_core import ThreadCore
from backtrail.model import MAX_NUMBER, Checkpoint, Status, short_repr
from backtrail.run.commands import current_step
from backtrail.run.lease import RunLease
from backtrail.run.listing import ASKED, DUE, KIND, NUMBERS, RUNS, STEPS, SUBMITTED, Question, read_question
from backtrail.run.model import Failure, Key, Outcome, StepInfo
from backtrail.run.recording import ASK, Identity, Record, Recording, failure_of, read_record

_FIELDS: dict[str, type] = {
    "task": str,
    "messages": list,
    "system_prompt": str,
    **dict.fromkeys(NUMBERS, int),
    "custom": dict,
}
TOKEN, SEGMENT, INPUT, RESULT, ERROR, ENDED = "token", "segment", "input", "result", "error", "ended"
ANSWERED = "answered"  #: the custom field of a checkpoint that an answer made
_OVER = (DUE, ERROR, ENDED, RESULT)  # keys that a run which goes on has no more
_ABSORBED = 64  # answers that may have come since this handle wrote last


class _Overtaken(Exception):
    """The question was answered before it could be asked again."""


class _Waiting(NamedTuple):
    """What a run waits for, and the changes of its state that say so."""

    asked: dict[str, Question]
    status: Status
    due: int
    changes: dict[str, Any]


class Entry:
    """A record that waits to be written."""

    __slots__ = ("item", "record", "written")

    def __init__(self, record: Record, item: dict[str, Any]) -> None:
        self.record = record
        self.item = item
        self.written = False


class RunCore(RunLease):
    """One run of a store. Cheap to make; nothing is read before it is used."""

    waits = True  #: a sleep takes its time

    def __init__(self, context: Context, id: str, task: str = "") -> None:
        if type(task) is not str:
            raise InvalidInput(f"task must be a str, not {type(task).__qualname__}")
        self.thread: ThreadCore[Any] = ThreadCore(context, id, kind=KIND)
        self.thread.caption = self._caption
        super().__init__(self.thread)
        self.id = self.thread.id
        self.task = task
        self.iteration = 0
        self.messages: list[Any] = []
        self.system_prompt = ""
        self.input_tokens = 0
        self.output_tokens = 0
        self.custom: dict[str, Any] = {}
        self.input: Any = None
        self.result: Any = None
        self.error: Failure | None = None
        self.status: Status = "running"
        self.loaded = False  # True once the attributes have the values of the store
        self.saved = False  # True once the store has the run
        self.token = b""  # makes its idempotency keys differ from those of any other run
        self.due = 0
        self.submitted = False
        self.asked: dict[str, Question] = {}
        self.wakes: dict[Identity, int] = {}  # sleeps that are going on, and when each ends
        self.recording = Recording(self.id)
        self.at_work = False  # True inside a with block
        self.stopping: Callable[[], bool] = bool  # True once its worker is to end: the run stops before its next step
        self._resumed = False  # True until the first commit after entering, which marks the run as running
        self._planned: _Waiting | None = None  # while that is being committed
        self._queue: list[Entry] = []
        self._failing: list[tuple[BaseException, Record]] = []

    @property
    def values(self) -> Values:
        """The codec of the store."""
        return self.thread.values

    # -- state --------------------------------------------------------------------------------------------------------

    async def exists(self) -> bool:
        """True if there is a checkpoint to resume from."""
        return await self.thread.exists()

    async def resume(self) -> Checkpoint:
        """Fill the attributes with the last checkpoint, and return it. `ThreadNotFound` if there is none, `LockTimeout`
        if a process is working on it; a damaged one raises `Corrupt`, and is never mistaken for a new run."""
        owned = self.thread.fence is not None
        taken = await self.acquire()
        if taken is not None:
            raise self.refused(0.0, taken)
        if not owned:
            await self.release()
        if not await self.load():
            raise self._nothing_to_resume()
        head = await self.thread.head()
        if head is None:
            raise self._nothing_to_resume()
        return head

    def _nothing_to_resume(self) -> ThreadNotFound:
        return ThreadNotFound(self.id, f"run {self.id!r} has nothing to resume: it has not begun, or was deleted")

    async def start(self) -> None:
        """Fill the attributes with the last checkpoint, if there is one; `RunFinished` if the run is over."""
        await self.load()
        if self.status == "finished":
            raise RunFinished(self.id, self.result)
        self.at_work, self._resumed = True, self.status != "running"
        self._failing.clear()

    async def load(self) -> bool:
        """Fill the attributes from the last checkpoint; False if there is none."""
        self.thread.context.check_open()
        head = await self.thread.context.engine.head(self.id)
        if head is not None and base_kind(head.kind) != KIND:
            raise InvalidInput(f"{self.id!r} is a {head.kind}, not a run: choose another id")
        try:
            state = await self.thread.load()
        except ThreadNotFound:
            self.loaded = True
            return False
        fields = self._fields(state)
        fields["task"] = self.task or fields["task"]
        for name, value in fields.items():
            setattr(self, name, value)
        self._read_recording(state)
        self.loaded = self.saved = True
        return True

    async def load_questions(self) -> None:
        """Read the open questions only: the steps of the run are not needed to answer one."""
        _, checkpoint, root, reader = await self.thread.read_root()
        node = (root.tree.children or {}).get(ASKED)
        self.asked = self._read_asked({} if node is None else await reader.value(node))
        self.thread.base_id = checkpoint

    def _read_asked(self, asked: Any) -> dict[str, Question]:
        try:
            return {name: read_question(entry) for name, entry in asked.items()}
        except (ValueError, AttributeError) as error:
            raise self.unreadable(f"its questions make no sense: {error}") from error

    def _fields(self, state: Any) -> dict[str, Any]:
        """The fields of a run's state, if they have the right types: any thread's state can be changed by hand."""
        if type(state) is not dict:
            raise self.unreadable(f"its state is a {type(state).__qualname__}")
        fields: dict[str, Any] = {name: state.get(name, kind()) for name, kind in _FIELDS.items()}
        for name, value in fields.items():
            wrong_type = type(value) is not _FIELDS[name]
            if wrong_type or (name in NUMBERS and not 0 <= value < MAX_NUMBER):
                raise self.unreadable(f"state[{name!r}] is {short_repr(value)}")
        return fields

    def _read_recording(self, state: dict[str, Any]) -> None:
        segment, due, token = state.get(SEGMENT, 0), state.get(DUE, 0), state.get(TOKEN, b"")
        steps, asked, status = state.get(STEPS, []), state.get(ASKED, {}), state.get(STATUS, "running")
        wrong = next(
            (
                name
                for name, value, kind in (
                    *((SEGMENT, segment, int), (DUE, due, int), (TOKEN, token, bytes)),
                    *((STEPS, steps, list), (ASKED, asked, dict)),
                )
                if type(value) is not kind
            ),
            None if status in STATUSES else STATUS,
        )
        if wrong is not None:
            raise self.unreadable(f"state[{wrong!r}] is {short_repr(state[wrong])}")
        try:
            self.recording = Recording(self.id, segment, map(read_record, steps))
            self.error = msgspec.convert(state.get(ERROR), Failure | None)
        except ValueError as error:
            raise self.unreadable(f"its recording makes no sense: {error}") from error
        self.asked = self._read_asked(asked)
        self.status, self.due, self.token = status, due, token
        self.input, self.result, self.submitted = state.get(INPUT), state.get(RESULT), state.get(SUBMITTED) is True

    def unreadable(self, why: str) -> InvalidInput:
        """The error for a state that is not a run's."""
        return InvalidInput(
            f"thread {self.id!r} cannot be read as a run: {why}; store.thread(id).load() gives its state"
        )

    def state(self) -> dict[str, Any]:
        """The fields of the state that the attributes have."""
        return {
            "task": self.task,
            **{name: getattr(self, name) for name in NUMBERS},
            "system_prompt": self.system_prompt,
            "messages": self.messages,
            "custom": self.custom,
        }

    def _caption(self, root: Root, id: bytes) -> bytes:
        asked = self.asked if self._planned is None else self._planned.asked
        shown = {name: msgspec.structs.asdict(one) for name, one in asked.items()}
        return RUNS.run_caption(root, id, self.values.encode(shown) if shown else b"")

    # -- saving -------------------------------------------------------------------------------------------------------

    async def save(self, plan: Plan, facts: Facts = NO_FACTS, *, compare_lists: bool = False) -> Checkpoint:
        """Commit a plan. If only answers came since this handle wrote last, they are taken in, and it is planned
        again."""
        while True:
            try:
                saved = await self.thread.save_plan(plan, facts, compare_lists=compare_lists)
            except LockLost as lost:
                raise self.lost() from lost
            except Conflict:
                if self.at_work and await self.absorb():
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
        for item in tail:
            self.recording.add(read_record(item))
        self.asked = self._read_asked(picked.get(ASKED, {}))
        self.status, self._resumed = "waiting" if self.asked else "ready", True
        self.thread.base_id = root.checkpoint
        return True

    def _mark_running(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """(changes, keys to drop) that make a resumed run a running one, with its first commit."""
        return ({STATUS: "running"}, _OVER) if self._resumed else ({}, ())

    def _marked_running(self) -> None:
        if self._resumed:
            self._resumed, self.status, self.due, self.error = False, "running", 0, None

    async def mark_running(self) -> None:
        """Save that the run was taken up, for a worker; a program saves that with its first step."""
        if self._resumed:
            await self._append([])

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
        """Refuse a step outside of the run's block, or inside another step of it."""
        if not self.at_work:
            raise StepMisused(
                self.id, what, f"{what} is not inside of run {self.id!r}: call it within `with store.run(id) as run:`"
            )
        scope = current_step.get()
        while scope is not None:
            if isinstance(scope.run, RunCore) and scope.run.id == self.id:
                raise StepMisused(
                    self.id,
                    what,
                    f"{what} is inside another step of run {self.id!r}, which is recorded as a whole: call it outside "
                    "of that, or begin a run of its own for it",
                )
            scope = scope.outer

    def check_not_stopped(self) -> None:
        """Leave the block before the next step if the worker is to end."""
        if self.stopping():
            raise Suspended(self.id, why="was stopped with its worker")

    def claim(self, kind: str, name: str, key: Key | None, args: bytes, *, rerun: bool = False) -> Identity:
        """The identity of the step that a call means; see `Recording.claim`."""
        return self.recording.claim(kind, name, key, args, rerun=rerun)

    def step_key(self, identity: Identity) -> str:
        """The idempotency key of a step. A fork of the run has others."""
        packed = msgspec.msgpack.encode((self.id, *identity))
        return str(uuid.UUID(bytes=blake3(self.token + packed).digest(16)))

    def copy_of(self, value: Any) -> Any:
        """A copy of a value of the state, for a result that is handed out several times."""
        return self.values.decode(self.values.encode(value))

    def enqueue(self, record: Record, item: dict[str, Any]) -> Entry:
        """Put a record into the queue; `flush` writes it."""
        entry = Entry(record, item)
        self._queue.append(entry)
        return entry

    async def flush(self, entry: Entry) -> None:
        """Write a record, and with it all others that wait. One call at a time."""
        if entry.written:
            return
        batch = self._queue[:]
        try:
            await self._append([one.item for one in batch])
        except BaseException:
            self._queue.remove(entry)  # its caller is told; the others try for themselves
            raise
        del self._queue[: len(batch)]
        for one in batch:
            self.recording.add(one.record)
            one.written = True

    async def _append(self, items: list[Any], **more: Any) -> None:
        def plan(planner: Planner) -> PlannedRow:
            changes, over = self._mark_running()
            return planner.change({**changes, **more}, append=(STEPS, items) if items else None, drop=over)

        await self.save(plan)
        self._marked_running()

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def wait_for(
        self, add: tuple[str, Question] | None = None, remove: str | None = None, record: Record | None = None
    ) -> None:
        """Save that the run waits: for answers to its questions, and for the sleeps in `wakes`. One question may be
        added or removed, and a step recorded, in the same commit. If the question was answered meanwhile, nothing is
        saved."""
        fields = {} if self.saved else self.state()

        def plan(planner: Planner) -> PlannedRow:
            if add is not None and Identity(ASK, add[0], None, add[1].segment, add[1].n) in self.recording.steps:
                raise _Overtaken
            asked = {name: one for name, one in self.asked.items() if name != remove}
            if add is not None:
                asked[add[0]] = add[1]
            self._planned = self._waiting(asked)
            changes = {**fields, **self._planned.changes}
            over = tuple(key for key in (*_OVER, ASKED) if key not in changes)
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

    def _waiting(self, asked: dict[str, Question]) -> _Waiting:
        status: Status = "waiting" if asked else "sleeping" if self.wakes else "ready"
        due = min(
            [*(one.expires for one in asked.values() if one.expires is not None), *self.wakes.values()], default=0
        )
        changes: dict[str, Any] = {STATUS: status}
        if asked:
            changes[ASKED] = {name: msgspec.structs.asdict(one) for name, one in asked.items()}
        if due:
            changes[DUE] = due
        return _Waiting(asked, status, due, changes)

    async def suspend(self) -> None:
        """Leave the run as one that waits, on the way out of its block; one that was stopped is ready to go on."""
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
        if not self.saved and self.result is None:
            if self.thread.fence is not None and not await self.renew():
                raise self.lost()
            return
        await self._end("finished", **({} if self.result is None else {RESULT: self.result}))

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
        self.recording, self.asked = Recording(self.id), {}

    def failing(self, error: BaseException, record: Record, *, at_most_once: bool = False) -> BaseException:
        """Remember that a step's failure is raised now: if it ends the run, the step is done again on resume."""
        if not at_most_once:
            self._failing.append((error, record))
        return error

    async def fail(self, error: BaseException, failure: Failure) -> None:
        """End the run: an exception left its block. Steps whose failures ended it are done again on resume."""
        if not self.saved:
            return
        ended_by = set(_chain(error))
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
            await self.suspend()
        elif isinstance(error, Exception) and not isinstance(error, LockLost):
            try:
                await self.fail(error, failure_of(error))
            except Exception as problem:  # noqa: BLE001  # the error of the block counts; it tells of this one
                error.add_note(f"run {self.id!r} could not be marked as failed: {problem}")

    async def step_infos(self) -> list[StepInfo]:
        """The recorded steps, oldest first, as the store has them."""
        found = (await self.thread.pick([STEPS])).get(STEPS, [])
        try:
            records = Recording(self.id, 0, map(read_record, found)).steps.values()
            return [record.info() for record in records]
        except (ValueError, TypeError) as error:
            raise self.unreadable(f"its recording makes no sense: {error}") from error

    async def outcome(self) -> Outcome:
        """How the run stands, as the store has it; no step is read."""
        head = await self.thread.require_head()
        state = await self.thread.pick([*_FIELDS, STATUS, RESULT, ERROR, ENDED, DUE])
        fields = self._fields(state)
        info = await RUNS.info(self.thread.context, head)
        ended = state.get(ENDED)
        try:
            error = msgspec.convert(state.get(ERROR), Failure | None)
        except ValueError as wrong:
            raise self.unreadable(f"state[{ERROR!r}] makes no sense: {wrong}") from wrong
        return Outcome(
            status=info.status,
            result=state.get(RESULT),
            error=error,
            steps=info.steps,
            **{name: fields[name] for name in NUMBERS},
            created_at=info.created_at,
            ended_at=to_datetime(ended) if type(ended) is int and 0 <= ended <= LAST_TIME else None,
            due_at=info.due_at,
        )

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


def is_suspension(error: BaseException) -> bool:
    """True for `Suspended`, and for a group of tasks of which nothing worse came."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_suspension(one) for one in error.exceptions)
    return isinstance(error, Suspended)


def _chain(error: BaseException) -> set[int]:
    """The identities of the exceptions that a traceback shows: of this one, and of those that it was raised from, was
    raised while handling, or is a group of."""
    found: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in found:
            continue
        found.add(id(one))
        left += [one.__cause__, None if one.__suppress_context__ else one.__context__]
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions
    return found
