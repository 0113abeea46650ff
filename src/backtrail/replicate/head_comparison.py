"""Finds the lineages whose heads differ on two sides. Every change of a lineage changes one of its heads."""

from __future__ import annotations

from backtrail.engines.base import Engine, Head
from backtrail.replicate import role_record

_PAGE = 1000


async def differing(one: Engine, other: Engine) -> list[str]:
    """The lineages whose heads are not the same on both sides, compared page by page; only heads are read."""
    found: dict[str, None] = {}
    for side, opposite in ((one, other), (other, one)):
        after: str | None = None
        while heads := await side.threads(after=after, limit=_PAGE):
            last = heads[-1].thread
            twins = {head.thread: head for head in await _up_to(opposite, after, last)}
            for head in heads:
                if not role_record.is_own_record(head.thread) and twins.get(head.thread) != head:
                    found[head.lineage] = None
            after = last
    return list(found)


async def _up_to(side: Engine, after: str | None, last: str) -> list[Head]:
    """The heads after `after`, up to and including `last`."""
    found: list[Head] = []
    while heads := await side.threads(after=after, limit=_PAGE):
        found += [head for head in heads if head.thread <= last]
        if heads[-1].thread >= last:
            break
        after = heads[-1].thread
    return found
