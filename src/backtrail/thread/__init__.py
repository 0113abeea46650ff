"""A thread, as users have it: `sync` has `Thread`, `aio` has `AsyncThread`, and `history.thread` does the work."""

from backtrail.thread.autosave import Autosave
from backtrail.thread.lock import Lock
from backtrail.thread.sync_api import Thread

__all__ = ["Autosave", "Lock", "Thread"]
