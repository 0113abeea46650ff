"""A session: messages are added, read, cut, summarised, repaired and rewound.

Its operations are written once, as coroutines, for the sync and async facades. The state of a session is `messages`
and, in the same row, a few small values: `user_turns`, `summary`, and the number of the first message. An append writes
one row and reads nothing; a cut shares every row with the messages before it. Nothing is ever removed from the history:
a truncated message is still in every earlier checkpoint.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import msgspec

from backtrail import message_shapes
from backtrail.encode.planner import PlannedRow, Planner
from backtrail.engines.base import Head
from backtrail.errors import BacktrailError, Conflict, Corrupt, InvalidInput, LockLost, ThreadNotFound
from backtrail.history.checkpoint_ids import uuid_text
from backtrail.history.context import Context
from backtrail.history.observation import observe
from backtrail.history.retry import attempts
from backtrail.history.save import Plan, check_facts
from backtrail.history.save_arguments import NO_FACTS, Facts
from backtrail.history.thread_core import ThreadCore
from backtrail.history.validation import check_limit, check_name, check_number
from backtrail.message_shapes import Message, Problem
from backtrail.model import MAX_GIVEN, Checkpoint
from backtrail.session.edits import check_messages, message_list, plan_append, plan_keep, plan_replace
from backtrail.session.listing import KIND, SESSIONS, SessionInfo
from backtrail.session.message_compaction import Compaction
from backtrail.session.message_window import FIRST, MESSAGES, SUMMARY, TURNS, MessageWindow, message_ids
from backtrail.session.rewind_points import SNAPSHOT, find_point

Errors = Literal["raise", "log"]
_LOG = logging.getLogger("backtrail.session")
P = ParamSpec("P")
T = TypeVar("T")


def _logs_errors(
    method: Callable[Concatenate[SessionCore, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SessionCore, P], Coroutine[Any, Any, T | None]]:
    """Make a write that fails be logged and counted instead of raised, if the session has errors="log"."""

    @functools.wraps(method)
    async def call(self: SessionCore, /, *args: P.args, **kwargs: P.kwargs) -> T | None:
        try:
            return await method(self, *args, **kwargs)
        except BacktrailError as error:
            if self.errors == "raise":
                raise
            self.failed += 1
            self.thread.context.add_failed_write()
            _LOG.error("session %r: %s failed: %s", self.id, method.__name__, error, exc_info=error)
            return None

    return call


class SessionCore:
    """One session of a store. Cheap to make; nothing is read before it is used."""

    def __init__(self, context: Context, id: str, errors: Errors = "raise") -> None:
        if errors not in ("raise", "log"):
            raise InvalidInput(f"errors={errors!r} is unknown: use 'raise' or 'log'")
        self.thread: ThreadCore[Any] = ThreadCore(context, id, kind=KIND)
        self.thread.caption = SESSIONS.caption
        self.id = self.thread.id
        self.errors: Errors = errors
        self.failed = 0

    # -- adding -------------------------------------------------------------------------------------------------------

    @_logs_errors
    async def add(
        self,
        /,
        role: str,
        content: Any,
        *,
        label: str | None = None,
        tags: Any = (),
        custom: Mapping[str, Any] | None = None,
        files: Any = None,
        **fields: Any,
    ) -> Checkpoint:
        """Append the message `{"role": role, "content": content, **fields}`."""
        message = {"role": check_name(role, "role"), "content": content, **fields}
        return await self._extend([message], await self._facts_of(label, tags, custom, files))

    @_logs_errors
    async def append(
        self,
        message: Message,
        label: str | None = None,
        tags: Any = (),
        custom: Mapping[str, Any] | None = None,
        files: Any = None,
        id: Any = None,
    ) -> Checkpoint:
        """Append a message of any shape, kept as it is."""
        return await self._extend([message], await self._facts_of(label, tags, custom, files, id))

    @_logs_errors
    async def extend(
        self,
        messages: Any,
        label: str | None = None,
        tags: Any = (),
        custom: Mapping[str, Any] | None = None,
        files: Any = None,
        id: Any = None,
    ) -> Checkpoint:
        """Append several messages as one checkpoint."""
        new = message_list(messages, "extend()")
        return await self._extend(new, await self._facts_of(label, tags, custom, files, id))

    async def _extend(self, messages: list[Message], facts: Facts) -> Checkpoint:
        turns = message_shapes.user_turns(check_messages(messages))
        planned: list[PlannedRow] = []

        def plan(planner: Planner) -> PlannedRow:
            planned[:] = [plan_append(planner, messages, {}, turns)]
            return planned[0]

        saved = await self.thread.save_plan(plan, facts, rebase=True)
        if planned:  # else a call with the same id had saved them before
            self.thread.remember_end(MESSAGES, planned[0])
        return saved

    # -- reading ------------------------------------------------------------------------------------------------------

    async def messages(self, last: int | None = None, whole: bool = True, at: Any = None) -> list[Message]:
        """The messages, or the last few; the rest is not read. `whole` adds the messages before them whose tool calls
        they answer, so that `last=n` may give a little more than n."""
        limit = check_limit(last, "last")

        async def read(window: MessageWindow) -> list[Message]:
            if at is None:
                self.thread.base_id = window.checkpoint
            if limit is None:
                return await window.all()
            start, found = await window.last(limit)
            return (await window.with_calls(start, found))[1] if whole else found

        return await self._read(read, [], at)

    async def ids(self, last: int | None = None, whole: bool = True, at: Any = None) -> list[str]:
        """The ids of `messages(last, whole)`: the id that a message carries, or `#<number>` if it carries none."""
        limit = check_limit(last, "last")

        async def read(window: MessageWindow) -> list[str]:
            start, found = (0, await window.all()) if limit is None else await window.last(limit)
            if whole:
                start, found = await window.with_calls(start, found)
            return message_ids(found, await window.first() + start)

        return await self._read(read, [], at)

    async def count(self) -> int:
        """The number of messages."""
        return await self._read(MessageWindow.count, 0)

    async def summary(self) -> str:
        """The summary of the messages that were cut away, "" if there is none."""
        found: str = await self._read(lambda window: window.value(SUMMARY, ""), "")
        return found

    async def user_turns(self) -> int:
        """The number of user turns, truncated ones included."""
        found: int = await self._read(lambda window: window.value(TURNS, 0), 0)
        return found

    async def exists(self) -> bool:
        """True if anything was saved under this id."""
        return await self.thread.exists()

    async def info(self) -> SessionInfo:
        """The session as a listing shows it."""
        return await SESSIONS.info(self.thread.context, await self.thread.require_head())

    async def stats(self) -> dict[str, int]:
        """The numbers of messages, of user turns, and of this handle's writes that failed (errors="log")."""
        return {"messages": await self.count(), "user_turns": await self.user_turns(), "failed_writes": self.failed}

    # -- changing -----------------------------------------------------------------------------------------------------

    @_logs_errors
    async def pop(self) -> Message | None:
        """Remove the last message and return it; None if there is none."""
        popped: list[Message] = []

        async def decide(window: MessageWindow) -> Plan | None:
            count = await window.count()
            if not count:
                return None
            popped[:] = await window.items(count - 1, count)
            kept = await window.reader.sublist(window.node, 0, count - 1)
            user_turns = int(await window.value(TURNS, 0)) - message_shapes.user_turns(popped)
            return lambda planner: plan_keep(planner, kept, {TURNS: max(0, user_turns)})

        return popped[0] if await self._rewrite(decide) is not None else None

    @_logs_errors
    async def clear(self) -> Checkpoint | None:
        """Remove all messages, the summary and the count of turns. They stay in the history."""

        async def decide(window: MessageWindow) -> Plan | None:
            number = await window.first() + await window.count()
            return lambda planner: planner.change({MESSAGES: [], TURNS: 0, FIRST: number}, drop=(MESSAGES, SUMMARY))

        return await self._rewrite(decide)

    @_logs_errors
    async def replace(self, messages: Any, user_turns: int | None = None) -> Checkpoint:
        """Replace all messages; unchanged ones are not written again. `Conflict` if another writer has saved since this
        handle last read or wrote."""
        new = check_messages(message_list(messages, "replace()"))
        number = check_number(user_turns, "user_turns")
        if number is not None and number >= MAX_GIVEN:
            raise InvalidInput(f"user_turns must be below {MAX_GIVEN:,}")
        extra = {} if number is None else {TURNS: number}

        def plan(planner: Planner) -> PlannedRow:
            return plan_replace(planner, new, extra)

        return await self.thread.save_plan(plan, NO_FACTS, compare_lists=True)

    @_logs_errors
    async def truncate(
        self, keep_last: int | None = None, before: str | None = None, at: Any = None
    ) -> Checkpoint | None:
        """Cut away old messages: all but the last few, those before a message, or those that checkpoint `at` had. A
        tool call is never separated from its result, so a little more may stay. None if there was nothing to cut."""
        limit = check_limit(keep_last, "keep_last")
        if (limit is not None) + (before is not None) + (at is not None) != 1:
            raise InvalidInput("truncate() takes exactly one of keep_last=, before= and at=")
        end = await self._end_number(at) if at is not None else 0

        async def decide(window: MessageWindow) -> Plan | None:
            first, count = await window.first(), await window.count()
            if limit is not None:
                start = count - limit
            elif before is not None:
                start = await window.find(check_name(before, "message id"))
            else:
                start = min(end - first, count)
            if start <= 0:
                return None
            start = await window.safe_cut(start)
            return await self._cut_before(window, first, start, {}) if start > 0 else None

        return await self._rewrite(decide)

    async def _end_number(self, at: Any) -> int:
        """The number after that of the last message at a checkpoint."""

        async def read(window: MessageWindow) -> int:
            return await window.first() + await window.count()

        return await self._read(read, 0, at)

    async def _cut_before(self, window: MessageWindow, first: int, start: int, changes: dict[str, Any]) -> Plan:
        """Plan to keep the messages from the index `start` on."""
        kept = await window.reader.sublist(window.node, start, await window.count())
        return lambda planner: plan_keep(planner, kept, {**changes, FIRST: first + start})

    @_logs_errors
    async def set_summary(self, text: str) -> Checkpoint:
        """Store a summary with the messages; "" removes it."""
        if type(text) is not str:
            raise InvalidInput(f"a summary is a str, not {type(text).__qualname__}")
        if not text:
            return await self.thread.edit(lambda planner: planner.change({}, drop=(SUMMARY,)), NO_FACTS)
        return await self.thread.edit(lambda planner: planner.change({SUMMARY: text}), NO_FACTS)

    @_logs_errors
    async def save(
        self, label: str | None = None, tags: Any = (), custom: Mapping[str, Any] | None = None, files: Any = None
    ) -> Checkpoint:
        """The checkpoint with everything added so far, which is durable already. A session that does not exist is made;
        a label, tags, custom fields or files make a checkpoint of their own."""
        facts = await self._facts_of(label, tags, custom, files)
        head = await self.thread.head()
        if head is not None and facts == NO_FACTS:
            return head

        def plan(planner: Planner) -> PlannedRow:
            new = {MESSAGES: [], TURNS: 0} if planner.peek(TURNS) is None and not planner.count(MESSAGES) else {}
            return planner.change(new)

        return await self.thread.edit(plan, facts)

    # -- summaries ----------------------------------------------------------------------------------------------------

    async def plan_compaction(self, keep_last: int) -> Compaction | None:
        """The messages to summarise: all but the last few. None if there are none."""
        limit = check_limit(keep_last, "keep_last") or 0
        return await self._read(lambda window: Compaction.plan(window, limit), None)

    @_logs_errors
    async def apply_compaction(self, compaction: Compaction, summary: str) -> Checkpoint | None:
        """Replace the summarised messages with their summary. Messages added meanwhile stay; if a summarised one has
        changed, nothing is done and `Conflict` is raised."""
        if type(summary) is not str:
            raise InvalidInput(f"summarize must return a str, not {type(summary).__qualname__}")

        async def decide(window: MessageWindow) -> Plan | None:
            if not await compaction.still_holds(window, self.thread.values.encode):
                reason = f"session {self.id!r} was changed while it was summarised: nothing was applied, try again"
                raise Conflict(self.id, message=reason)
            return await self._cut_before(window, compaction.first, len(compaction.messages), {SUMMARY: summary})

        return await self._rewrite(decide)

    # -- repairing ----------------------------------------------------------------------------------------------------

    async def repair(self, fix: bool = False, alternating: bool = False) -> list[Problem]:
        """The problems that make providers refuse these messages: a tool call without a result, a result without a call
        and, with `alternating`, two user turns in a row. With `fix` they are repaired: a marked result is added, the
        orphan is removed, a marked reply is added. The messages as they were stay in the history."""
        found: list[Problem] = []

        async def decide(window: MessageWindow) -> Plan | None:
            messages, first = await window.all(), await window.first()
            ids = message_ids(messages, first)
            found[:] = [
                msgspec.structs.replace(problem, message_id=ids[problem.index])
                for problem in message_shapes.problems(messages, alternating=alternating)
            ]
            if not fix or not found:
                return None
            repaired = message_shapes.repair(messages, alternating=alternating)
            if repaired[: len(messages)] == messages:
                return lambda planner: planner.change({}, append=(MESSAGES, repaired[len(messages) :]))
            # Messages shifted, so that their numbers would mean other messages than before: all get new numbers.
            return lambda planner: planner.change({MESSAGES: repaired, FIRST: first + len(messages)})

        await self._rewrite(decide, whole=fix)
        return found

    # -- snapshots, forks and deletion --------------------------------------------------------------------------------

    @_logs_errors
    async def snapshot(self, message_id: str, files: Any = None) -> Checkpoint:
        """Tie the session as it is now to a message id, so that `rewind(message_id)` returns to it. `files` is a
        workspace, of which a snapshot is taken, or one of its snapshots."""
        name = check_name(message_id, "message id")
        facts = await self._facts_of(None, (), {SNAPSHOT: name}, files)
        return await self.thread.edit(lambda planner: planner.change({}), facts)

    async def rewind_point(self, message_id: str | None, turn: int | None, at: Any) -> Any:
        """The checkpoint that one of the three names: the snapshot of a message, the one before a user turn, or any."""
        return await find_point(self.thread, message_id, turn, at)

    async def fork(self, to: str | None = None, at: Any = None) -> str:
        """Make a new session at the head of this one, or at `at`; returns its id, which is made up if none is given."""
        return await self.thread.fork(to, at)

    async def delete(self) -> None:
        """Delete the session and its history. A missing session is not an error."""
        try:
            await self.thread.delete()
        except ThreadNotFound:
            return

    # -- reading and rewriting one checkpoint -------------------------------------------------------------------------

    async def _facts_of(self, label: Any, tags: Any, custom: Any, files: Any, id: Any = None) -> Facts:
        return await check_facts(self.thread, label, tags, custom, files, id)

    async def _window(self, at: Any = None) -> tuple[Head, MessageWindow]:
        head, checkpoint, root, reader = await self.thread.read_root(at)
        return head, MessageWindow(self.thread, checkpoint, root.tree.children or {}, reader)

    async def _read(self, use: Callable[[MessageWindow], Awaitable[T]], empty: T, at: Any = None) -> T:
        """The result of `use`; `empty` for a session that does not exist."""
        return await observe(self.thread, "load", self._read_again(use, empty, at))

    async def _read_again(self, use: Callable[[MessageWindow], Awaitable[T]], empty: T, at: Any) -> T:
        while True:
            try:
                head, window = await self._window(at)
            except ThreadNotFound:
                if at is not None:
                    raise
                return empty
            try:
                return await use(window)
            except Corrupt:
                # A sweep may have folded and freed the rows that were being read; then the head moved: read again.
                if await self.thread.context.engine.head(self.id) == head:
                    raise

    async def _rewrite(
        self, decide: Callable[[MessageWindow], Awaitable[Plan | None]], whole: bool = False
    ) -> Checkpoint | None:
        """Commit the plan of `decide` on exactly the checkpoint it was made for; plan again if another commit came
        first."""
        for _ in attempts():
            planned_on: list[bytes] = []

            async def read(window: MessageWindow, planned_on: list[bytes] = planned_on) -> Plan | None:
                planned_on[:] = [window.checkpoint]
                return await decide(window)

            plan = await self._read(read, None)
            if plan is None:
                return None
            try:
                return await self.thread.save_plan(plan, NO_FACTS, expect=uuid_text(planned_on[0]), compare_lists=whole)
            except LockLost:
                raise
            except Conflict:
                continue
        raise Conflict(self.id, message=f"session {self.id!r} kept moving: try again when its writers rest")
