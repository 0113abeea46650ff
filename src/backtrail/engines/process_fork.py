"""Prepares the engines of this process for `os.fork()`: open locks and connections must not be shared with the child.

An inherited lock would be held by two processes, and an inherited connection used by two. A registered engine is paused
before the fork, resumed in the parent, and started anew in the child.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forked(Protocol):
    def before_fork(self) -> None: ...

    def after_fork_in_parent(self) -> None: ...

    def after_fork_in_child(self) -> None: ...


_living: weakref.WeakSet[Forked] = weakref.WeakSet()
_fork_lock = threading.Lock()  # if two threads fork at once, the second waits for the first
_forking: list[Forked] = []  # engines that are paused


def watch(engine: Forked) -> None:
    """Register `engine` for every fork, until it is garbage-collected."""
    _living.add(engine)


class ForkSafe:
    """An object with a lock. A forked child must not inherit it held, by a thread that the child does not have."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        watch(self)

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()


def _before() -> None:
    _fork_lock.acquire()
    for engine in _all():
        engine.before_fork()
        _forking.append(engine)


def _all() -> list[Forked]:
    while True:
        try:
            return list(_living)
        except RuntimeError:  # another thread has just opened a store
            continue


def _after_in_parent() -> None:
    while _forking:
        _forking.pop().after_fork_in_parent()
    _fork_lock.release()


def _after_in_child() -> None:
    while _forking:
        _forking.pop().after_fork_in_child()
    _fork_lock.release()


os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
