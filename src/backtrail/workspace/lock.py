"""One operation at a time in a directory: an advisory lock on the root itself.

It is held by a descriptor, so it is freed at once when its owner dies, and it needs no lock file. Threads of one
process exclude each other too, because every call opens the root anew.
"""

from __future__ import annotations

import fcntl
import os
import time

from backtrail.errors import FilesError, LockTimeout

POLL = 0.01  # seconds between two attempts


def acquire(root: bytes, timeout: float) -> int:
    """Lock the root and return the descriptor that holds the lock: closing it releases it. `LockTimeout` if another
    process holds it for longer than `timeout` seconds."""
    try:
        handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise FilesError(root, f"it is not a directory that can be opened ({error.strerror})") from error
    deadline = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except BlockingIOError:
            if time.monotonic() >= deadline:
                os.close(handle)
                raise LockTimeout(f"workspace {os.fsdecode(root)!r}", timeout) from None
            time.sleep(POLL)
