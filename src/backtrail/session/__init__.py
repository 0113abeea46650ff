"""A session: a thread seen as messages. `core` says what that means, `doors` says it in two colours."""

from backtrail.session.core import SessionCore
from backtrail.session.listing import SessionInfo, list_sessions
from backtrail.session.sync import AsyncSession, Session

__all__ = ["AsyncSession", "Session", "SessionCore", "SessionInfo", "list_sessions"]
