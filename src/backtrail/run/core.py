"""What a run can do, in one colour: be resumed, take a checkpoint at each iteration, and be gone when it succeeds.

The state of a run is its task, iteration, messages, system prompt, token counts and whatever else the caller keeps. A
handle has these as plain attributes, filled by `resume`. Whoever works on a run holds its lease: a second process is
told who has it, and one that lost it cannot write any more.
"""

from __future__ import annotations

from typing import Any

import msgspec

from backtrail.encode.planner import PlannedRow, Planner
from backtrail.encode.row_format import Inline, Root
from backtrail.engines.base import Fence, Head, Lease, Taken
from backtrail.errors import InvalidInput, LockLost, LockTimeout, ThreadNotFound
from backtrail.history.context import Context
from backtrail.history.facts import Facts
from backtrail.history.records import open_note, thread_info
from backtrail.history.store import list_heads
from backtrail.history.thread import Thread
from backtrail.model import Checkpoint, ThreadInfo
from backtrail.run.lease_owner import is_gone, new_holder

KIND = "run"
TTL = 30.0  # seconds that a lease outlives its last renewal
_NUMBERS = ("iteration", "input_tokens", "output_tokens")
_LIST = "messages"
_ENCODER = msgspec.msgpack.Encoder()
_CAPTION = msgspec.msgpack.Decoder(tuple[bytes, str, int, int, int])


class RunInfo(ThreadInfo, frozen=True, kw_only=True):
    """What a listing tells about a run."""

    task: str
    iteration: int
    input_tokens: int
    output_tokens: int


class RunCore:
    """One run of a store. Cheap to make; nothing is read before it is used."""

    def __init__(self, context: Context, id: str, task: str = "") -> None:
        if type(task) is not str:
            raise InvalidInput(f"task must be a str, not {type(task).__qualname__}")
        self.thread: Thread[Any] = Thread(context, id, kind=KIND)
        self.thread.caption = _caption
        self.id = self.thread.id
        self.task = task
        self.iteration = 0
        self.messages: list[Any] = []
        self.system_prompt = ""
        self.input_tokens = 0
        self.output_tokens = 0
        self.custom: dict[str, Any] = {}
        self.known = False  # whether the attributes are what the store had
        self._lease = f"run:{self.id}"
        self._holder = new_holder()

    # -- state --------------------------------------------------------------------------------------------------------

    async def exists(self) -> bool:
        """Whether there is a checkpoint to resume from."""
        return await self.thread.exists()

    async def resume(self) -> Checkpoint:
        """Fill the attributes with the last checkpoint, and return it. `ThreadNotFound` if there is none, `LockTimeout`
        if a process is working on it; a damaged one raises `Corrupt`, and is never taken for a new run."""
        working = self.thread.fence is not None
        taken = await self.take()
        if taken is not None:
            raise self.refused(0.0, taken)
        if not working:
            await self.release()
        if not await self._load():
            raise self._nothing()
        head = await self.thread.head()
        if head is None:
            raise self._nothing()
        return head

    def _nothing(self) -> ThreadNotFound:
        why = "it has not begun, or has finished; store.runs() lists those that wait"
        return ThreadNotFound(self.id, f"run {self.id!r} has nothing to resume: {why}")

    async def _load(self) -> bool:
        """Fill the attributes, if there is anything to fill them with."""
        self.thread.context.check_open()
        head = await self.thread.context.engine.head(self.id)
        if head is not None and head.kind != KIND:
            raise InvalidInput(f"{self.id!r} is a {head.kind}, not a run: choose another id")
        try:
            state = await self.thread.load()
        except ThreadNotFound:
            self.known = True
            return False
        self.task = self.task or state.get("task", "")
        self.iteration = state.get("iteration", 0)
        self.messages = state.get(_LIST, [])
        self.system_prompt = state.get("system_prompt", "")
        self.input_tokens = state.get("input_tokens", 0)
        self.output_tokens = state.get("output_tokens", 0)
        self.custom = state.get("custom", {})
        self.known = True
        return True

    async def checkpoint(
        self,
        /,
        messages: Any = None,
        *,
        iteration: int | None = None,
        system_prompt: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        **custom: Any,
    ) -> Checkpoint:
        """Save the run after an iteration. What is not given is saved as the attributes have it; the iteration goes up
        by one. Token counts are totals; other keywords are kept in `run.custom`."""
        if not self.known:
            await self._load()
        if messages is not None:
            if type(messages) not in (list, tuple):
                raise InvalidInput(f"messages must be a list, not {type(messages).__qualname__}")
            self.messages = messages if type(messages) is list else list(messages)
        given = {"iteration": iteration, "input_tokens": input_tokens, "output_tokens": output_tokens}
        numbers: dict[str, Any] = {
            name: getattr(self, name) if given[name] is None else given[name] for name in _NUMBERS
        }
        if iteration is None:
            numbers["iteration"] += 1
        for name, value in numbers.items():
            if type(value) is not int or value < 0:
                raise InvalidInput(f"{name} must be an int from 0 up, not {value!r}")
        prompt = self.system_prompt if system_prompt is None else system_prompt
        fields = {**self.custom, **custom}
        state = {"task": self.task, **numbers, "system_prompt": prompt, _LIST: self.messages, "custom": fields}
        facts = Facts.check(self.thread.values, None, (), None, None, None)

        def plan(planner: Planner) -> PlannedRow:
            return planner.replace(state)

        try:
            saved = await self.thread.save_plan(plan, facts, compare_lists=True)
        except LockLost as lost:
            text = f"run {self.id!r} was taken over by another process: its lease was lost, nothing was saved"
            raise LockLost(self.id, lost.expected, lost.actual, text) from lost
        self.system_prompt, self.custom = prompt, fields
        for name, value in numbers.items():
            setattr(self, name, value)
        return saved

    async def finish(self) -> None:
        """The run succeeded: delete it. One that does not exist is no error."""
        try:
            await self.thread.delete()
        except ThreadNotFound:
            return

    # -- who has it ---------------------------------------------------------------------------------------------------

    async def take(self) -> Taken | None:
        """Take the lease, or renew it; who has it, if another does. One that a dead process left is taken over."""
        context = self.thread.context
        context.check_open()
        answer = await context.engine.lease(self._lease, self._holder, TTL)
        if isinstance(answer, Taken) and is_gone(answer.owner):
            await context.engine.release(self._lease, answer.owner)
            answer = await context.engine.lease(self._lease, self._holder, TTL)
        if isinstance(answer, Lease):
            self.thread.fence = Fence(self._lease, answer.token)
            return None
        return answer

    async def renew(self) -> bool:
        """Keep the lease for longer; False if another has it, or had it meanwhile and moved the run on."""
        context, thread = self.thread.context, self.thread
        answer = await context.engine.lease(self._lease, self._holder, TTL)
        if not isinstance(answer, Lease):
            return False
        fence = Fence(self._lease, answer.token)
        if thread.fence == fence:
            return True
        # It ran out, and is ours again under a new number. That is as good as before if the run has not moved.
        head = await context.engine.head(self.id)
        if (open_note(context.frames, head).checkpoint if head is not None else None) != thread.base_id:
            await context.engine.release(self._lease, self._holder)
            return False
        thread.fence = fence
        return True

    async def release(self) -> None:
        """Give the lease back."""
        self.thread.fence = None
        if not self.thread.context.closed:
            await self.thread.context.engine.release(self._lease, self._holder)

    async def start(self) -> None:
        """Fill the attributes with the last checkpoint; a run that has none begins."""
        await self._load()

    def refused(self, waited: float, taken: Taken) -> LockTimeout:
        return LockTimeout(f"run {self.id!r}", waited, taken.owner)


