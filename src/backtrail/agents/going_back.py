"""Going back: the files and the conversation of a coding agent, together.

`rewind` brings the files to what they were before a turn, and makes a new session of the agent that ends there.
`revert` takes back what one turn did to the files, and keeps later work. `undo` takes back the newest of either, and
`redo` the newest undo.

Both halves happen, or neither. The new session is made first: nobody knows of it yet. Then one journaled restore
changes the files and saves a checkpoint that tells of the rewind, in a thread for the new session that is forked off
the old one's. That checkpoint is what counts: with it, a rewind that died is finished; without it, the new session is
taken away.

The session that was rewound stays as it is, and a running agent keeps its context until it resumes another session.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from backtrail.agents import conversations, directory_index
from backtrail.agents.capture import agent_workspace
from backtrail.agents.conversations import CannotFork, Fork
from backtrail.agents.cut_points import bring_back_transcript, cut_point
from backtrail.agents.events import thread_id
from backtrail.agents.going_back_plan import (
    Outcome,
    check_token,
    checkpoint_after,
    checkpoint_before,
    files_only,
    notes_on,
    plan_token,
    running,
    with_cut,
)
from backtrail.agents.rewind_journal import PendingRewind, RewindJournal, rewind_journal
from backtrail.agents.sessions import AgentSession, Turn, newest_session, session_of
from backtrail.errors import BacktrailError, CheckpointNotFound, InvalidInput, NoCheckpoint
from backtrail.workspace import Changes, JointSave, Workspace

if TYPE_CHECKING:
    from backtrail.model import Checkpoint
    from backtrail.store import Store

__all__ = ["Outcome", "recover", "redo", "revert", "rewind", "undo"]


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
        before = checkpoint_before(turn, session, files=files)
        workspace = session.workspace()
        planned = workspace.restore(before, dry_run=True, keep_untracked=keep_untracked) if files else None
        notes += notes_on(store, session, turn, files=files)
        plan = Outcome(
            action="rewind",
            session=session,
            turn=number,
            prompt=session.prompt(turn),
            changes=planned,
            notes=tuple(notes),
            token=plan_token("rewind", session, before.id, conversation, planned),
            dry_run=dry_run,
        )
        if dry_run:
            return with_cut(plan, turn) if conversation else plan
        check_token(token, plan)
        expect = None if token is None or planned is None else planned.plan
        step = _Rewind(store, session, turn, before, journal, files=files, keep_untracked=keep_untracked, expect=expect)
        made: Fork | None = None
        if conversation:
            try:
                notes += _brought_back(session)
                made = step.fork()
            except CannotFork as error:
                if not files:
                    raise
                notes.append(files_only(session, error))
        changes = step.finish(workspace, made)
        continued = session if made is None or made.session_id is None else _session(store, session, made.session_id)
        notes += running(session, made)
        return msgspec.structs.replace(plan, session=continued, changes=changes, fork=made, notes=tuple(notes))


def revert(
    store: Store, session: AgentSession, number: int, *, dry_run: bool = False, token: str | None = None
) -> Outcome:
    """Take back what turn `number` did to the files, and keep what was done since. A file that was changed again in the
    same lines, or that is not text, stays as it is, and is listed as kept."""
    with rewind_journal(session.cwd) as journal:
        notes = [] if dry_run else _settle(store, session.cwd, journal)
        turn = session.turn(number)
        before = checkpoint_before(turn, session, files=True)
        after = checkpoint_after(turn, session)
        workspace = session.workspace()
        planned = workspace.revert(before, after, dry_run=True, merge=True)
        plan = Outcome(
            action="revert",
            session=session,
            turn=number,
            changes=planned,
            notes=tuple(notes),
            token=plan_token("revert", session, before.id, after.id, planned),
            dry_run=dry_run,
        )
        if dry_run:
            return plan
        check_token(token, plan)
        save = _record(session, "revert", reverted=number)
        expect = None if token is None else planned.plan
        directory_index.note(store, session.cwd, save.thread)
        changes = workspace.revert(before, after, merge=True, save=save, expect=expect) if planned else planned
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
    return _take_back(store, directory, "undo", keep_untracked=keep_untracked, dry_run=dry_run, token=token)


def redo(
    store: Store,
    directory: str | os.PathLike[str],
    *,
    keep_untracked: bool = False,
    dry_run: bool = False,
    token: str | None = None,
) -> Outcome:
    """Take back the newest undo in a directory: files and session are again what they were before it."""
    return _take_back(store, directory, "redo", keep_untracked=keep_untracked, dry_run=dry_run, token=token)


def _take_back(
    store: Store,
    directory: str | os.PathLike[str],
    action: Literal["undo", "redo"],
    *,
    keep_untracked: bool,
    dry_run: bool,
    token: str | None,
) -> Outcome:
    found = newest_session(store, directory)
    if found is None:
        raise NoCheckpoint(f"no session of a coding agent was captured in {os.fspath(directory)}")
    with rewind_journal(found.cwd) as journal:
        notes = [] if dry_run else _settle(store, found.cwd, journal)
        workspace = found.workspace()
        last = workspace.last_restore() if action == "undo" else workspace.last_undo()
        if last is None:
            what = "no rewind and no revert was made there" if action == "undo" else "no undo was made there since"
            raise NoCheckpoint(f"there is nothing to {action} in {found.cwd}: {what}")
        told: Mapping[str, Any] = {}
        left = found.thread_id  # the session that was gone on with
        if last.saved is not None:
            left = last.saved[0]
            told = store.thread(left).get(last.saved[1]).custom
        session = session_of(store, str(told.get("of") or left)) or found
        files, conversation = told.get("files") is not False, told.get("conversation") is True
        take_back = workspace.undo if action == "undo" else workspace.redo
        planned = take_back(dry_run=True, keep_untracked=keep_untracked, files=files)
        what = f"{told.get('event', 'restore')} of {last.created_at.astimezone():%Y-%m-%d %H:%M}"
        anew = action == "redo" and session.thread_id == left  # nothing was kept: any new session would do
        plan = Outcome(
            action=action,
            session=session,
            changes=planned if files else None,
            fork=conversations.resumed(session.agent, None if anew else session.session_id) if conversation else None,
            notes=(*notes, f"this takes back the {what}" if dry_run else f"took back the {what}"),
            token=plan_token(action, session, last.id, planned),
            dry_run=dry_run,
        )
        if dry_run:
            return plan
        check_token(token, plan)
        save = _record(session, action, undoes=last.id, of=left, files=files, conversation=conversation)
        expect = None if token is None else planned.plan
        directory_index.note(store, session.cwd, save.thread)
        changes = take_back(keep_untracked=keep_untracked, files=files, save=save, expect=expect)
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
        expect: str | None,
    ) -> None:
        self._store = store
        self._session = session
        self._turn = turn
        self._before = before
        self._journal = journal
        self._files = files
        self._keep_untracked = keep_untracked
        self._expect = expect
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
            directory_index.note(self._store, self._session.cwd, save.thread)
            if self._files:
                changes = workspace.restore(
                    self._before, keep_untracked=self._keep_untracked, save=save, expect=self._expect
                )
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
