"""The sizes of a store on Redis: the numbers of its records and their bytes, which every commit keeps in each shard.

What a lineage has can also be counted, from the sizes of its keys: for some lineages only, and to check what is kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from backtrail.engines.redis import keys
from backtrail.engines.redis.client import Argument, Script

Run = Callable[[Script, int, Sequence[Argument]], Awaitable[Any]]
Sizes = list[int]  # in the order of NAMES

NAMES = ("threads", "branches", "rows", "blobs", "bytes")
#: Bytes that Redis takes for each thread, branch, row and blob beside the record, keys and indexes included: measured.
OVERHEAD = (400, 1100, 165, 300, 0)
PAGE = 1000
CHECKS = 5  #: attempts to compare the sizes of a shard with its lineages while nobody writes

LINEAGES = Script("lineages")
SIZES, SET_SIZES, COUNT = (Script(name, "kept_sizes") for name in ("sizes", "set_sizes", "count_lineages"))


def figures(sizes: Sizes) -> dict[str, int]:
    """Sizes as the figures of `Engine.stats`."""
    more = sum(number * each for number, each in zip(sizes, OVERHEAD, strict=True))
    return dict(zip(NAMES, (*sizes[:-1], sizes[-1] + more), strict=True))


async def total(run: Run, shards: keys.Shards) -> Sizes:
    """The sizes of all shards together, as they are kept."""
    return _sum([await _kept(run, shard) for shard in range(shards.count)])


async def count(run: Run, shards: keys.Shards, low: bytes, high: bytes) -> Sizes:
    """What the lineages between two bounds for ZRANGEBYLEX have."""
    return _sum([await _count(run, shard, low, high) for shard in range(shards.count)])


async def check(run: Run, shards: keys.Shards, *, repair: bool) -> list[tuple[str, str]]:
    """Compare what is kept with what the lineages have. A shard that is written to all the time cannot be compared."""
    problems: list[tuple[str, str]] = []
    for shard in range(shards.count):
        for _ in range(CHECKS):
            kept, there = await _kept(run, shard), await _count(run, shard, b"-", b"+")
            if kept != await _kept(run, shard):
                continue
            found = [
                (f"the number of {what}", f"{one} are recorded, and {other} are there")
                for what, one, other in zip(NAMES, kept, there, strict=True)
                if one != other
            ]
            if not (repair and found) or await run(SET_SIZES, shard, [*kept, *there]):
                problems += found
                break
    return problems


async def _kept(run: Run, shard: int) -> Sizes:
    while (found := await run(SIZES, shard, [])) == b"MORE":
        continue
    return [int(size) for size in found]


async def _count(run: Run, shard: int, low: bytes, high: bytes) -> Sizes:
    there = [0] * len(NAMES)
    while page := await run(LINEAGES, shard, [low, PAGE, high]):
        there = _sum([there, await run(COUNT, shard, page)])
        low = b"(" + page[-1]
    return there


def _sum(sizes: Sequence[Sizes]) -> Sizes:
    return [sum(column) for column in zip(*sizes, strict=True)]
