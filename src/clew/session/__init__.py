"""A session: a thread seen as messages. `core` says what that means, `doors` says it in two colours."""

from clew.session.core import SessionCore
from clew.session.doors import AsyncSession, Session
from clew.session.listing import SessionInfo, list_sessions

__all__ = ["AsyncSession", "Session", "SessionCore", "SessionInfo", "list_sessions"]
