"""A session: a thread seen as messages. `core` says what that means, `doors` says it in two colours."""

from backtrail.session.core import SessionCore
from backtrail.session.doors import AsyncSession, Session
from backtrail.session.listing import SessionInfo, list_sessions

__all__ = ["AsyncSession", "Session", "SessionCore", "SessionInfo", "list_sessions"]
