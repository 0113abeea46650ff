"""The public thread classes: `Thread` in `sync_api`, `AsyncThread` in `async_api`, both over `history.thread_core`."""

from backtrail.thread.autosave import Autosave
from backtrail.thread.lock import Lock
from backtrail.thread.sync_api import Thread

__all__ = ["Autosave", "Lock", "Thread"]
