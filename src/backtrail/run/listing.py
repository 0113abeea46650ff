"""Runs in a listing, and the questions that wait for an answer: read from heads alone.

The caption of a run's head has its task, counts and open questions, so a page of a listing reads no state. Only a
question too large for a caption is read from the run.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from backtrail.encode.row_format import Inline, ListNode, Root
from backtrail.engines.base import Head
from backtrail.errors import Corrupt, InvalidInput
from backtrail.history.captions import CaptionedListing, encode_caption
from backtrail.history.context import Context
from backtrail.history.records import damaged_info, thread_info, to_datetime
from backtrail.history.run_status import KINDS, RUN, STATUSES, status_of
from backtrail.history.store_core import list_heads
from backtrail.history.thread_core import ThreadCore
from backtrail.model import MAX_NUMBER, Status, ThreadInfo
from backtrail.run.model import Pending

KIND = RUN
NUMBERS = ("iteration", "input_tokens", "output_tokens")  # keys of the state
STEPS, ASKED, DUE, SUBMITTED = "steps", "asked", "due", "submitted"  # more of them
_SMALL = ("task", *NUMBERS, DUE, SUBMITTED)  # those that a listing shows as they are
OPEN: tuple[Status, ...] = ("running", "ready", "waiting", "sleeping", "failed")  #: everything but finished
_MAX_CAPTION = 1536  # bytes of open questions that a head carries
_LAST_TIME = 253_402_300_799_999_999  # the last microsecond that a datetime can have


class RunInfo(ThreadInfo, frozen=True, kw_only=True):
    """A run in a listing."""

    task: str
    status: Status
    iteration: int
    steps: int  #: steps that are recorded
    input_tokens: int
    output_tokens: int
    due_at: dt.datetime | None = None  #: when a sleeping run goes on, or the next question of a waiting one expires
    submitted: bool = False  #: it was begun by `store.submit`, and `store.work` takes it up


class _Facts(msgspec.Struct, frozen=True, array_like=True):
    task: str = ""
    iteration: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    steps: int = 0
    due: int = 0  # microseconds since 1970; 0: none
    submitted: bool = False
    asked: bytes | None = b""  # the open questions, encoded; None: too large for a caption


def _facts(root: Root) -> _Facts:
    children = root.tree.children or {}
    small = {}
    for name in _SMALL:
        node = children.get(name)
        if isinstance(node, Inline):
            small[name] = msgspec.msgpack.decode(node.raw)
    task = small.get("task")
    iteration, sent, received = (_number(small.get(name)) for name in NUMBERS)
    steps, asked = children.get(STEPS), children.get(ASKED)
    return _Facts(
        task if type(task) is str else "",
        iteration,
        sent,
        received,
        _count(steps),
        min(_number(small.get(DUE)), _LAST_TIME),
        small.get(SUBMITTED) is True,
        b"" if asked is None else asked.raw if isinstance(asked, Inline) else None,
    )


def _count(node: Any) -> int:
    if isinstance(node, ListNode):
        return node.count
    value = msgspec.msgpack.decode(node.raw) if isinstance(node, Inline) else None
    return len(value) if type(value) is list else 0


def _number(value: Any) -> int:
    """A number of the state; 0 if a caller saved something else under its key."""
    return value if type(value) is int and 0 <= value < MAX_NUMBER else 0


class RunCaption:
    """Makes the captions of one run. Most commits are a step, which changes none of these facts but the count of steps:
    the others are read again only if one of them changed. `asked` gives the open questions, encoded, if they are too
    large for a root."""

    def __init__(self, asked: Callable[[], bytes]) -> None:
        self._asked = asked
        self._nodes: tuple[Any, ...] = ()
        self._facts = _Facts()

    def __call__(self, root: Root, id: bytes) -> bytes:
        """The caption of a head; `id` is the checkpoint that it describes."""
        children = root.tree.children or {}
        nodes = tuple(map(children.get, (*_SMALL, ASKED)))
        if nodes != self._nodes:
            facts = _facts(root)
            if facts.asked is None and len(large := self._asked()) <= _MAX_CAPTION:
                facts = msgspec.structs.replace(facts, asked=large)
            self._nodes, self._facts = nodes, facts
        return encode_caption(id, msgspec.structs.replace(self._facts, steps=_count(children.get(STEPS))))


class Schedule(NamedTuple):
    """What a worker has to know of a run before it is tried."""

    submitted_for: str | None  #: its task, if it was submitted
    due: int  #: microseconds since 1970; 0: no time


class RunListing(CaptionedListing[RunInfo]):
    """The listing of runs, of any status."""

    def __init__(self) -> None:
        super().__init__(KIND, RunInfo, tuple[_Facts], lambda root: (_facts(root),), (_Facts(),))

    async def info(self, context: Context, head: Head) -> RunInfo:
        common, facts = await self._read(context, head)
        return RunInfo(
            **common,
            task=facts.task,
            status=status_of(head.kind),
            iteration=facts.iteration,
            steps=facts.steps,
            input_tokens=facts.input_tokens,
            output_tokens=facts.output_tokens,
            due_at=to_datetime(facts.due) if facts.due else None,
            submitted=facts.submitted,
        )

    async def schedule(self, context: Context, head: Head) -> Schedule:
        """When a run goes on, and for which task; of one that is damaged, neither."""
        try:
            facts = await self._read_facts(context, head)
        except Corrupt:
            return Schedule(None, 0)  # store.runs() lists it, with its damage
        return Schedule(facts.task if facts.submitted else None, facts.due)

    async def _read(self, context: Context, head: Head) -> tuple[dict[str, Any], _Facts]:
        try:
            common, facts = thread_info(context.frames, head), await self._read_facts(context, head)
        except Corrupt as error:
            common, facts = damaged_info(head, error), _Facts()
        return {name: getattr(common, name) for name in ThreadInfo.__struct_fields__}, facts

    async def of_status(
        self,
        context: Context,
        prefix: str = "",
        limit: int | None = None,
        after: str | None = None,
        status: Any = None,
    ) -> list[RunInfo]:
        """Runs of one status or of several, newest first; None: all that have not finished."""
        heads: dict[str, Head] = {}
        for one in check_statuses(status):
            for head in await list_heads(context, prefix, limit, after, KINDS[one], exact=True):
                heads[head.thread] = head
        ordered = sorted(heads.values(), key=lambda head: (head.updated, head.thread), reverse=True)
        return [await self.info(context, head) for head in ordered[:limit]]

    async def pending(
        self, context: Context, prefix: str = "", limit: int | None = None, after: str | None = None
    ) -> list[Pending]:
        """The open questions of waiting runs, newest first. Those of one run stay together, because the next page
        begins after a run: so a page may have some more than `limit`."""
        found: list[Pending] = []
        for head in await list_heads(context, prefix, limit, after, KINDS["waiting"], exact=True):
            try:
                facts = await self._read_facts(context, head)
                found += await open_questions(context, head.thread, facts.task, facts.asked)
            except Corrupt:
                continue  # store.runs() lists it, with its damage
            if limit is not None and len(found) >= limit:
                break
        return found

    async def _read_facts(self, context: Context, head: Head) -> _Facts:  # type: ignore[override]  # one record of them
        facts: _Facts = (await super()._read_facts(context, head))[0]
        return facts


async def open_questions(context: Context, run_id: str, task: str, asked: bytes | None) -> list[Pending]:
    """The open questions of a run; `asked` are they as the caption has them, None if they have to be read."""
    if asked == b"":
        return []
    if asked is None:
        asked_now = (await ThreadCore[Any](context, run_id).pick([ASKED])).get(ASKED, {})
    else:
        asked_now = context.values.decode(asked)
    if type(asked_now) is not dict:
        return []
    found = []
    for name, entry in asked_now.items():
        try:
            found.append(_pending(run_id, task, name, read_question(entry)))
        except ValueError as error:
            raise Corrupt(f"the questions of run {run_id!r}", f"one of them makes no sense: {error}") from error
    return sorted(found, key=lambda one: one.asked_at, reverse=True)


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A question that waits, as it is in `state["asked"]` under its name."""

    question: Any
    about: Any = None
    schema: dict[str, Any] | None = None
    digest: bytes
    segment: int = 0
    n: int = 1
    at: int
    expires: int | None = None


