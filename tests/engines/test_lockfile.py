"""The lock between processes: a free one is taken at once, and a held one is waited for."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path
from typing import Any

import pytest

from backtrail.engines import lockfile
from backtrail.engines.lockfile import LockFile


def test_a_free_lock_is_taken_by_calls_that_let_no_other_thread_run(tmp_path: Path, monkeypatch: Any) -> None:
    """`fcntl.flock` releases Python's lock."""
    one, other = LockFile(tmp_path / "lock"), LockFile(tmp_path / "lock")
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", lambda *_: pytest.fail("it is free"))
        one.acquire()
    with pytest.raises(BlockingIOError):
        fcntl.flock(other._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    one.release()
    fcntl.flock(other._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for lock in (one, other):
        lock.close()


def test_a_lock_that_is_held_is_waited_for(tmp_path: Path, monkeypatch: Any) -> None:
    one, other = LockFile(tmp_path / "lock"), LockFile(tmp_path / "lock")
    waiting, flock = threading.Event(), fcntl.flock

    def wait(fd: int, operation: int) -> None:
        waiting.set()
        flock(fd, operation)

    one.acquire()
    monkeypatch.setattr(fcntl, "flock", wait)
    thread = threading.Thread(target=other.acquire)
    thread.start()
    assert waiting.wait(30)
    with pytest.raises(BlockingIOError):
        flock(one._next, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a third one would queue behind it
    one.release()
    thread.join(30)
    with pytest.raises(BlockingIOError):
        flock(one._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for lock in (one, other):
        lock.close()


def test_an_error_that_is_not_a_held_lock_is_raised(tmp_path: Path) -> None:
    lock = LockFile(tmp_path / "lock")
    lock.close()
    assert lockfile._flock(lock._lock, fcntl.LOCK_EX | fcntl.LOCK_NB) != 0
    with pytest.raises((OSError, ValueError)):
        lock.acquire()
