"""Looks at a server from outside of the world, as somebody would who opened it alone. Never raises for damage."""

from __future__ import annotations

from collections.abc import Mapping

import backtrail
from backtrail.engines.base import Engine


def history(store: backtrail.Store, thread: str, *, all: bool = True) -> list[backtrail.Checkpoint]:
    """The checkpoints of a thread; none if that cannot be read, or is not there."""
    try:
        return store.thread(thread).history(all=all, salvage=True)
    except (backtrail.Corrupt, backtrail.NotFound):
        return []


def kept_beside(store: backtrail.Store, thread: str) -> list[str]:
    """The threads that hold what lost against this one."""
    return [info.id for info in store.threads(prefix=f"{thread}#diverged-")]


def only_in(store: backtrail.Store, thread: str) -> set[str]:
    """The ids of checkpoints that are in this thread, and not in one that was kept beside it."""
    beside = {one.id for name in kept_beside(store, thread) for one in history(store, name)}
    return {one.id for one in history(store, thread)} - beside


def alive(engines: Mapping[str, Engine]) -> list[set[str]]:
    """The ids of all checkpoints that are alive on each server."""
    stores = map(backtrail.open, engines.values())
    return [{one.id for info in store.threads() for one in history(store, info.id)} for store in stores]
