"""The turns of a captured session of a coding agent, as its checkpoints tell them.

`agents/capture.py` says which custom fields a checkpoint of a session has. This is read by a hook at every event, so it
imports next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from backtrail.model import Checkpoint


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn: a prompt, and what the agent did."""

    number: int  #: from 1 on
    turn_id: str | None  #: the agent's own id of it
    prompt: str  #: shortened to one line
    before: Checkpoint | None  #: conversation and files as they were at the prompt; None if it was not captured
    after: Checkpoint | None = None  #: as they were at its end; None if it goes on, or its end was never seen

    @property
    def interrupted(self) -> bool:
        """True if the person ended it, or the agent never told its end and a later event ended it."""
        return self.after is not None and "closed_by" in self.after.custom


def known_turn(custom: Mapping[str, Any]) -> int:
    """The number of the turn that a checkpoint belongs to; 0 before the first."""
    turn = custom.get("turn")
    return turn if isinstance(turn, int) and turn > 0 else 0


def turns_in(history: Iterable[Checkpoint]) -> list[Turn]:
    """The turns in a session's history, oldest first."""
    turns: dict[int, Turn] = {}
    for checkpoint in history:
        custom = checkpoint.custom
        number, event = known_turn(custom), custom.get("event")
        if event == "rewind":
            turns = {each: turn for each, turn in turns.items() if each <= number}
        elif event == "prompt":
            turns[number] = _turn(checkpoint, before=checkpoint)
        elif event == "turn_end" and number:
            begun = turns.get(number) or _turn(checkpoint, before=None)
            turns[number] = msgspec.structs.replace(begun, after=checkpoint)
    return [turns[number] for number in sorted(turns)]


def _turn(checkpoint: Checkpoint, *, before: Checkpoint | None) -> Turn:
    turn_id = checkpoint.custom.get("turn_id")
    return Turn(
        number=known_turn(checkpoint.custom),
        turn_id=turn_id if isinstance(turn_id, str) else None,
        prompt=(checkpoint.label or "") if before is not None else "",
        before=before,
    )
