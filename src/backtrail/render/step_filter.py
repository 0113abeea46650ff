"""Which steps or turns of a history are shown: those of a role, a tool, a failure, a label, a tag or some dates.

A label, a tag and dates are part of what a history knows; a role, a tool and a failure are known once a step's messages
were read.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from backtrail import Checkpoint, Thread
from backtrail.render.change_summary import ChangeSummary
from backtrail.render.conversation_turns import ConversationTurn
from backtrail.render.message_parser import conversation_key, parse_message

_LOOKED_BACK = 100  # messages among which the call of a result is looked for


class StepFilter(msgspec.Struct, frozen=True):
    """What a checkpoint must have; what is empty is not asked for."""

    role: str = ""
    tool: str = ""
    failed: bool = False
    label: str = ""
    tag: str = ""
    since: datetime | None = None
    until: datetime | None = None

    @property
    def reads(self) -> bool:
        """True if the messages of a step decide."""
        return bool(self.role or self.tool or self.failed)

    @property
    def marks(self) -> bool:
        """True if the label, the tags or the time decide."""
        return bool(self.label or self.tag or self.since or self.until)

    def marked(self, checkpoint: Checkpoint) -> bool:
        """True if the label, the tags and the time fit."""
        return (
            (not self.label or checkpoint.label == self.label)
            and (not self.tag or self.tag in checkpoint.tags)
            and (self.since is None or checkpoint.created_at >= self.since)
            and (self.until is None or checkpoint.created_at <= self.until)
        )

    def fits_turn(self, turn: ConversationTurn) -> bool:
        """True if the messages of a turn fit."""
        if (self.role and self.role not in turn.roles) or (self.failed and not turn.failed):
            return False
        return not self.tool or any(tool.name == self.tool for tool in turn.tools)

    def fits(self, thread: Thread[Any], checkpoint: Checkpoint, change: ChangeSummary) -> bool:
        """True if what the step added fits."""
        if (self.role and self.role not in change.roles) or (self.failed and not change.failed):
            return False
        return not self.tool or self.tool in change.tools or self.tool in _called(thread, checkpoint, change)


def _called(thread: Thread[Any], checkpoint: Checkpoint, change: ChangeSummary) -> set[str]:
    """The names of the tools whose results do not say so themselves."""
    if not change.unnamed:
        return set()
    outline = thread.outline(at=checkpoint, salvage=True)
    key = conversation_key(outline)
    count = next((part.count or 0 for part in outline.parts if part.name == key), 0)
    if key is None or not count:
        return set()
    before = thread.outline([key], at=checkpoint, start=max(0, count - _LOOKED_BACK), stop=count, salvage=True)
    calls = [call for part in before.parts for call in parse_message(part.value).calls]
    return {call.name for call in calls if call.id in change.unnamed}
