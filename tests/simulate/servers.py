"""Looks at a server from outside of the world, as somebody would who opened it alone. Never raises for damage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import backtrail
from backtrail.engines.base import LAST_STEP, Engine
from backtrail.engines.coroutines import finish
from backtrail.engines.reserved_names import RESERVED


def history(store: backtrail.Store, thread: str, *, all: bool = True) -> list[backtrail.Checkpoint]:
    """The checkpoints of a thread; none if that cannot be read, or is not there."""
    try:
        return store.thread(thread).history(all=all, salvage=True)
    except (backtrail.Corrupt, backtrail.NotFound):
        return []


def kept_beside(engines: Mapping[str, Engine], thread: str) -> dict[str, set[str]]:
    """The threads that hold what lost against this one, on any server, and the ids of their checkpoints."""
    found: dict[str, set[str]] = {}
    prefix = f"{thread}#diverged-"
    for engine in engines.values():
        if not finish(engine.threads(prefix=prefix, limit=1)):
            continue  # as nearly always; to open a store costs ten times as much
        store = backtrail.open(engine)
        for info in store.threads(prefix=prefix):
            found.setdefault(info.id, set()).update(one.id for one in history(store, info.id))
    return found


def alive(engine: Engine) -> set[str]:
    """The ids of all checkpoints that are alive on a server."""
    store = backtrail.open(engine)
    return {one.id for info in store.threads() for one in history(store, info.id)}


def records(engine: Engine) -> list[Any]:
    """Everything that a server has, but for the records of the mirror and of the store itself."""
    found: list[Any] = []
    for lineage in finish(engine.lineages()):
        if lineage.startswith(RESERVED):
            continue
        branches = sorted(finish(engine.branches(lineage)), key=lambda branch: branch.id)
        rows = [finish(engine.rows(lineage, one.id, 0, LAST_STEP)) for one in branches]
        blobs = sorted(finish(engine.blob_ids(lineage)))
        found.append((lineage, finish(engine.heads(lineage)), branches, rows, blobs))
    return found
