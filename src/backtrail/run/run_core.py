"""A run: it is resumed, saves a checkpoint after each iteration, and is deleted when it succeeds.

Its operations are written once, as coroutines, for the sync and async facades. The state of a run is its task,
iteration, messages, system prompt, token counts and custom fields. A handle has these as plain attributes, filled by
`resume`. A process that works on a run owns its lease: a second process gets an error that names the owner, and one
that lost the lease cannot write any more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from backtrail.encode.planner import PlannedRow, Planner
from backtrail.engines.base import Fence, Lease, Taken
from backtrail.errors import InvalidInput, LockLost, LockTimeout, ThreadNotFound
from backtrail.history.context import Context
from backtrail.history.save import check_facts
from backtrail.history.thread_core import ThreadCore
from backtrail.model import MAX_NUMBER, Checkpoint, short_repr
from backtrail.run.lease_owner import is_gone, new_owner
from backtrail.run.listing import KIND, NUMBERS, RUNS

_FIELDS: dict[str, type] = {
    "task": str,
    "messages": list,
    "system_prompt": str,
    **dict.fromkeys(NUMBERS, int),
    "custom": dict,
}
TTL = 30.0  # seconds from the last renewal of a lease until it expires


class RunCore:
    """One run of a store. Cheap to make; nothing is read before it is used."""

    def __init__(self, context: Context, id: str, task: str = "") -> None:
        if type(task) is not str:
            raise InvalidInput(f"task must be a str, not {type(task).__qualname__}")
        self.thread: ThreadCore[Any] = ThreadCore(context, id, kind=KIND)
        self.thread.caption = RUNS.caption
        self.id = self.thread.id
        self.task = task
        self.iteration = 0
        self.messages: list[Any] = []
        self.system_prompt = ""
        self.input_tokens = 0
        self.output_tokens = 0
        self.custom: dict[str, Any] = {}
        self.loaded = False  # True once the attributes have the values of the store
        self._lease = f"run:{self.id}"
        self._owner = new_owner()

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
        if not await self._load():
            raise self._nothing_to_resume()
        head = await self.thread.head()
        if head is None:
            raise self._nothing_to_resume()
        return head

    def _nothing_to_resume(self) -> ThreadNotFound:
        why = "it has not begun, or has finished; store.runs() lists those that wait"
        return ThreadNotFound(self.id, f"run {self.id!r} has nothing to resume: {why}")

    async def _load(self) -> bool:
        """Fill the attributes from the last checkpoint; False if there is none."""
        self.thread.context.check_open()
        head = await self.thread.context.engine.head(self.id)
        if head is not None and head.kind != KIND:
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
        self.loaded = True
        return True

    def _fields(self, state: Any) -> dict[str, Any]:
        """The fields of a run's state, if they have the right types: any thread's state can be changed by hand."""
        if type(state) is not dict:
            raise self._unreadable(f"its state is a {type(state).__qualname__}")
        fields: dict[str, Any] = {name: state.get(name, kind()) for name, kind in _FIELDS.items()}
        for name, value in fields.items():
            wrong_type = type(value) is not _FIELDS[name]
            if wrong_type or (name in NUMBERS and not 0 <= value < MAX_NUMBER):
                raise self._unreadable(f"state[{name!r}] is {short_repr(value)}")
        return fields

    def _unreadable(self, why: str) -> InvalidInput:
        return InvalidInput(
            f"thread {self.id!r} cannot be read as a run: {why}; store.thread(id).load() gives its state"
        )

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
        **custom: Any,
    ) -> Checkpoint:
        """Save the run after an iteration. Values that are not given are taken from the attributes; the iteration goes
        up by one. Token counts are totals; other keywords are kept in `run.custom`."""
        if not self.loaded:
            await self._load()
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
        prompt = self.system_prompt if system_prompt is None else system_prompt
        fields = {**self.custom, **custom}
        state = {"task": self.task, **numbers, "system_prompt": prompt, "messages": self.messages, "custom": fields}
        facts = await check_facts(self.thread, label, tags, None, files, None)

        def plan(planner: Planner) -> PlannedRow:
            return planner.replace(state)

        try:
            saved = await self.thread.save_plan(plan, facts, compare_lists=True)
        except LockLost as lost:
            raise self._lost() from lost
        self.system_prompt, self.custom = prompt, fields
        for name, value in numbers.items():
            setattr(self, name, value)
        return saved

    async def move(self, move: Callable[[], Awaitable[Checkpoint]]) -> Checkpoint:
        """Move the head (undo, redo, rewind), and fill the attributes with the checkpoint that it is at then.
        `LockTimeout` if another process is working on the run."""
        owned = self.thread.fence is not None
        taken = await self.acquire()
        if taken is not None:
            raise self.refused(0.0, taken)
        try:
            moved = await move()
            await self._load()
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

    async def finish(self) -> None:
        """Delete the run, because it succeeded. A missing run is not an error."""
        try:
            await self.thread.delete()
        except ThreadNotFound:
            # Nothing was saved, or another process finished it.
            if self.thread.fence is not None and not await self.renew():
                raise self._lost() from None
        except LockLost as lost:
            raise self._lost() from lost

    # -- the lease ----------------------------------------------------------------------------------------------------

    async def acquire(self) -> Taken | None:
        """Acquire or renew the lease; returns the current owner's `Taken` if another has it. The lease of a dead
        process is taken over. `LockLost` if this handle had it, and another has or had it since."""
        context = self.thread.context
        context.check_open()
        if self.thread.fence is not None:
            if not await self.renew():
                raise self._lost()
            return None
        answer = await context.engine.lease(self._lease, self._owner, TTL)
        if isinstance(answer, Taken) and is_gone(answer.owner):
            await context.engine.release(self._lease, answer.owner)
            answer = await context.engine.lease(self._lease, self._owner, TTL)
        if isinstance(answer, Lease):
            self.thread.fence = Fence(self._lease, answer.token)
            return None
        return answer

    async def renew(self) -> bool:
        """Renew the lease; False if another has it, or had it meanwhile, whatever became of the run: every write of
        this handle is refused from then on."""
        engine = self.thread.context.engine
        answer = await engine.lease(self._lease, self._owner, TTL)
        if not isinstance(answer, Lease):
            return False
        if Fence(self._lease, answer.token) == self.thread.fence:
            return True
        await engine.release(self._lease, self._owner)
        return False

    async def release(self) -> None:
        """Release the lease."""
        self.thread.fence = None
        if not self.thread.context.closed:
            await self.thread.context.engine.release(self._lease, self._owner)

    async def start(self) -> None:
        """Fill the attributes with the last checkpoint, if there is one."""
        await self._load()

    def _lost(self) -> LockLost:
        text = f"run {self.id!r} was taken over by another process: its lease was lost, nothing was saved"
        return LockLost(self.id, message=text)

    def refused(self, waited: float, taken: Taken) -> LockTimeout:
        """The error for a lease that another has."""
        return LockTimeout(f"run {self.id!r}", waited, taken.owner)
