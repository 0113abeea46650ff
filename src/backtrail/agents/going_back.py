"""Going back: the files and the conversation of a coding agent, together.

`rewind` brings the files to what they were before a turn, and makes a new session of the agent that ends there.
`revert` takes back what one turn did to the files, and keeps later work. `undo` takes back the newest of either.

Both halves happen, or neither. The new session is made first: nobody knows of it yet. Then one journaled restore
changes the files and saves a checkpoint that tells of the rewind, in a thread for the new session that is forked off
the old one's. That checkpoint is what counts: with it, a rewind that died is finished; without it, the new session is
taken away.

The session that was rewound stays as it is, and a running agent keeps its context until it resumes another session.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from backtrail.agents import conversations
from backtrail.agents.capture import agent_workspace
from backtrail.agents.conversations import CannotFork, Fork
from backtrail.agents.cut_points import bring_back_transcript, cut_point
from backtrail.agents.events import thread_id
from backtrail.agents.rewind_journal import PendingRewind, RewindJournal, rewind_journal
from backtrail.agents.sessions import AgentSession, Turn, newest_session, session_of, sessions
from backtrail.errors import BacktrailError, CheckpointNotFound, Conflict, InvalidInput, NoCheckpoint
from backtrail.model import counted
from backtrail.render.session_turns import known_turn
from backtrail.workspace import Changes, JointSave, Workspace

if TYPE_CHECKING:
    from backtrail.model import Checkpoint
    from backtrail.store import Store

Action = Literal["rewind", "revert", "undo"]
_MANY_SESSIONS = 50  # of the newest ones, those that worked in the same directory are named


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


def rewind(
    store: Store,
    session: AgentSession,
    number: int,
    *,
    conversation: bool = True,
    files: bool = True,
    keep_untracked: bool = False,
    dry_run: bool = False,
    token: str | None = None,
) -> Outcome:
    """Go back to before turn `number`: its prompt, and all after it, are left behind.

    If the agent's conversation cannot be forked, only the files go back, and a note says why.
    """
    if not conversation and not files:
        raise InvalidInput("neither the files nor the conversation would go back: choose one of them, or both")
    with rewind_journal(session.cwd) as journal:
        notes = [] if dry_run else _settle(store, session.cwd, journal)
        turn = session.turn(number)
        before = _checkpoint_before(turn, session, files=files)
        workspace = session.workspace()
        planned = workspace.restore(before, dry_run=True, keep_untracked=keep_untracked) if files else None
        notes += _notes_on(store, session, turn, files=files)
        plan = Outcome(
            action="rewind",
            session=session,
            turn=number,
            prompt=session.prompt(turn),
            changes=planned,
            notes=tuple(notes),
            token=_token("rewind", session, before.id, conversation, planned),
            dry_run=dry_run,
        )
        if dry_run:
            return _with_cut(plan, turn) if conversation else plan
        _check_token(token, plan)
        step = _Rewind(store, session, turn, before, journal, files=files, keep_untracked=keep_untracked)
        made: Fork | None = None
        if conversation:
            try:
                notes += _brought_back(session)
                made = step.fork()
            except CannotFork as error:
                if not files:
                    raise
                notes.append(_files_only(session, error))
        changes = step.finish(workspace, made)
        continued = session if made is None or made.session_id is None else _session(store, session, made.session_id)
        notes += _running(session, made)
        return msgspec.structs.replace(plan, session=continued, changes=changes, fork=made, notes=tuple(notes))


def revert(
    store: Store, session: AgentSession, number: int, *, dry_run: bool = False, token: str | None = None
) -> Outcome:
    """Take back what turn `number` did to the files, and keep what was done since. A file that was changed again in the
    same lines, or that is not text, stays as it is, and is listed as kept."""
    with rewind_journal(session.cwd) as journal:
        notes = [] if dry_run else _settle(store, session.cwd, journal)
        turn = session.turn(number)
        before = _checkpoint_before(turn, session, files=True)
        after = _checkpoint_after(turn, session)
        workspace = session.workspace()
        planned = workspace.revert(before, after, dry_run=True, merge=True)
        plan = Outcome(
            action="revert",
            session=session,
            turn=number,
            changes=planned,
            notes=tuple(notes),
            token=_token("revert", session, before.id, after.id, planned),
            dry_run=dry_run,
        )
        if dry_run:
            return plan
        _check_token(token, plan)
        save = _record(session, "revert", reverted=number)
        changes = workspace.revert(before, after, merge=True, save=save) if planned else planned
        return msgspec.structs.replace(plan, changes=changes)


def undo(
    store: Store,
    directory: str | os.PathLike[str],
    *,
    keep_untracked: bool = False,
    dry_run: bool = False,
    token: str | None = None,
) -> Outcome:
    """Take back the newest rewind or revert in a directory: its files, and with which session to go on."""
    found = newest_session(store, directory)
    if found is None:
        raise NoCheckpoint(f"no session of a coding agent was captured in {os.fspath(directory)}")
    with rewind_journal(found.cwd) as journal:
        notes = [] if dry_run else _settle(store, found.cwd, journal)
        workspace = found.workspace()
        last = workspace.last_restore()
        if last is None:
            raise NoCheckpoint(f"there is nothing to undo in {found.cwd}: no rewind and no revert was made there")
        told: Mapping[str, Any] = {}
        if last.saved is not None:
            told = store.thread(last.saved[0]).get(last.saved[1]).custom
        session = session_of(store, str(told.get("of") or (last.saved or (found.thread_id,))[0])) or found
        files = told.get("files") is not False
        planned = workspace.undo(dry_run=True, keep_untracked=keep_untracked, files=files)
        what = f"{told.get('event', 'restore')} of {last.created_at.astimezone():%Y-%m-%d %H:%M}"
        plan = Outcome(
            action="undo",
            session=session,
            changes=planned if files else None,
            fork=conversations.resumed(session.agent, session.session_id) if told.get("conversation") else None,
            notes=(*notes, f"this takes back the {what}" if dry_run else f"took back the {what}"),
            token=_token("undo", session, last.id, planned),
            dry_run=dry_run,
        )
        if dry_run:
            return plan
        _check_token(token, plan)
        save = _record(session, "undo", undoes=last.id)
        changes = workspace.undo(keep_untracked=keep_untracked, files=files, save=save)
        try:
            more = _brought_back(session) if plan.fork is not None else []
        except CannotFork as error:
            more = [f"the transcript of {session.thread_id} is gone: {error}"]
        return msgspec.structs.replace(plan, changes=changes if files else None, notes=(*plan.notes, *more))


def recover(store: Store, directory: str) -> list[str]:
    """Finish, or take back, a rewind in this directory whose process died; returns sentences that say so."""
    with rewind_journal(directory) as journal:
        return _settle(store, directory, journal)


def _settle(store: Store, directory: str, journal: RewindJournal) -> list[str]:
    workspace = agent_workspace(store, directory)
    workspace.recover()
    pending = journal.read()
    if pending is None:
        return []
    notes = []
    done = _was_saved(store, pending)
    if not done:
        try:
            conversations.discard(pending.made)
        except CannotFork as error:
            made = pending.made
            notes.append(
                f"session {made.session_id} of {made.agent}, which was made for it, could not be removed: {error}"
            )
    journal.clear()
    return [f"a rewind that was interrupted here {'was finished' if done else 'was taken back'} first", *notes]


def _was_saved(store: Store, pending: PendingRewind) -> bool:
    thread = store.thread(pending.thread)
    try:
        return thread.exists() and thread.get(pending.checkpoint) is not None
    except CheckpointNotFound:
        return False


class _Rewind:
    """One rewind, after it was planned: the fork, then the files and the checkpoint."""

    def __init__(
        self,
        store: Store,
        session: AgentSession,
        turn: Turn,
        before: Checkpoint,
        journal: RewindJournal,
        *,
        files: bool,
        keep_untracked: bool,
    ) -> None:
        self._store = store
        self._session = session
        self._turn = turn
        self._before = before
        self._journal = journal
        self._files = files
        self._keep_untracked = keep_untracked
        self._save: JointSave | None = None

    def fork(self) -> Fork:
        """Make the new session; `CannotFork`, and nothing is left, if that is not possible."""
        point = cut_point(self._session, self._turn)
        try:
            return conversations.fork(self._session.agent, point, self._announce)
        except CannotFork:
            self._journal.clear()
            raise

    def _announce(self, made: Fork) -> None:
        save = self._checkpoint(made)
        self._journal.write(PendingRewind(made, save.thread, save.id))

    def _checkpoint(self, made: Fork | None) -> JointSave:
        """The checkpoint that tells of the rewind: in a thread for the new session, or else in the old one's."""
        if self._save is not None:
            return self._save
        session, number = self._session, self._turn.number
        told = {"files": self._files, "conversation": made is not None, "before": number}
        if made is None or made.session_id is None:
            self._save = _record(session, "restore", **told)
            return self._save
        kept = [turn for turn in session.turns() if turn.number < number]
        custom = {
            "agent": session.agent,
            "event": "rewind",
            "turn": kept[-1].number if kept else 0,
            "open": False,
            "cwd": session.cwd,
            "of": session.thread_id,
            **({"turn_id": kept[-1].turn_id} if kept and kept[-1].turn_id else {}),
            **({"transcript": made.path} if made.path is not None else {}),
            **told,
        }
        self._save = JointSave(
            thread=thread_id(session.agent, made.session_id),
            after=self._before.id,
            fork_of=session.thread_id,
            custom=custom,
        )
        return self._save

    def finish(self, workspace: Workspace, made: Fork | None) -> Changes | None:
        """Restore the files and save the checkpoint, both or neither; without it, the new session is taken away."""
        save = self._checkpoint(made)
        try:
            if self._files:
                changes = workspace.restore(self._before, keep_untracked=self._keep_untracked, save=save)
            else:
                workspace.save_only(save)
                changes = None
        except BacktrailError as error:
            try:
                _settle(self._store, self._session.cwd, self._journal)
            except (BacktrailError, OSError) as later:
                error.add_note(f"the rewind is half done, and is settled by the next one: {later}")
            raise
        self._journal.clear()
        return changes


