"""Conversation forks: a new session of a coding agent that ends before a given turn. The original is never changed.

Each agent has a module: `fork(point, announce)` makes the new session by the means that the agent itself offers,
without asking its model; `discard(made)` takes it away again; `resumed(session_id)` says how to go on with a session.
Formats drift: whatever a module does not recognise is a `CannotFork` with the reason; then only the files go back.
"""

from __future__ import annotations

from typing import Protocol, cast

from backtrail.agents.conversations import claude, codex, gemini, opencode
from backtrail.agents.conversations.model import Announce, CannotFork, CutPoint, Fork
from backtrail.agents.events import Agent

__all__ = ["CannotFork", "CutPoint", "Fork", "discard", "fork", "resumed"]


class _Conversations(Protocol):
    def fork(self, point: CutPoint, announce: Announce) -> Fork: ...
    def discard(self, made: Fork) -> None: ...
    def resumed(self, session_id: str | None) -> Fork: ...


_MODULES = {
    "claude": cast("_Conversations", claude),
    "codex": cast("_Conversations", codex),
    "gemini": cast("_Conversations", gemini),
    "opencode": cast("_Conversations", opencode),
}


def fork(agent: Agent, point: CutPoint, announce: Announce) -> Fork:
    """Make a session that ends before `point`. `announce` is called as soon as it is known which one: before it is
    there, if we make it. `CannotFork` if the agent, or its format, is not as it is known here."""
    return _MODULES[agent].fork(point, announce)


def discard(made: Fork) -> None:
    """Remove a session that `fork` made, unless somebody has continued it."""
    if made.session_id is not None:
        _MODULES[made.agent].discard(made)


def resumed(agent: Agent, session_id: str | None) -> Fork:
    """A session that is there, and how to go on with it; with None, how to begin one."""
    return _MODULES[agent].resumed(session_id)
