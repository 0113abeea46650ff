"""A lock between processes: a small file beside the store, locked with `flock`.

The kernel queues those who wait and wakes them one after another, and it frees the lock when its holder dies. The
file itself is never removed: a lock on a name that somebody else may unlink is no lock.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class LockFile:
    """Held by at most one process at a time. Within a process the caller must already hold a mutex."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def acquire(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def release(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def __enter__(self) -> LockFile:
        self.acquire()
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def close(self) -> None:
        """Let go of the file (and of the lock, unless a forked child still has the same description open)."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
