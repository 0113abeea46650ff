"""A window on the messages of one checkpoint: ranges of them are read, and one of them found, without the rest.

Each message has a number in its session, from 1 up; `first` is the number of the oldest one still in the list, so that
a message keeps its number when earlier ones are removed. A message's id is the one it carries under a usual key, or
else its number, written `#17`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from backtrail import message_shapes
from backtrail.encode.row_format import Inline, ListNode, Node
from backtrail.errors import InvalidInput, NotFound
from backtrail.history.state_reader import StateReader
from backtrail.history.thread_core import ThreadCore
from backtrail.message_shapes import Message
from backtrail.model import MAX_NUMBER, short_repr

MESSAGES, TURNS, FIRST, SUMMARY = "messages", "user_turns", "first", "summary"
_NUMBERED = re.compile("#[0-9]{1,15}")  # the name of a message that has no id of its own
_BATCH = 64  # messages that are read together
_MAX_DISTANCE = 256  # messages from a call to its result, if there is a user turn between them
_TYPES: dict[str, type] = {MESSAGES: list, TURNS: int, FIRST: int, SUMMARY: str}
_DICT = {dict}


def check_value(key: str, value: Any, thread: str = "the thread") -> Any:
    """The value of a session's key, if it has the right type: any thread can be opened as a session."""
    if key in _TYPES and type(value) is not _TYPES[key]:
        what = f"state[{key!r}] is of type {type(value).__qualname__}, not {_TYPES[key].__name__}"
        raise InvalidInput(f"{thread} cannot be read as a session: {what}; load() gives its state")
    if _TYPES.get(key) is int and not 0 <= value < MAX_NUMBER:
        what = f"state[{key!r}] is {short_repr(value)}"
        raise InvalidInput(f"{thread} cannot be read as a session: {what}; load() gives its state")
    if key == MESSAGES and value and set(map(type, value)) != _DICT:
        kind = next(type(message).__qualname__ for message in value if type(message) is not dict)
        what = f"a message in it is of type {kind}, not dict"
        raise InvalidInput(f"{thread} cannot be read as a session: {what}; load() gives its state")
    return value


class MessageWindow:
    """The messages and values of a session at one checkpoint, whose id is `checkpoint`."""

    def __init__(
        self, thread: ThreadCore[Any], checkpoint: bytes, children: dict[str, Node], reader: StateReader
    ) -> None:
        self.thread = thread
        self.checkpoint = checkpoint
        self.reader = reader
        self._children = children
        self.node = children.get(MESSAGES)

    async def value(self, key: str, default: Any) -> Any:
        """The value of a top-level key."""
        node = self._children.get(key)
        return default if node is None else self._checked(key, await self.reader.value(node))

    def _checked(self, key: str, value: Any) -> Any:
        return check_value(key, value, f"thread {self.thread.id!r}")

    async def first(self) -> int:
        found: int = await self.value(FIRST, 1)
        return found

    async def count(self) -> int:
        if isinstance(self.node, ListNode):
            return self.node.count
        return len(await self.all())

    async def all(self) -> list[Message]:
        found: list[Message] = await self.value(MESSAGES, [])
        return found

    async def items(self, start: int, stop: int) -> list[Message]:
        if self.node is None:
            return []
        found: list[Message] = self._checked(MESSAGES, await self.reader.items(self.node, start, stop))
        return found

    async def last(self, limit: int) -> tuple[int, list[Message]]:
        """The last messages, and the index of the first of them."""
        if isinstance(self.node, ListNode):
            start = max(0, self.node.count - limit)
            return start, self._checked(MESSAGES, await self.thread.read_end(self.reader, self.node, start))
        found = await self.all()
        start = max(0, len(found) - limit)
        return start, found[start:]

    async def safe_cut(self, start: int) -> int:
        """`start`, moved back so that a cut there separates no call from its result. Reads only around the cut: after
        it, as far as the batch with the next user turn."""
        after: list[Message] = []
        while True:
            more = await self.items(start + len(after), start + len(after) + _BATCH)
            after += more
            if len(more) < _BATCH or any(map(message_shapes.is_user_turn, more)):
                return (await self.with_calls(start, after))[0]

    async def with_calls(self, start: int, messages: list[Message]) -> tuple[int, list[Message]]:
        """The messages from `start` on, extended back to the calls that their results answer; with their new start. The
        search ends where no call can be: some way before a user turn, or at the beginning."""
        wanted = message_shapes.open_results(messages)
        here, at, crossed = messages, start, False
        while wanted and at > 0 and not (crossed and start - at >= _MAX_DISTANCE):
            low = max(0, at - _BATCH)
            earlier = await self.items(low, at)
            at, here = low, earlier + here
            for offset in range(len(earlier) - 1, -1, -1):
                wanted -= set(message_shapes.calls(earlier[offset]))
                if not wanted:
                    lacking = message_shapes.open_results(here[offset:])
                    if not lacking:
                        return at + offset, here[offset:]
                    wanted = lacking
                crossed = crossed or message_shapes.is_user_turn(earlier[offset])
        return start, messages

    async def find(self, message_id: str) -> int:
        """The index of a message in the list, searched for from the newest back."""
        first, count = await self.first(), await self.count()
        if _NUMBERED.fullmatch(message_id):
            at = int(message_id[1:]) - first
            if 0 <= at < count:
                return at
        stop, width = count, _BATCH
        while stop > 0:
            start = max(0, stop - width)
            found = await self.items(start, stop)
            for offset in range(len(found) - 1, -1, -1):
                if message_shapes.own_id(found[offset]) == message_id:
                    return start + offset
            stop, width = start, width * 2
        raise NotFound(
            f"session {self.thread.id!r} has no message {message_id!r}: session.ids() lists those that it has"
        )


def message_ids(messages: Sequence[Message], first: int) -> list[str]:
    """The ids of messages that are numbered from `first` on."""
    return [message_shapes.own_id(message) or f"#{number}" for number, message in enumerate(messages, first)]


def same_prefix(old: Node | None, new: Node | None, count: int) -> bool:
    """True if the first `count` items of two lists are the same bytes in the same rows; False may also be "unknown"."""
    if isinstance(old, Inline) and isinstance(new, Inline):
        return old == new
    if isinstance(old, ListNode) and isinstance(new, ListNode):
        return _prefix_runs(old, count) == _prefix_runs(new, count)
    return False


def _prefix_runs(node: ListNode, count: int) -> list[tuple[bytes, int, int, int]]:
    """Branch, stream, start and stop of each run of the first `count` items, with adjacent runs merged."""
    runs: list[tuple[bytes, int, int, int]] = []
    for piece in node.pieces:
        take = min(count, piece.stop - piece.start)
        if not take:
            break
        count -= take
        run = (piece.branch, piece.stream, piece.start, piece.start + take)
        if runs and runs[-1][:2] == run[:2] and runs[-1][3] == run[2]:
            run = (*run[:2], runs.pop()[2], run[3])
        runs.append(run)
    return runs
