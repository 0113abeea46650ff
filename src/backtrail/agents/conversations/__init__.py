"""Conversation forks: a new session of a coding agent that ends before a given turn. The original is never changed.

Each agent has a module with two functions: `fork(point)` makes the new session by the means that the agent itself
offers, without asking its model; `discard(made)` takes it away again. Formats drift: whatever a module does not recognise is a
`CannotFork` with the reason, and then only the files go back.
"""

from __future__ import annotations

import importlib
from typing import Protocol

from backtrail.agents.conversations.model import CannotFork, CutPoint, Fork

__all__ = ["CannotFork", "CutPoint", "Fork", "discard", "fork"]

_AGENTS = ("claude", "codex", "gemini", "opencode")


class _Conversations(Protocol):
    PROGRAM: str

    @staticmethod
    def fork(point: CutPoint) -> Fork: ...

    @staticmethod
    def discard(made: Fork) -> None: ...


def fork(agent: str, point: CutPoint) -> Fork:
    """Make a session that ends before `point`; `CannotFork` if that agent's format is not one that is known here."""
    module = _module(agent)
    if point.last_kept is None:  # nothing is kept: any new session is that
        return Fork(agent, None, (module.PROGRAM,), None, None)
    return module.fork(point)


def discard(made: Fork) -> None:
    """Remove a session that `fork` made and that nobody has continued."""
    if made.session_id is not None:
        _module(made.agent).discard(made)


def _module(agent: str) -> _Conversations:
    if agent not in _AGENTS:
        raise CannotFork(f"no way is known to fork a conversation of {agent}")
    module: _Conversations = importlib.import_module(f"{__name__}.{agent}")  # type: ignore[assignment]
    return module
