"""What a session can do, in one colour: messages added, read, cut, summarised, mended, and taken back.

The state of a session is `messages`, and beside it, in the same row, a few small values: `user_turns`, `summary`, and
the number of the first message. An append writes one row and reads nothing; a cut shares every row with what was there
before. Nothing is ever taken out of the history: a truncated message is still in every earlier checkpoint.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import msgspec

from backtrail import message_shapes
from backtrail.encode.planner import PlannedRow, Planner
from backtrail.encode.row_format import Node
from backtrail.engines.base import Head
from backtrail.errors import BacktrailError, Conflict, Corrupt, InvalidInput, LockLost, NoCheckpoint, ThreadNotFound
from backtrail.history.ancestry import Ancestry
from backtrail.history.context import Context
from backtrail.history.facts import Facts
from backtrail.history.file_refs import file_reference
from backtrail.history.records import uuid_text
from backtrail.history.retry import attempts
from backtrail.history.save import Plan
from backtrail.history.thread import Thread
from backtrail.history.validation import check_limit, check_name
from backtrail.message_shapes import Message, Problem
from backtrail.model import Checkpoint
from backtrail.session.edits import check, cutting, extending, replacing, several
from backtrail.session.listing import KIND, SessionInfo, caption, session_info
from backtrail.session.message_window import FIRST, MESSAGES, SUMMARY, TURNS, MessageWindow, names, same_front

SNAPSHOT = "snapshot"  # the custom field that ties a checkpoint to a message
Errors = Literal["raise", "log"]
_LOG = logging.getLogger("backtrail.session")
P = ParamSpec("P")
T = TypeVar("T")


class SummaryPart(msgspec.Struct, frozen=True):
    """What a summary is made of, and what must still be there when it is applied."""

    messages: list[Message]
    first: int
    node: Node | None
    summary: str


def _forgiving(
    method: Callable[Concatenate[SessionCore, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SessionCore, P], Coroutine[Any, Any, T | None]]:
    """A write that, with errors="log", is logged and counted when it fails."""

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
        self.thread: Thread[Any] = Thread(context, id, kind=KIND)
        self.thread.caption = caption
        self.id = self.thread.id
        self.errors: Errors = errors
        self.failed = 0

    # -- adding -------------------------------------------------------------------------------------------------------

    @_forgiving
    async def add(self, /, role: str, content: Any, **fields: Any) -> Checkpoint:
        """Append the message `{"role": role, "content": content, **fields}`."""
        return await self._extend([{"role": check_name(role, "role"), "content": content, **fields}])

    @_forgiving
    async def append(self, message: Message) -> Checkpoint:
        """Append a message of any shape, kept as it is."""
        return await self._extend([message])

    @_forgiving
    async def extend(self, messages: Any) -> Checkpoint:
        """Append several messages as one checkpoint."""
        return await self._extend(several(messages, "extend()"))

    async def _extend(self, messages: list[Message]) -> Checkpoint:
        added = message_shapes.user_turns(check(messages))
        planned: list[PlannedRow] = []

        def plan(planner: Planner) -> PlannedRow:
            planned[:] = [extending(planner, messages, {}, added)]
            return planned[0]

        saved = await self.thread.save_plan(plan, self._facts(), rebase=True)
        self.thread.remember_end(MESSAGES, planned[0])
        return saved

    # -- reading ------------------------------------------------------------------------------------------------------

    async def messages(self, last: int | None = None, whole: bool = True, at: Any = None) -> list[Message]:
        """The messages, or the last few; the rest is not read. `whole` adds those before them that hold the calls of
        tool results, so that `last=n` may give a little more than n."""
        limit = check_limit(last, "last")

        async def read(view: MessageWindow) -> list[Message]:
            self._looked(view, at)
            if limit is None:
                return await view.all()
            start, found = await view.last(limit)
            return (await view.whole(start, found))[1] if whole else found

        return await self._read(read, [], at)

    async def ids(self, last: int | None = None, whole: bool = True, at: Any = None) -> list[str]:
        """The ids of `messages(last, whole)`: what each carries, or `#<number>` where it carries none."""
        limit = check_limit(last, "last")

        async def read(view: MessageWindow) -> list[str]:
            start, found = (0, await view.all()) if limit is None else await view.last(limit)
            if whole:
                start, found = await view.whole(start, found)
            return names(found, await view.first() + start)

        return await self._read(read, [], at)

    async def count(self) -> int:
        """How many messages there are."""
        return await self._read(MessageWindow.count, 0)

    async def summary(self) -> str:
        """The summary of what was cut away, "" if there is none."""
        return str(await self._read(lambda view: view.value(SUMMARY, ""), ""))

    async def user_turns(self) -> int:
        """How often the user spoke, truncated turns included."""
        return int(await self._read(lambda view: view.value(TURNS, 0), 0))

    async def exists(self) -> bool:
        """Whether anything was saved under this id."""
        return await self.thread.exists()

    async def info(self) -> SessionInfo:
        """What a listing tells about the session."""
        return await session_info(self.thread.context, await self.thread.require_head())

    async def stats(self) -> dict[str, int]:
        """How many messages and user turns there are, and how many writes of this handle failed (errors="log")."""
        return {"messages": await self.count(), "user_turns": await self.user_turns(), "failed_writes": self.failed}

    # -- changing -----------------------------------------------------------------------------------------------------

    @_forgiving
    async def pop(self) -> Message | None:
        """Take the last message away and return it; None if there is none."""
        popped: list[Message] = []

        async def decide(view: MessageWindow) -> Plan | None:
            count = await view.count()
            if not count:
                return None
            popped[:] = await view.items(count - 1, count)
            kept = await view.reader.sublist(view.node, 0, count - 1)
            user_turns = int(await view.value(TURNS, 0)) - message_shapes.user_turns(popped)
            return cutting(kept, {TURNS: max(0, user_turns)})

        return popped[0] if await self._rewrite(decide) is not None else None

    @_forgiving
    async def clear(self) -> Checkpoint | None:
        """Start anew, with no messages, no summary and no turns. What was there stays in the history."""

        async def decide(view: MessageWindow) -> Plan | None:
            number = await view.first() + await view.count()
            return lambda planner: planner.change({MESSAGES: [], TURNS: 0, FIRST: number}, drop=(MESSAGES, SUMMARY))

        return await self._rewrite(decide)

    @_forgiving
    async def replace(self, messages: Any, user_turns: int | None = None) -> Checkpoint:
        """Put other messages in the place of all that are there; unchanged ones are not written again. Refused with
        `Conflict` if another writer has been here since this handle last read or wrote."""
        new = check(several(messages, "replace()"))
        number = check_limit(user_turns, "user_turns")
        extra = {} if number is None else {TURNS: number}
        return await self.thread.save_plan(
            lambda planner: replacing(planner, new, extra), self._facts(), compare_lists=True
        )

    @_forgiving
    async def truncate(
        self, keep_last: int | None = None, before: str | None = None, at: Any = None
    ) -> Checkpoint | None:
        """Cut away old messages: all but the last few, those before a message, or those that checkpoint `at` had. A
        tool call is never cut from its result, so a little more may stay. None if there was nothing to cut."""
        limit = check_limit(keep_last, "keep_last")
        if (limit is not None) + (before is not None) + (at is not None) != 1:
            raise InvalidInput("truncate() takes exactly one of keep_last=, before= and at=")
        upto = await self._end_of(at) if at is not None else 0

        async def decide(view: MessageWindow) -> Plan | None:
            first, count = await view.first(), await view.count()
            if limit is not None:
                start = count - limit
            elif before is not None:
                start = await view.find(check_name(before, "message id"))
            else:
                start = min(upto - first, count)
            if start <= 0:
                return None
            start = await view.cut(start)
            return await self._shorten(view, first, start, {}) if start > 0 else None

        return await self._rewrite(decide)

    async def _end_of(self, at: Any) -> int:
        """The number after the last message that a checkpoint had."""

        async def read(view: MessageWindow) -> int:
            return await view.first() + await view.count()

        return await self._read(read, 0, at)

    async def _shorten(self, view: MessageWindow, first: int, start: int, changes: dict[str, Any]) -> Plan:
        kept = await view.reader.sublist(view.node, start, await view.count())
        return cutting(kept, {**changes, FIRST: first + start})

    @_forgiving
    async def set_summary(self, text: str) -> Checkpoint:
        """Keep a summary beside the messages; "" takes it away."""
        if type(text) is not str:
            raise InvalidInput(f"a summary is a str, not {type(text).__qualname__}")
        if not text:
            return await self.thread.edit(lambda planner: planner.change({}, drop=(SUMMARY,)), self._facts())
        return await self.thread.edit(lambda planner: planner.change({SUMMARY: text}), self._facts())

    @_forgiving
    async def save(
        self, label: str | None = None, tags: Any = (), custom: Mapping[str, Any] | None = None
    ) -> Checkpoint:
        """The checkpoint that holds everything added so far: all of it is durable already. A session that does not
        exist is made; a label, tags or custom fields make a checkpoint of their own."""
        facts = Facts.check(self.thread.values, label, tags, custom, None, None)
        head = await self.thread.head()
        if head is not None and facts == self._facts():
            return head

        def plan(planner: Planner) -> PlannedRow:
            new = {MESSAGES: [], TURNS: 0} if planner.peek(TURNS) is None and not planner.count(MESSAGES) else {}
            return planner.change(new)

        return await self.thread.edit(plan, facts)

    # -- summaries ----------------------------------------------------------------------------------------------------

    async def part(self, keep_last: int) -> SummaryPart | None:
        """What a summary of all but the last few messages has to tell; None if there is nothing."""
        limit = check_limit(keep_last, "keep_last") or 0

        async def read(view: MessageWindow) -> SummaryPart | None:
            count = await view.count()
            start = await view.cut(max(0, count - limit))
            if not start:
                return None
            summary = str(await view.value(SUMMARY, ""))
            return SummaryPart(await view.items(0, start), await view.first(), view.node, summary)

        return await self._read(read, None)

    @_forgiving
    async def apply(self, part: SummaryPart, summary: str) -> Checkpoint | None:
        """Put a summary in the place of what it was made of. Messages added meanwhile stay; if those that were read
        have been changed, nothing is done and `Conflict` is raised."""
        if type(summary) is not str:
            raise InvalidInput(f"summarize must return a str, not {type(summary).__qualname__}")

        async def decide(view: MessageWindow) -> Plan | None:
            count = len(part.messages)
            if (
                await view.first() != part.first
                or str(await view.value(SUMMARY, "")) != part.summary
                or not (same_front(part.node, view.node, count) or await self._same_items(view, part.messages))
            ):
                reason = f"session {self.id!r} was changed while it was summarised: nothing was applied, try again"
                raise Conflict(self.id, message=reason)
            return await self._shorten(view, part.first, count, {SUMMARY: summary})

        return await self._rewrite(decide)

    async def _same_items(self, view: MessageWindow, messages: list[Message]) -> bool:
        encode = self.thread.values.encode
        return encode(await view.items(0, len(messages))) == encode(messages)

    # -- mending ------------------------------------------------------------------------------------------------------

    async def repair(self, fix: bool = False, alternating: bool = False) -> list[Problem]:
        """What a provider would refuse in these messages: a tool call without a result, a result without a call, and,
        with `alternating`, two user turns in a row. With `fix`, each is closed: with a marked result, by leaving the
        orphan out, with a marked reply. What was there stays in the history."""
        found: list[Problem] = []

        async def decide(view: MessageWindow) -> Plan | None:
            messages, first = await view.all(), await view.first()
            ids = names(messages, first)
            found[:] = [
                msgspec.structs.replace(problem, message_id=ids[problem.index])
                for problem in message_shapes.problems(messages, alternating=alternating)
            ]
            if not fix or not found:
                return None
            mended = message_shapes.mend(messages, alternating=alternating)
            if mended[: len(messages)] == messages:
                return lambda planner: planner.change({}, append=(MESSAGES, mended[len(messages) :]))
            # Places shifted, so numbers would name other messages than before: they all get new ones.
            return lambda planner: planner.change({MESSAGES: mended, FIRST: first + len(messages)})

        await self._rewrite(decide, whole=fix)
        return found

    # -- going back ---------------------------------------------------------------------------------------------------

    @_forgiving
    async def snapshot(self, message_id: str, files: Any = None) -> Checkpoint:
        """Tie the session as it is now to a message id, so that `rewind(message_id)` comes back to it. `files` is a
        workspace, of which a snapshot is taken, or one of its snapshots."""
        name = check_name(message_id, "message id")
        facts = Facts.check(
            self.thread.values, None, (), {SNAPSHOT: name}, None if files is None else await file_reference(files), None
        )
        return await self.thread.edit(lambda planner: planner.change({}), facts)

    async def find_snapshot(self, message_id: str) -> str:
        """The newest checkpoint on the way to the head that was tied to this message."""
        name = check_name(message_id, "message id")
        context = self.thread.context
        try:
            head = await self.thread.require_head()
        except ThreadNotFound as error:
            raise NoCheckpoint(f"session {self.id!r} does not exist, so it has no snapshot to go back to") from error
        async for seen in (await Ancestry.of(context, head)).steps_back():
            custom = seen.facts.custom
            if seen.alive and custom and context.values.decode(custom).get(SNAPSHOT) == name:
                return uuid_text(seen.step.id)
        raise NoCheckpoint(
            f"session {self.id!r} has no snapshot for message {name!r} on the way to its head: "
            "session.snapshot(message_id) makes one"
        )

    async def fork(self, to: str | None = None, at: Any = None) -> str:
        """A new session that stands where this one does; returns its id. A name is made if none is given."""
        return await self.thread.fork(to, at)

    async def delete(self) -> None:
        """Delete the session and its history; one that does not exist is no error."""
        try:
            await self.thread.delete()
        except ThreadNotFound:
            return

    # -- how it is done -----------------------------------------------------------------------------------------------

    def _facts(self) -> Facts:
        return Facts.check(self.thread.values, None, (), None, None, None)

    def _looked(self, view: MessageWindow, at: Any) -> None:
        if at is None:
            self.thread.base_id = view.checkpoint

    async def _view(self, at: Any = None) -> tuple[Head, MessageWindow]:
        head, checkpoint, root, reader = await self.thread.read_root(at)
        return head, MessageWindow(self.thread, checkpoint, root.tree.children or {}, reader)

    async def _read(self, use: Callable[[MessageWindow], Awaitable[T]], empty: T, at: Any = None) -> T:
        """What `use` finds; `empty` for a session that does not exist."""
        while True:
            try:
                head, view = await self._view(at)
            except ThreadNotFound:
                if at is not None:
                    raise
                return empty
            try:
                return await use(view)
            except Corrupt:
                # A sweep may have folded and freed what was being read; then the head moved, and it is read again.
                if await self.thread.context.engine.head(self.id) == head:
                    raise

    async def _rewrite(
        self, decide: Callable[[MessageWindow], Awaitable[Plan | None]], whole: bool = False
    ) -> Checkpoint | None:
        """Commit what `decide` plans on exactly the session it looked at, again and again until nobody was faster."""
        for _ in attempts():
            looked: list[bytes] = []

            async def look(view: MessageWindow, looked: list[bytes] = looked) -> Plan | None:
                looked[:] = [view.checkpoint]
                return await decide(view)

            plan = await self._read(look, None)
            if plan is None:
                return None
            try:
                return await self.thread.save_plan(
                    plan, self._facts(), expect=uuid_text(looked[0]), compare_lists=whole
                )
            except LockLost:
                raise
            except Conflict:
                continue
        raise Conflict(self.id, message=f"session {self.id!r} kept moving: try again when its writers rest")
