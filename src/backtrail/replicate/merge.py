"""Merging: makes one lineage equal on two stores.

One of them, the target, absorbs what the other has: rows, branches and blobs are united, of two marks on a row the
later one counts, and of two heads of a thread the one with the higher version. A head that loses, with checkpoints that
the other does not have, becomes a thread `name#diverged-n`. Deletions are told from threads that one side never had by
their tombstones. Then the other store is made equal to the target.

A merge is optimistic: it reads all heads of the lineage first, copies what is missing, and changes the heads in one
commit that is refused if any head has moved since. So a save, a sweep or another merge at the same time makes one of
the two start over, and a merge that dies at any point is simply made again.
"""

from __future__ import annotations

from backtrail.engines.base import Engine, generation_of
from backtrail.engines.conflicts import Refused
from backtrail.replicate import limits
from backtrail.replicate.absorption import Absorption, Merged, Pair
from backtrail.replicate.lineage_copy import LineageRecords, clear, heads_of
from backtrail.replicate.merge_rules import Apart, Codec, Moving, Outdated, Rule


async def merge(
    target: Engine,
    source: Engine,
    lineage: str,
    codec: Codec,
    *,
    generation: int = 0,
    rule: Rule | None = None,
    every_row: bool = False,
) -> Merged:
    """Make `lineage` equal on both engines. New versions are made on the target, in this generation of a mirror: the
    target is its active side. Retried while heads move; `Moving` if they keep moving. `every_row`: also if they differ
    only in rows that no head needs. Otherwise such a lineage is left alone, because its heads would get new versions,
    and a spool whose delivery was cut could not continue them."""
    merged = Merged()
    pair = Pair(target, source, codec, generation, rule or Rule(), (target,))
    await _merge(pair, lineage, merged, {lineage}, every_row)
    return merged


async def _merge(pair: Pair, lineage: str, merged: Merged, seen: set[str], every_row: bool) -> None:
    target, source = pair.target, pair.source
    merged_once = False
    for _ in limits.COMPARISON.attempts():
        theirs, ours = await heads_of(source, lineage), await heads_of(target, lineage)
        if not ours and not theirs:
            await clear(target, lineage)
            await clear(source, lineage)
            return
        alike = ours == theirs and not await _has_leftovers(target, source, lineage)
        if alike and merged_once:
            return
        newest = max(generation_of(head.version) for head in (*ours.values(), *theirs.values()))
        if not pair.rule.renews and newest > pair.generation:
            raise Outdated(lineage, f"lineage {lineage!r} was written to in generation {newest}: read the roles again")
        merged.waits_for.clear()
        try:
            there = await LineageRecords.read(source, lineage, theirs)
            here = await LineageRecords.read(target, lineage, ours)
            if alike and (here.rows_like(there) if every_row else here.marks_like(there)):
                return
            absorption = Absorption(pair, lineage, merged)
            await absorption.decide(here, there)
            await absorption.commit()
            await absorption.overwrite()
        except (Apart, Outdated):
            raise
        except Refused:
            continue
        merged_once = True
        for other in merged.waits_for - seen:
            await _merge(pair, other, merged, seen | {other}, every_row)
    raise Moving(lineage)


async def _has_leftovers(target: Engine, source: Engine, lineage: str) -> bool:
    """True if a merge changed all heads, but was stopped before it had dropped what only the source has."""
    known = {branch.id for branch in await target.branches(lineage)}
    return any(branch.id not in known for branch in await source.branches(lineage))
