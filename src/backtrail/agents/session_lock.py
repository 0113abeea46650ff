"""One process at a time for a session of an agent.

A hook that goes on after the agent did holds the session until it is done, so the next one waits for it. The lock is an
advisory one on a file, which the kernel frees if its owner is killed. There is a fixed number of files: two sessions
that share one wait for each other now and then.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator

from backtrail import owned_files
from backtrail.agents.user_store import data_directory
from backtrail.errors import LockTimeout

_FILES = 1024
_POLL = 0.005  # seconds between two attempts


@contextlib.contextmanager
def session_lock(thread_id: str, timeout: float) -> Iterator[None]:
    """Hold the session that a thread keeps; `LockTimeout` if another process does for longer than `timeout`."""
    folder = data_directory() / "locks"
    owned_files.make_directories(folder)
    number = int.from_bytes(hashlib.blake2b(thread_id.encode(), digest_size=4).digest(), "big") % _FILES
    handle = owned_files.open_or_create(folder / f"{number:03x}", os.O_RDWR)
    try:
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise LockTimeout(f"session {thread_id!r}", timeout) from None
                time.sleep(_POLL)
        yield
    finally:
        os.close(handle)
