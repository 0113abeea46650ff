"""A session: a thread seen as messages. `sync` and `aio` are the public classes, `core` does the work."""

from backtrail.session.core import SessionCore
from backtrail.session.listing import SessionInfo, list_sessions
from backtrail.session.sync import Session

__all__ = ["Session", "SessionCore", "SessionInfo", "list_sessions"]
