"""Small records under reserved names: metadata that a store, a mirror or a spool keeps about itself.

Such a record is a head without rows, and its value is the head's note. So every engine can store it and list it by the
prefix of its name, and it changes only by compare-and-swap.
"""

from __future__ import annotations

from collections.abc import Callable

from backtrail.engines.base import Commit, Engine, Head, Swap
from backtrail.engines.conflicts import Refused

_NO_ID = bytes(16)


def record(
    name: str,
    lineage: str,
    kind: str,
    value: bytes,
    before: Head | None = None,
    *,
    incarnation: bytes = _NO_ID,
    step: int = 0,
    created: int = 0,
    updated: int = 0,
) -> Head:
    """A record with this value, as the successor of `before` under the same name."""
    version = 1 if before is None else before.version + 1
    return Head(name, lineage, incarnation, _NO_ID, step, version, kind, created, updated, 0, 0, value)


async def swap(engine: Engine, before: Head | None, after: Head | None) -> bool:
    """Replace `before` by `after`, or delete it (`after` None); False if another writer was faster."""
    one = after or before
    if one is None:
        return True
    try:
        await engine.commit(Commit(one.lineage, (Swap(one.thread, before.key if before else None, after),)))
    except Refused:
        return False
    return True


async def update(engine: Engine, name: str, change: Callable[[Head | None], Head | None]) -> bool:
    """Replace a record by `change(record)`, retried until no other writer is faster. If `change` returns None, the
    record is left as it is, and the result is False."""
    while True:
        known = await engine.head(name)
        new = change(known)
        if new is None:
            return False
        if await swap(engine, known, new):
            return True