def read_question(entry: Any) -> Question:
    """The question of an entry of the state. Raises `ValueError` for anything else."""
    found = msgspec.convert(entry, Question)
    if not 0 <= found.at <= _LAST_TIME or not 0 <= (found.expires or 0) <= _LAST_TIME:
        raise ValueError("its time is out of bounds")
    return found


def _pending(run_id: str, task: str, name: str, entry: Question) -> Pending:
    return Pending(
        run_id=run_id,
        task=task,
        name=name,
        question=entry.question,
        about=entry.about,
        schema=entry.schema,
        digest=entry.digest.hex(),
        asked_at=to_datetime(entry.at),
        expires_at=None if entry.expires is None else to_datetime(entry.expires),
    )


def check_statuses(status: Any) -> tuple[str, ...]:
    """The statuses that a listing was asked for: None for all but finished, "all", one, or several."""
    if status is None:
        return OPEN
    if status == "all":
        return STATUSES
    names = (status,) if isinstance(status, str) else status
    if not isinstance(names, Iterable):
        raise InvalidInput(f"status must be a str, or several, not {type(status).__qualname__}")
    names = tuple(dict.fromkeys(names))
    for name in names:
        if name not in STATUSES:
            raise InvalidInput(f"status={name!r:.40} is unknown: there are {', '.join(STATUSES)}, and all")
    return names


RUNS = RunListing()
