"""The checkpoints that a session goes back to: the snapshot of a message, or the one before a user turn.

Both are searched for from the head back, so that the cost grows with the way back and not with the session.
"""

from __future__ import annotations

from typing import Any

from backtrail.encode.frame import describe_row
from backtrail.engines.base import Head
from backtrail.errors import Corrupt, InvalidInput, NoCheckpoint, ThreadNotFound
from backtrail.history.ancestry import Ancestry, HistoryStep
from backtrail.history.checkpoint_ids import uuid_text
from backtrail.history.retry import rereading
from backtrail.history.state_reader import StateReader
from backtrail.history.thread_core import ThreadCore
from backtrail.history.validation import check_name
from backtrail.session.message_window import TURNS, MessageWindow

SNAPSHOT = "snapshot"  # the custom field that ties a checkpoint to a message


async def find_point(session: ThreadCore[Any], message_id: Any, turn: Any, at: Any) -> Any:
    """The checkpoint to go back to, as one of the three names it."""
    if (message_id is not None) + (turn is not None) + (at is not None) != 1:
        raise InvalidInput("rewind() takes exactly one of message_id, turn= and at=")
    if type(message_id) is int:
        raise InvalidInput(f"rewind({message_id}): say turn={message_id} for a user turn, at={message_id} for a step")
    if message_id is not None:
        return await find_snapshot(session, check_name(message_id, "message id"))
    return at if turn is None else await find_turn(session, turn)


@rereading
async def find_snapshot(session: ThreadCore[Any], message_id: str) -> str:
    """The id of the newest checkpoint in the history that is tied to this message."""
    context, head = session.context, await _head(session)
    async for seen in (await Ancestry.of(context, head)).steps_back():
        custom = seen.facts.custom
        if seen.alive and custom and context.values.decode(custom).get(SNAPSHOT) == message_id:
            return uuid_text(seen.step.id)
    raise NoCheckpoint(
        f"session {session.id!r} has no snapshot for message {message_id!r} on the way to its head: "
        "session.snapshot(message_id) makes one"
    )


@rereading
async def find_turn(session: ThreadCore[Any], turn: int) -> str:
    """The id of the newest checkpoint in the history that was saved before this user turn began."""
    if type(turn) is not int or not turn:
        raise InvalidInput(f"turn={turn!r:.40}: user turns are numbered from 1, and -1 is the last one")
    head = await _head(session)
    number: int | None = None
    turns = 0
    async for seen in (await Ancestry.of(session.context, head)).steps_back(chunk=16):
        if not seen.alive:
            continue
        after, turns = turns, await _user_turns(session, head, seen)
        if number is None:
            number = turn if turn > 0 else turns + 1 + turn
            if not 1 <= number <= turns:
                raise NoCheckpoint(f"session {session.id!r} has no user turn {turn}: it has {turns}")
        elif turns == number - 1:
            return uuid_text(seen.step.id)
        elif turns < number:
            together = f"turns {turns + 1} to {after} were saved as one checkpoint"
            raise NoCheckpoint(f"session {session.id!r}: {together}; rewind(turn={turns + 1}) goes back to before it")
    raise NoCheckpoint(
        f"session {session.id!r} has no checkpoint from before turn {number}: its first one holds {turns} already"
    )


async def _head(session: ThreadCore[Any]) -> Head:
    try:
        return await session.require_head()
    except ThreadNotFound as error:
        raise NoCheckpoint(f"session {session.id!r} does not exist, so there is nothing to go back to") from error


async def _user_turns(session: ThreadCore[Any], head: Head, seen: HistoryStep) -> int:
    row = await session.context.engine.row(head.lineage, *seen.position)
    if row is None:
        raise Corrupt(describe_row(*seen.position), "the row is missing")
    reader = StateReader(session.context, head.lineage, session.values)
    root = await reader.root(*seen.position, row.root, deep=False)
    children = await reader.children(root.tree)
    return int(await MessageWindow(session, seen.step.id, children, reader).value(TURNS, 0))
