"""Finds the lineages whose heads differ on two sides. Every change of a lineage changes one of its heads."""

from __future__ import annotations

from backtrail.engines.base import Engine
from backtrail.replicate import role_record

_PAGE = 1000


async def differing(one: Engine, other: Engine) -> list[str]:
    """The lineages whose heads are not the same on both sides, compared page by page; only heads are read."""
    found: dict[str, None] = {}
    after: str | None = None
    while True:
        pages = [await side.threads(after=after, limit=_PAGE) for side in (one, other)]
        # Beyond the end of a full page, its side may have more.
        last = min((page[-1].thread for page in pages if len(page) == _PAGE), default=None)
        here, there = ({head.thread: head for head in page if last is None or head.thread <= last} for page in pages)
        for thread in {**here, **there}:
            if here.get(thread) != there.get(thread) and not role_record.is_own_record(thread):
                found |= {head.lineage: None for head in (here.get(thread), there.get(thread)) if head is not None}
        if last is None:
            return list(found)
        after = last
