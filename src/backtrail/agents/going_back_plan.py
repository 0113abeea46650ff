"""The plan of going back: what it would do, what a person should know before, and the name that binds it.

A plan's token is made of the session, the checkpoints and the changes with the contents of the files as they are. Who
carries a plan out with its token gets exactly that plan, or a `Conflict`, and nothing is changed.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from backtrail.agents.conversations import CannotFork, Fork
from backtrail.agents.cut_points import cut_point
from backtrail.agents.sessions import AgentSession, Turn, sessions_in
from backtrail.errors import Conflict, NoCheckpoint
from backtrail.model import counted
from backtrail.render.session_turns import known_turn
from backtrail.workspace import Changes

if TYPE_CHECKING:
    from backtrail.model import Checkpoint
    from backtrail.store import Store

Action = Literal["rewind", "revert", "undo", "redo"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What going back did, or would do."""

    action: Action
    session: AgentSession  #: the one to go on with
    turn: int | None = None
    prompt: str | None = None  #: of the turn that was left behind: to be sent again
    changes: Changes | None = None  #: to the files; None if they are left alone
    fork: Fork | None = None  #: the session of the agent to go on with, if it is another one
    notes: tuple[str, ...] = ()  #: sentences that a person should read
    token: str = ""  #: names this plan: with it, only this plan is carried out
    dry_run: bool = False


def checkpoint_before(turn: Turn, session: AgentSession, *, files: bool) -> Checkpoint:
    """The checkpoint at the prompt of a turn; with `files`, one that has them."""
    if turn.before is None:
        raise NoCheckpoint(f"the beginning of turn {turn.number} of {session.thread_id} was not captured")
    if files and turn.before.files is None:
        why = turn.before.custom.get("files_missing", "they were not captured")
        raise NoCheckpoint(
            f"the files before turn {turn.number} of {session.thread_id} are missing: {why}; "
            "conversation only is what can go back"
        )
    return turn.before


def checkpoint_after(turn: Turn, session: AgentSession) -> Checkpoint:
    """The checkpoint at the end of a turn, with its files."""
    if turn.after is None:
        raise NoCheckpoint(f"turn {turn.number} of {session.thread_id} goes on: revert it when it has ended")
    if turn.after.files is None:
        why = turn.after.custom.get("files_missing", "they were not captured")
        raise NoCheckpoint(f"the files after turn {turn.number} of {session.thread_id} are missing: {why}")
    return turn.after


def with_cut(plan: Outcome, turn: Turn) -> Outcome:
    """A plan that says beforehand if the conversation cannot be cut there."""
    try:
        point = cut_point(plan.session, turn)
        if not point.dropped and not point.kept:
            raise CannotFork("the agent's own ids of the turns were not recorded")
    except CannotFork as error:
        return msgspec.structs.replace(plan, notes=(*plan.notes, files_only(plan.session, error)))
    return plan


def files_only(session: AgentSession, error: CannotFork) -> str:
    """The note that the conversation stays, and why."""
    return f"only the files go back: the conversation of {session.agent} cannot be forked: {error}"


def running(session: AgentSession, made: Fork | None) -> list[str]:
    """What an agent that is running does not know."""
    if made is None:
        return [f"a running {session.agent} does not know that the files have changed: tell it"]
    return [f"a running {session.agent} keeps its old conversation until it resumes this one"]


def notes_on(store: Store, session: AgentSession, turn: Turn, *, files: bool) -> list[str]:
    """What a person should know before the rewind."""
    notes = []
    head = session.head
    if head.custom.get("open") is True:
        notes.append(f"turn {known_turn(head.custom)} has not ended: the agent may be at work")
    if files and turn.before is not None and (others := _others_since(store, session, turn.before)):
        notes.append(
            f"{', '.join(others)} worked in this directory since then: the files of "
            f"{'that session go' if len(others) == 1 else counted(len(others), 'session') + ' go'} back as well; "
            "`backtrail revert` takes back one turn only"
        )
    return notes


def _others_since(store: Store, session: AgentSession, since: Checkpoint) -> list[str]:
    """Other sessions that changed files in the same directory after a checkpoint."""
    related = {session.thread_id, *(fork.thread_id for fork in session.thread.forks())}
    others = [other for other in sessions_in(store, session.cwd) if other.thread_id not in related]
    return [other.thread_id for other in others if other.head.created_at > since.created_at]


def plan_token(*parts: Any) -> str:
    """The name of a plan, made of what it consists of."""
    plain = [_plain(part) for part in parts]
    return hashlib.blake2b(msgspec.msgpack.encode(plain), digest_size=16).hexdigest()


def _plain(part: Any) -> Any:
    if isinstance(part, AgentSession):
        return part.thread_id
    return part.plan if isinstance(part, Changes) else part


def check_token(token: str | None, plan: Outcome) -> None:
    """`Conflict` if a token is given, and names another plan."""
    if token is not None and token != plan.token:
        raise Conflict(
            plan.session.thread_id,
            message="the plan is another one by now: the files or the session have changed; nothing was done. "
            "Look at the new plan, and use its token",
        )