# -- listings ---------------------------------------------------------------------------------------------------------


def _caption(root: Root, id: bytes) -> bytes:
    """What a listing tells of a run, so that it need not be read; `id` says of which checkpoint it is true."""
    return _ENCODER.encode((id[-6:], *_facts(root)))


def _facts(root: Root) -> tuple[str, int, int, int]:
    children = root.tree.children or {}
    small = {}
    for name in ("task", *_NUMBERS):
        node = children.get(name)
        if isinstance(node, Inline):
            small[name] = msgspec.msgpack.decode(node.raw)
    task = str(small.get("task", ""))
    return task, small.get("iteration", 0), small.get("input_tokens", 0), small.get("output_tokens", 0)


async def run_info(context: Context, head: Head) -> RunInfo:
    """The line of a listing. Only a head that was put elsewhere by a rewind or a fork has its row read."""
    note = open_note(context.frames, head)
    try:
        told = _CAPTION.decode(note.custom) if note.custom else (b"", "", 0, 0, 0)
    except msgspec.DecodeError:  # another view saved last, and said what it says of its own kind
        told = (b"", "", 0, 0, 0)
    facts = told[1:]
    if told[0] != note.checkpoint[-6:]:
        facts = _facts((await Thread[Any](context, head.thread).read_root()).root)
    line = thread_info(context.frames, head)
    known = {name: getattr(line, name) for name in ThreadInfo.__struct_fields__}
    return RunInfo(**known, task=facts[0], iteration=facts[1], input_tokens=facts[2], output_tokens=facts[3])


async def list_runs(
    context: Context, prefix: str = "", limit: int | None = None, after: str | None = None
) -> list[RunInfo]:
    """Runs whose id starts with `prefix`, newest first; `after` is the last id of the page before."""
    heads = await list_heads(context, prefix, limit, after, KIND)
    return [await run_info(context, head) for head in heads]