def _brought_back(session: AgentSession) -> list[str]:
    told = bring_back_transcript(session)
    return [] if told is None else [told]


def _session(store: Store, like: AgentSession, session_id: str) -> AgentSession:
    return AgentSession(store, like.agent, session_id)


def _record(session: AgentSession, event: str, **fields: Any) -> JointSave:
    """A checkpoint in a session's thread that tells what was done; the turns go on as they were."""
    head = session.head
    kept: dict[str, Any] = {key: head.custom[key] for key in ("turn", "open", "turn_id", "cwd") if key in head.custom}
    custom = {"agent": session.agent, "event": event, **kept, **fields}
    return JointSave(thread=session.thread_id, after=head.id, custom=custom)


def _checkpoint_before(turn: Turn, session: AgentSession, *, files: bool) -> Checkpoint:
    if turn.before is None:
        raise NoCheckpoint(f"the beginning of turn {turn.number} of {session.thread_id} was not captured")
    if files and turn.before.files is None:
        why = turn.before.custom.get("files_missing", "they were not captured")
        raise NoCheckpoint(
            f"the files before turn {turn.number} of {session.thread_id} are missing: {why}; "
            "conversation only is what can go back"
        )
    return turn.before


def _checkpoint_after(turn: Turn, session: AgentSession) -> Checkpoint:
    if turn.after is None:
        raise NoCheckpoint(f"turn {turn.number} of {session.thread_id} goes on: revert it when it has ended")
    if turn.after.files is None:
        why = turn.after.custom.get("files_missing", "they were not captured")
        raise NoCheckpoint(f"the files after turn {turn.number} of {session.thread_id} are missing: {why}")
    return turn.after


