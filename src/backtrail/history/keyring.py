"""The key ring of a store: read when the store is opened, created with the first key, re-encrypted by `rekey`.

It is a record like a thread's head, under a reserved name, so every engine can store it and change it by
compare-and-swap. A store that has a ring is encrypted; a store that holds data and has none is not.
"""

from __future__ import annotations

from typing import Any

from backtrail.encode.seal import Ring, SealedFrames, check_keys, lock_ring, refuse_sealed, unlock_ring
from backtrail.engines.base import Head
from backtrail.engines.reserved_names import RESERVED, user_lineages
from backtrail.engines.reserved_record import record, swap
from backtrail.errors import Conflict, InvalidInput
from backtrail.history.context import Context
from backtrail.history.records import now_micros

RING = f"{RESERVED}keys"


async def unlock(context: Context) -> None:
    """Set up the context's frames for its store, encrypted or not; called once, before anything else."""
    head = await context.engine.head(RING)
    if context.keys is None:
        if head is not None:
            raise refuse_sealed()
        return
    if head is None:
        head = await _make_ring(context, context.keys[0])
    ring, _ = unlock_ring(head.note, context.keys, head.created)
    context.seal_with(ring)


async def _make_ring(context: Context, key: bytes) -> Head:
    if await user_lineages(context.engine, limit=1):
        raise InvalidInput(
            "the store holds unencrypted data and cannot be opened with a key: open it without, and copy it into a "
            "new store that has one with store.copy_to(url, key=…)"
        )
    now = now_micros()
    note = lock_ring(Ring.new(), key, now)
    new = record(RING, RING, "keys", note, created=now, updated=now)
    while not await swap(context.engine, None, new):  # another process opened the new store at the same moment
        found = await context.engine.head(RING)
        if found is not None:
            return found
    return new


async def rekey(context: Context, key: Any) -> int:
    """Encrypt the ring with a new key, and seal later writes with a new data key; returns how many data keys there are.

    One small record is written, so this is instant, and other processes continue; one that reads a row sealed
    afterwards has to open the store again, with the new key."""
    context.check_open()
    frames = context.frames
    if context.keys is None or not isinstance(frames, SealedFrames):
        raise InvalidInput("the store is not encrypted: copy it into one that is with store.copy_to(url, key=…)")
    new = check_keys(key)[0]
    while True:
        head = await context.engine.head(RING)
        if head is None:
            raise refuse_sealed()
        ring = unlock_ring(head.note, context.keys, head.created)[0].grown()
        if not await _replace_ring(context, head, lock_ring(ring, new, head.created)):
            continue
        context.add_key(new)
        frames.use(ring)
        return len(ring.keys)


async def adopt_names(source: Context, target: Context) -> None:
    """Make an empty sealed store name blobs as another sealed one does, before that one is copied into it."""
    one, other = source.frames, target.frames
    if not (isinstance(one, SealedFrames) and isinstance(other, SealedFrames)) or target.keys is None:
        return
    if one.blob_id(b"") == other.blob_id(b"") or await user_lineages(target.engine, limit=1):
        return
    head = await target.engine.head(RING)
    if head is None:
        raise refuse_sealed()
    ring, number = unlock_ring(head.note, target.keys, head.created)
    ring = one.renamed(ring)
    if not await _replace_ring(target, head, lock_ring(ring, target.keys[number], head.created)):
        raise _ring_moved()
    other.use(ring)


async def _replace_ring(context: Context, head: Head, value: bytes) -> bool:
    """Replace the ring `head` by one with this value; False if another process was faster."""
    return await swap(
        context.engine, head, record(RING, RING, "keys", value, head, created=head.created, updated=now_micros())
    )


def _ring_moved() -> Conflict:
    return Conflict(RING, message="the key ring of the store was replaced meanwhile: try again")


async def share_ring(one: Context, other: Context) -> None:
    """Give two sealed stores the same ring before they are made equal, so that they can hold the same bytes: an empty
    one adopts the other's. Two stores that can never be equal are refused."""
    mine, theirs = await one.engine.head(RING), await other.engine.head(RING)
    if mine is None and theirs is None:
        return
    if mine is None or theirs is None:
        raise InvalidInput(
            "one of the two stores is encrypted and the other is not: copy one into the other with store.copy_to()"
        )
    if mine.created == theirs.created:
        return
    for ring, old, taker in ((mine, theirs, other), (theirs, mine, one)):
        if not await user_lineages(taker.engine, limit=1):
            await _take_ring(taker, old, ring)
            return
    raise InvalidInput(
        "the two stores are encrypted apart from each other, so that neither could read what the other holds: copy one "
        "into the other with store.copy_to()"
    )


async def _take_ring(context: Context, old: Head, ring: Head) -> None:
    """Replace the ring that an empty store got when it was opened with another store's."""
    assert context.keys is not None
    assert isinstance(context.frames, SealedFrames)
    found, _ = unlock_ring(ring.note, context.keys, ring.created)
    if not await swap(context.engine, old, ring):
        raise _ring_moved()
    context.frames.use(found)
