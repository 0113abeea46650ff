"""The state of a run: its attributes, how they are read from the store, and how the run stands.

The state is the task, iteration, messages, system prompt, token counts and custom fields, which a handle has as plain
attributes; and the recording: status, steps, open questions. Any thread's state can be changed by hand, so everything
that is read is checked. Nothing is written here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from backtrail.encode.values import Values
from backtrail.errors import InvalidInput, RunFinished, ThreadNotFound
from backtrail.history.context import Context
from backtrail.history.records import LAST_TIME, to_datetime
from backtrail.history.run_status import STATUS, STATUSES, base_kind
from backtrail.history.thread_core import ThreadCore
from backtrail.model import MAX_NUMBER, Checkpoint, Status, short_repr
from backtrail.run.failures import is_interrupt
from backtrail.run.lease import RunLease
from backtrail.run.listing import (
    ASKED,
    DUE,
    KIND,
    NUMBERS,
    RUNS,
    STEPS,
    SUBMITTED,
    Question,
    RunCaption,
    read_question,
)
from backtrail.run.model import Failure, Outcome, StepInfo
from backtrail.run.recording import Identity, Record, Recording, read_records

_FIELDS: dict[str, type] = {
    "task": str,
    "messages": list,
    "system_prompt": str,
    **dict.fromkeys(NUMBERS, int),
    "custom": dict,
}
TOKEN, SEGMENT, INPUT, RESULT, ERROR, ENDED = "token", "segment", "input", "result", "error", "ended"


class Waiting(NamedTuple):
    """What a run waits for, and the changes of its state that say so."""

    asked: dict[str, Question]
    status: Status
    due: int
    changes: dict[str, Any]


class Entry:
    """A record that waits to be written."""

    __slots__ = ("data", "item", "record", "written")

    def __init__(self, record: Record, item: dict[str, Any], data: bytes) -> None:
        self.record = record
        self.item = item
        self.data = data  # the item, encoded: what was found to be fit for it is what is written
        self.written = False


class RunState(RunLease):
    """The state of one run, as this handle knows it. Cheap to make; nothing is read before it is used."""

    waits = True  #: a sleep takes its time

    def __init__(self, context: Context, id: str, task: str = "") -> None:
        if type(task) is not str:
            raise InvalidInput(f"task must be a str, not {type(task).__qualname__}")
        self.thread: ThreadCore[Any] = ThreadCore(context, id, kind=KIND)
        self.thread.caption = RunCaption(self._encode_asked)
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
        self.inner_due = 0  # when a run inside of this one, for which it waits, may go on; 0: there is none
        self.recording = Recording(self.id)
        self.at_work = False  # True inside a with block
        self.ended = False  # True after `finish`
        self.stopping: Callable[[], bool] = bool  # True once its worker is to end: the run stops before its next step
        self.is_interrupt: Callable[[BaseException], bool] = is_interrupt  # of what leaves the block: is it no failure?
        self.check_start: Callable[[], object] = bool  # raises if the run, as it was read, is not to be started
        self.marked_after = 0.0  # seconds after which a run that has saved nothing yet is marked as running; 0: not
        self._resumed = False  # True until the first commit after entering, which marks the run as running
        self._entered: bytes | None = None  # the checkpoint at which it was entered
        self._planned: Waiting | None = None  # while that is being committed
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

    def check_not_entered(self) -> None:
        """Refuse to enter a run twice by one handle: the inner block would end it for the outer one."""
        if self.at_work:
            raise InvalidInput(f"this handle is inside of run {self.id!r} already: use it there")

    async def start(self) -> None:
        """Fill the attributes with the last checkpoint, if there is one; `RunFinished` if the run is over."""
        await self.load()
        if self.status == "finished":
            raise RunFinished(self.id, self.result)
        self.check_start()
        self.at_work, self._resumed, self._entered = True, self.status != "running", self.thread.base_id
        self.inner_due = 0
        self._failing.clear()

    async def load(self) -> bool:
        """Fill the attributes from the last checkpoint; False if there is none."""
        self.ended = False
        try:
            state = await self.thread.load()
        except ThreadNotFound:
            self.loaded = True
            return False
        if base_kind(self.thread.loaded_kind) != KIND:
            raise InvalidInput(f"{self.id!r} is a {self.thread.loaded_kind}, not a run: choose another id")
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
            self.recording = Recording(self.id, segment, read_records(steps))
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

    def _encode_asked(self) -> bytes:
        asked = self.asked if self._planned is None else self._planned.asked
        return self.values.encode({name: msgspec.structs.asdict(one) for name, one in asked.items()})

    # -- how it stands ------------------------------------------------------------------------------------------------

    async def step_infos(self) -> list[StepInfo]:
        """The recorded steps, oldest first, as the store has them."""
        found = (await self.thread.pick([STEPS])).get(STEPS, [])
        try:
            records = Recording(self.id, 0, read_records(found)).steps.values()
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
