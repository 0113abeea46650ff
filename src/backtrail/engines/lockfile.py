"""A lock between processes: two small files beside the store, locked with `flock`.

The kernel frees such a lock when its holder dies. It is not fair, though: a process that releases the lock and takes it
again at once would win over those that sleep on it. So a process locks the second file first, then the first one, and
then unlocks the second: one that comes back finds the second file locked and queues like the others.

The files are never removed: if the name could be unlinked, two processes could lock two files of that name.

Nearly always the lock is free. `fcntl.flock` lets other threads of the process run before it has even tried, and a save
would wait for them; so the lock is tried first by a call that keeps Python's lock, which it may because it never waits.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
from pathlib import Path

from backtrail.owned_files import open_or_create

_flock = ctypes.PyDLL(None).flock
_flock.argtypes = (ctypes.c_int, ctypes.c_int)
_TRY, _UNLOCK = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_UN  # these never wait


class LockFile:
    """Held by at most one process at a time. Within a process, the caller keeps other threads out."""

    def __init__(self, path: Path) -> None:
        self._lock = _open(path)
        try:
            self._next = _open(path.with_name(path.name + "-next"))
        except BaseException:
            os.close(self._lock)
            raise

    def acquire(self) -> None:
        # If the first call fails, the file is locked, or there is an error that the second one raises.
        if _flock(self._next, _TRY) != 0:
            fcntl.flock(self._next, fcntl.LOCK_EX)
        try:
            if _flock(self._lock, _TRY) != 0:
                fcntl.flock(self._lock, fcntl.LOCK_EX)
        finally:
            _flock(self._next, _UNLOCK)

    def release(self) -> None:
        if self._lock >= 0:  # closing has released it, too
            _flock(self._lock, _UNLOCK)

    def __enter__(self) -> LockFile:
        self.acquire()
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def close(self) -> None:
        """Close the files, and so release the lock, unless a forked child still has the same file descriptions open."""
        held, self._lock, self._next = (self._lock, self._next), -1, -1
        for fd in held:
            if fd >= 0:
                os.close(fd)


def _open(path: Path) -> int:
    return open_or_create(path, os.O_RDWR, any_links=True)
