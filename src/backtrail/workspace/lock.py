"""One at a time in a directory: an advisory lock on the root itself.

It is held by a descriptor, so the death of its holder frees it at once, and it needs no file anywhere. Threads of one
process exclude each other too, because every call opens the root anew.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from backtrail.errors import FilesError, LockTimeout

PAUSE = 0.01


@contextmanager
def locked(root: bytes, timeout: float) -> Iterator[None]:
    """Hold the root's lock; `LockTimeout` if another has it for longer than `timeout` seconds."""
    handle = take(root, timeout)
    try:
        yield
    finally:
        os.close(handle)


def take(root: bytes, timeout: float) -> int:
    """The descriptor that holds the lock; closing it gives the lock back."""
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
            time.sleep(PAUSE)
