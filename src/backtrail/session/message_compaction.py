"""A compaction: the messages that a summary will replace, and the state on which that depends.

The summary is made without a lock, and may take long. It is applied only if the messages it was made of are still the
same; messages that were added after them do not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from backtrail.encode.row_format import Node
from backtrail.message_shapes import Message
from backtrail.session.message_window import SUMMARY, MessageWindow, same_prefix


class Compaction(msgspec.Struct, frozen=True):
    """The oldest messages of a session, to be summarised."""

    messages: list[Message]
    first: int  #: the number of the first of them
    node: Node | None  #: the list they were read from
    summary: str  #: the summary of messages before them

    @classmethod
    async def plan(cls, window: MessageWindow, keep_last: int) -> Compaction | None:
        """The compaction of all but the last messages; None if there is nothing to summarise."""
        start = await window.safe_cut(max(0, await window.count() - keep_last))
        if not start:
            return None
        summary = str(await window.value(SUMMARY, ""))
        return cls(await window.items(0, start), await window.first(), window.node, summary)

    async def still_holds(self, window: MessageWindow, encode: Callable[[Any], bytes]) -> bool:
        """True if the summary and the messages are as they were when the compaction was planned."""
        if await window.first() != self.first or str(await window.value(SUMMARY, "")) != self.summary:
            return False
        count = len(self.messages)
        if same_prefix(self.node, window.node, count):  # without reading them
            return True
        return encode(await window.items(0, count)) == encode(self.messages)
