"""Sessions of coding agents as they were captured: which there are, and their turns.

A session is a thread `<agent>/<session id>`; `capture` says what is in it. Nothing here changes anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from backtrail.agents import directory_index
from backtrail.agents.capture import PROMPT, TRANSCRIPT, agent_workspace, is_within
from backtrail.agents.events import AGENTS, Agent, check_agent, thread_id
from backtrail.errors import NotFound
from backtrail.render.session_turns import Turn, turns_in

__all__ = ["AgentSession", "Turn", "newest_session", "session_of", "sessions", "sessions_in"]

if TYPE_CHECKING:
    import datetime as dt

    from backtrail.model import Checkpoint, ThreadInfo
    from backtrail.store import Store
    from backtrail.thread import Thread
    from backtrail.workspace import Workspace

GONE_BACK = ("rewind", "undo", "redo")  #: events of a session that a person is to go on with
_PAGE = 200  # threads that are listed at once


class AgentSession:
    """One captured session of a coding agent."""

    def __init__(self, store: Store, agent: Agent, session_id: str) -> None:
        self.store = store
        self.agent = agent
        self.session_id = session_id
        self.thread: Thread[dict[str, Any]] = store.thread(thread_id(agent, session_id))

    @property
    def thread_id(self) -> str:
        """The id of the thread that keeps the session."""
        return self.thread.id

    @property
    def head(self) -> Checkpoint:
        """The newest checkpoint; `NotFound` if nothing of the session was captured."""
        head = self.thread.head
        if head is None:
            raise NotFound(f"nothing was captured of {self.agent} session {self.session_id!r}")
        return head

    @property
    def cwd(self) -> str:
        """The directory that the agent works in, without symlinks."""
        cwd = self.head.custom.get("cwd")
        if not isinstance(cwd, str):
            raise NotFound(f"{self.thread_id!r} does not tell the directory of the session")
        return cwd

    @property
    def transcript(self) -> str | None:
        """The path of the agent's transcript, as far as it is known."""
        found = self.thread.pick([TRANSCRIPT]).get(TRANSCRIPT)
        path = found.get("path") if isinstance(found, dict) else None
        return path if isinstance(path, str) else None

    def turns(self) -> list[Turn]:
        """The turns, oldest first."""
        return turns_in(self.thread.history())

    def turn(self, number: int) -> Turn:
        """One turn by its number."""
        turns = self.turns()
        for turn in turns:
            if turn.number == number:
                return turn
        known = f"it has turns {turns[0].number} to {turns[-1].number}" if turns else "no prompt was captured yet"
        raise NotFound(f"{self.thread_id} has no turn {number}: {known}")

    def prompt(self, turn: Turn) -> str:
        """The whole text of a turn's prompt."""
        if turn.before is None:
            return ""
        text = self.thread.pick([PROMPT], at=turn.before).get(PROMPT)
        return text if isinstance(text, str) else turn.prompt

    def workspace(self) -> Workspace:
        """The directory of the session, seen as snapshots."""
        return agent_workspace(self.store, self.cwd)

    def __repr__(self) -> str:
        return f"<backtrail.agents.AgentSession {self.thread_id!r}>"


def session_of(store: Store, thread: str) -> AgentSession | None:
    """The session that a thread keeps; None if the thread is not an agent's."""
    name, slash, session_id = thread.partition("/")
    return AgentSession(store, check_agent(name), session_id) if slash and name in AGENTS and session_id else None


def sessions(store: Store, agent: Agent | None = None) -> Iterator[AgentSession]:
    """All captured sessions, or those of one agent, the one that was used last first."""
    streams = [_newest_first(store, f"{each}/") for each in AGENTS if agent in (None, each)]
    fronts = [(next(stream, None), stream) for stream in streams]
    while waiting := [(info, stream) for info, stream in fronts if info is not None]:
        newest, taken = max(waiting, key=lambda front: front[0].updated_at)
        found = session_of(store, newest.id)
        if found is not None:
            yield found
        fronts = [(next(stream, None) if stream is taken else info, stream) for info, stream in fronts]


def newest_session(store: Store, directory: str | os.PathLike[str], agent: Agent | None = None) -> AgentSession | None:
    """The session that was used last in a directory, or in one above it; None if there is none."""
    real = os.path.realpath(directory)
    noted = directory_index.find(store, real, agent)
    known = _used_last_first(store, noted.sessions)
    for session in known:
        if _works_in(session, real):
            return _gone_on_with(session, known) or session
    return None if noted.all else _look_through(store, real, agent)


def sessions_in(store: Store, directory: str) -> list[AgentSession]:
    """The sessions that worked last in just this directory, without symlinks, the one that was used last first."""
    found = _used_last_first(store, directory_index.find(store, directory).sessions)
    return [session for session in found if session.head.custom.get("cwd") == directory]


def _used_last_first(store: Store, threads: list[str]) -> list[AgentSession]:
    known = [info for id in threads for info in store.threads(id, limit=1) if info.id == id and not info.damage]
    ids = [info.id for info in sorted(known, key=lambda info: info.updated_at, reverse=True)]
    return [session for session in (session_of(store, id) for id in ids) if session is not None]


def _works_in(session: AgentSession, directory: str) -> bool:
    cwd = session.head.custom.get("cwd")
    return isinstance(cwd, str) and is_within(directory, cwd)


def _look_through(store: Store, directory: str, agent: Agent | None) -> AgentSession | None:
    """The same by a look at every session: if there are no notes, or all that were noted are deleted."""
    newest: tuple[dt.datetime, AgentSession] | None = None
    for prefix in (f"{each}/" for each in AGENTS if agent in (None, each)):
        after = None
        while page := store.threads(prefix, limit=_PAGE, after=after):
            after = page[-1].id
            for info in page:
                if info.damage is None and (newest is None or info.updated_at > newest[0]):
                    session = session_of(store, info.id)
                    newest = (info.updated_at, session) if session and _works_in(session, directory) else newest
    return None if newest is None else newest[1]


def _gone_on_with(session: AgentSession, others: list[AgentSession]) -> AgentSession | None:
    """The session that a person went on to from this one, which did nothing since but end: an agent in which a rewind
    was typed as a prompt tells of its end when it is left."""
    if session.head.custom.get("event") != "session_end":
        return None
    before = session.thread.history(limit=2)[0]
    for other in others:
        head = other.head
        if head.custom.get("event") in GONE_BACK and head.custom.get("of") == session.thread_id:
            return other if head.created_at > before.created_at else None
    return None


def _newest_first(store: Store, prefix: str) -> Iterator[ThreadInfo]:
    after = None
    while page := store.threads(prefix, limit=_PAGE, after=after, newest_first=True):
        yield from (info for info in page if info.damage is None)
        after = page[-1].id
