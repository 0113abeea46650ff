"""Pointers to threads whose lineage is in another shard than their home, in a store of several shards.

A thread exists only once, whatever shard it is in. Its home (the shard of its own name) holds a pointer to the lineage
where it may be; a commit that creates it in another shard sets that pointer first. Before a pointer is set to another
lineage, its version is blocked in the old one, so that a slow writer that relies on it is refused. With one shard no
pointers are needed: the commit's own script sees everything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from backtrail.engines import conflicts
from backtrail.engines.base import Commit
from backtrail.engines.redis.client import Argument, Script
from backtrail.engines.redis.keys import Shards

Run = Callable[[Script, int, Sequence[Argument]], Awaitable[Any]]

SET_POINTER, BLOCK_STALE_CLAIMS, DELETE_POINTER = map(Script, ("set_pointer", "block_stale_claims", "delete_pointer"))


async def set_pointers(run: Run, shards: Shards, commit: Commit) -> dict[str, int]:
    """Set a pointer for every thread that the commit creates outside its home; returns their versions."""
    if shards.count == 1:
        return {}
    here = shards.of(commit.lineage)
    return {
        swap.thread: await set_pointer(run, shards, swap.thread, commit.lineage)
        for swap in commit.swaps
        if swap.expect is None and swap.new is not None and shards.of(swap.thread) != here
    }


async def set_pointer(run: Run, shards: Shards, thread: str, lineage: str, *, anew: bool = False) -> int:
    """Make the thread's home point at `lineage`; `Refused` if the thread exists anywhere."""
    home, there, replace = shards.of(thread), shards.of(lineage), b""
    while True:
        answer = await run(SET_POINTER, home, [home, thread, there, lineage, int(anew), replace])
        if answer[0] == b"ok":
            return int(answer[1])
        if answer[0] == b"moved":
            raise conflicts.moved(thread)
        replace = answer[1]
        await _block(run, thread, replace)


async def delete_pointer(run: Run, shards: Shards, thread: str, pointer: bytes) -> None:
    """Delete a pointer to another shard, so that the thread can be created at home; `Refused` if it exists there."""
    await _block(run, thread, pointer)
    await run(DELETE_POINTER, shards.of(thread), [thread, pointer])


async def _block(run: Run, thread: str, pointer: bytes) -> None:
    """Prevent the thread from being created where the pointer leads; `Refused` if it exists there."""
    shard, version, lineage = pointer.split(b":", 2)
    if not await run(BLOCK_STALE_CLAIMS, int(shard), [thread, lineage, version]):
        raise conflicts.moved(thread)
