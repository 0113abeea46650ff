"""Finishing coroutines in place, so that one implementation serves both the sync and the async API.

A single coroutine is run to its end. Several may share a write: while `sharing()`, an engine with group commit parks
each commit, and when every coroutine is parked or done, the parked commits are made together and their coroutines go
on.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Coroutine, Generator, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class _Local(threading.local):
    sharing = False


_local = _Local()


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends (a blocking engine's never do)."""
    if _local.sharing:
        return _finish_apart(coroutine)
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # StopIteration is untyped
    coroutine.close()
    raise RuntimeError("a blocking engine suspended: this is a defect of the engine, please report it")


def _finish_apart(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from inside one that shares its writes, without sharing: it must not wait for the others."""
    _local.sharing = False
    try:
        return finish(coroutine)
    finally:
        _local.sharing = True


class Parked(Protocol):
    """A write that waits to be done together with others."""

    def write_all(self, parked: Sequence[Any]) -> None:
        """Do all these writes, which are of the same class as this one; each keeps its own result or error."""


def sharing() -> bool:
    """True if the running coroutine is one of several that may share a write."""
    return _local.sharing


@types.coroutine
def park(write: Parked) -> Generator[Parked, None, None]:
    """Suspend until the write has been done together with others."""
    yield write


def finish_all(coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[tuple[Any, BaseException | None]]:
    """Run several coroutines to their ends, sharing their writes; (result, error) of each."""
    results: list[tuple[Any, BaseException | None]] = [(None, None)] * len(coroutines)
    going = list(range(len(coroutines)))
    _local.sharing = True
    try:
        while going:
            parked: list[tuple[int, Parked]] = []
            for number in going:
                try:
                    parked.append((number, coroutines[number].send(None)))
                except StopIteration as done:
                    results[number] = (done.value, None)
                except BaseException as error:  # noqa: BLE001  # the caller of that coroutine gets it
                    results[number] = (None, error)
            if parked:
                parked[0][1].write_all([write for _, write in parked])
            going = [number for number, _ in parked]
    finally:
        _local.sharing = False
    return results
