"""The values of a conversation fork: where it is cut, and what came of it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from backtrail.agents.events import Agent
from backtrail.errors import BacktrailError


class CannotFork(BacktrailError):
    """The conversation cannot be forked; says why. Nothing was made."""


class CutPoint(msgspec.Struct, frozen=True):
    """Where a conversation is cut: before one of its turns."""

    session_id: str
    transcript: str | None  #: the path of the agent's own transcript, if it has one
    directory: str  #: the project
    dropped: tuple[str, ...]  #: the agent's own ids of the turns that the new session does not have, in their order
    kept: tuple[str, ...]  #: those of the turns that it has. An agent that was killed may not have written a turn down
    prompts: tuple[str, ...] = ()  #: the prompts of all turns that are kept, and of the first that is dropped


class Fork(msgspec.Struct, frozen=True):
    """A session of an agent, and how to go on with it."""

    agent: Agent
    session_id: str | None  #: None if nothing is kept: any new session of the agent's does
    resume: tuple[str, ...]  #: the command that resumes it, in the project
    inside: str | None = None  #: what to type inside the running agent instead, if that works
    path: str | None = None  #: the transcript that was written, if we wrote it
    size: int = 0  #: its size then: if it is larger by now, somebody has continued it


Announce = Callable[[Fork], None]