def _with_cut(plan: Outcome, turn: Turn) -> Outcome:
    """A plan that says beforehand if the conversation cannot be cut there."""
    try:
        point = cut_point(plan.session, turn)
        if point.first_dropped is None and point.last_kept is None:
            raise CannotFork("the agent's own ids of the turns were not recorded")
    except CannotFork as error:
        return msgspec.structs.replace(plan, notes=(*plan.notes, _files_only(plan.session, error)))
    return plan


def _files_only(session: AgentSession, error: CannotFork) -> str:
    return f"only the files go back: the conversation of {session.agent} cannot be forked: {error}"


def _running(session: AgentSession, made: Fork | None) -> list[str]:
    if made is None:
        return [f"a running {session.agent} does not know that the files have changed: tell it"]
    return [f"a running {session.agent} keeps its old conversation until it resumes this one"]


def _notes_on(store: Store, session: AgentSession, turn: Turn, *, files: bool) -> list[str]:
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
    found = []
    related = {session.thread_id, *(fork.thread_id for fork in session.thread.forks())}
    for number, other in enumerate(sessions(store)):
        head = other.head
        if number >= _MANY_SESSIONS or head.created_at <= since.created_at:
            break
        if other.thread_id not in related and head.custom.get("cwd") == session.cwd:
            found.append(other.thread_id)
    return found


def _token(*parts: Any) -> str:
    """The name of a plan."""
    plain = [part.thread_id if isinstance(part, AgentSession) else _plain(part) for part in parts]
    return hashlib.blake2b(msgspec.msgpack.encode(plain), digest_size=8).hexdigest()


def _plain(part: Any) -> Any:
    if not isinstance(part, Changes):
        return part
    return [(os.fsencode(change.path), change.kind) for change in part.changes]


def _check_token(token: str | None, plan: Outcome) -> None:
    if token is not None and token != plan.token:
        raise Conflict(
            plan.session.thread_id,
            message="the plan is another one by now: the files or the session have changed; nothing was done. "
            "Look at the new plan, and use its token",
        )
