"""The values of a conversation fork: where it is cut, and what came of it."""

from __future__ import annotations

import msgspec

from backtrail.errors import BacktrailError


class CannotFork(BacktrailError):
    """The conversation cannot be forked; says why. Nothing was made."""


class CutPoint(msgspec.Struct, frozen=True):
    """Where a conversation is cut: before one of its turns."""

    session_id: str
    transcript: str | None  #: the path of the agent's own transcript, if it has one
    directory: str  #: the project
    first_dropped: str | None  #: the agent's own id of the first turn that the new session does not have
    last_kept: str | None  #: the agent's own id of the last turn that it has; None if it has none


class Fork(msgspec.Struct, frozen=True):
    """A session that was made by cutting another one."""

    agent: str
    session_id: str | None  #: None if it is empty: a new session of the agent's does as well
    resume: tuple[str, ...]  #: the command that resumes it, in the project
    inside: str | None  #: what to type inside the running agent instead, if that works
    path: str | None  #: the transcript that was written, if we wrote it
    size: int = 0  #: its size then: if it is larger by now, somebody has continued it
