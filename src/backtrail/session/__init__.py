"""A session: a thread seen as messages. `session_core` has its operations as coroutines, `sync_api` and `async_api` the
facades."""

from backtrail.session.listing import SESSIONS, SessionInfo
from backtrail.session.session_core import SessionCore
from backtrail.session.sync_api import Session

__all__ = ["SESSIONS", "Session", "SessionCore", "SessionInfo"]
