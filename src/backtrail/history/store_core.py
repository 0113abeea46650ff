"""Operations on a whole store: listing and counting threads, prune, compact, verify, copy and rekey."""

from __future__ import annotations

import datetime as dt
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from backtrail.engines.base import Head
from backtrail.engines.capabilities import capability
from backtrail.engines.namespace import NamespaceEngine, namespaces
from backtrail.engines.reserved_names import count_user_threads, user_stats, user_threads
from backtrail.errors import Corrupt, InvalidInput, OverBudget
from backtrail.history import keyring
from backtrail.history.context import Context
from backtrail.history.lineage_view import LineageView
from backtrail.history.reachability import NO_GARBAGE, Garbage, find_garbage
from backtrail.history.records import thread_info
from backtrail.history.run_status import kinds_of
from backtrail.history.sweep import Progress, Sweeper, lineages
from backtrail.history.validation import check_kind, check_limit, check_part
from backtrail.model import Copied, Pruned, ThreadInfo, Verified

if TYPE_CHECKING:
    from backtrail.replicate.status import Status


MAX_SURVEYED = 2_000  #: lineages that `stats` reads, at most


async def list_heads(
    context: Context,
    prefix: str = "",
    limit: int | None = None,
    after: str | None = None,
    kind: str | None = None,
    newest_first: bool = True,
    exact: bool = False,
) -> list[Head]:
    """The heads of a page of threads, for a listing of any kind; every argument is checked. `exact`: of this kind as
    heads have it, with a status."""
    context.check_open()
    check_part(prefix, "prefix")
    for value, what in ((after, "after"), (kind, "kind")):
        if value is not None:
            check_part(value, what)
    limit = check_limit(limit)
    kinds = (kind,) if exact else kinds_of(kind)
    found = {
        head.thread: head  # by name, because a run whose status changes between two of these reads is in both
        for one in kinds
        for head in await user_threads(
            context.engine, prefix=prefix, limit=limit, after=after, kind=one, newest_first=newest_first
        )
    }
    if len(kinds) == 1:
        return list(found.values())
    return sorted(found.values(), key=_age if newest_first else _name, reverse=newest_first)[:limit]


_age, _name = attrgetter("updated", "thread"), attrgetter("thread")


class StoreCore:
    """One open store, below its facades."""

    def __init__(self, context: Context) -> None:
        self.context = context

    # -- threads and figures ------------------------------------------------------------------------------------------

    async def threads(
        self,
        prefix: str = "",
        limit: int | None = None,
        after: str | None = None,
        kind: str | None = None,
        newest_first: bool = False,
    ) -> list[ThreadInfo]:
        """Threads whose id starts with `prefix`, by id, or newest first; `after` is the last id of the page before."""
        heads = await list_heads(self.context, prefix, limit, after, check_kind(kind), newest_first)
        return [thread_info(self.context.frames, head) for head in heads]

    async def count(self) -> int:
        """The number of threads."""
        self.context.check_open()
        return await count_user_threads(self.context.engine)

    async def stats(self, survey: bool = True, progress: Progress | None = None) -> dict[str, Any]:
        """Numbers of threads, branches, rows and blobs; bytes in all (`total`), bytes that can be reached (`live`) and
        bytes that a prune would free (`garbage`). Without `survey`, the last two are left out. In a store of more than
        2,000 lineages they are estimated from a sample: `surveyed` of its `lineages` were read."""
        self.context.check_open()
        figures: dict[str, Any] = {**await user_stats(self.context.engine), "failed_writes": self.context.failed_writes}
        figures["total"] = figures["bytes"]
        if survey:
            live = waste = 0
            names, there = await self._sample()
            for number, lineage in enumerate(names, 1):
                written, found = await self._survey(lineage)
                live, waste = live + written - found.bytes - found.light, waste + found.bytes
                if progress is not None:
                    progress(number, len(names))
            share = there / max(1, len(names))
            figures |= {
                "live": round(live * share),
                "garbage": round(waste * share),
                "surveyed": len(names),
                "lineages": there,
            }
        return figures

    async def _sample(self) -> tuple[list[str], int]:
        """(names of lineages, the number of all lineages): every lineage, or every second, fourth, … of many. Never
        holds more than MAX_SURVEYED names."""
        names: list[str] = []
        there, stride = 0, 1
        async for name in lineages(self.context):
            if there % stride == 0:
                if len(names) == MAX_SURVEYED:
                    names, stride = names[::2], 2 * stride
                if there % stride == 0:
                    names.append(name)
            there += 1
        return names, there

    async def _survey(self, lineage: str) -> tuple[int, Garbage]:
        """The bytes that the rows of a lineage recorded as written, and its garbage."""
        heads: list[Head] | None = None
        while True:
            try:
                view = await LineageView.read(self.context, lineage)
                found = await find_garbage(self.context, view, set(), all_blobs=False)
            except (Corrupt, OverBudget):
                before, heads = heads, await self.context.engine.heads(lineage)
                if before == heads:  # no writer caused it: `verify` reports it
                    return 0, NO_GARBAGE
                continue
            return sum(one.meta.written for rows in view.rows.values() for one in rows), found

    async def namespaces(self) -> list[str]:
        """The namespaces of a store that was opened without one."""
        self.context.check_open()
        engine = self.context.engine
        if capability(engine, NamespaceEngine) is not None:
            raise InvalidInput("a store that was opened with namespace=… sees no other one")
        return await namespaces(engine)

    # -- maintenance --------------------------------------------------------------------------------------------------

    async def prune(
        self,
        retention: Any = None,
        max_age: dt.timedelta | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Pruned:
        """Remove the checkpoints that the policy does not keep, and free what nothing needs any more.

        `retention` (or `max_age` alone) counts instead of the store's and the threads' own policies. With `dry_run`
        nothing changes; the report lists what would be deleted. `progress` is called with (done, total)."""
        return await Sweeper(self.context).prune(retention, max_age, dry_run, progress)

    async def compact(self, progress: Progress | None = None) -> Pruned:
        """Free all garbage, and return the space to the disk or the server. No checkpoint is deleted."""
        report = await Sweeper(self.context).prune("", progress=progress, all_blobs=True)
        await self.context.engine.compact()
        return report

    async def verify(self, repair: bool = False, progress: Progress | None = None) -> Verified:
        """Check every digest and chain, every pointer, every head, parent and count; the report lists the problems.
        With `repair`, damaged records are set aside, and threads go back to their newest sound checkpoint."""
        from backtrail.history.verify import verify  # large, and rarely asked for

        return await verify(self.context, repair, progress)

    async def copy_to(self, target: Context, progress: Progress | None = None) -> Copied:
        """Copy everything that another store lacks into it, and verify the copy."""
        from backtrail.history.copy import copy  # large, and rarely asked for

        return await copy(self.context, target, progress)

    async def rekey(self, key: Any) -> int:
        """Replace the key of an encrypted store: the ring is encrypted with `key`, and later writes are sealed with a
        new data key. Returns how many data keys the ring holds."""
        return await keyring.rekey(self.context, key)

    # -- the engine ---------------------------------------------------------------------------------------------------

    async def ping(self) -> None:
        """Return if the store answers; raise `Unavailable` if it does not."""
        self.context.check_open()
        await self.context.engine.ping()

    async def status(self) -> Status:
        """The state of both sides of a mirrored store: which one is active, and how far the follower is behind."""
        from backtrail.history import replication  # few stores have a replica

        return await replication.status(self.context)

    async def catch_up(self) -> Status:
        """Compare both sides of a mirrored store and copy what is missing now, instead of in the background."""
        from backtrail.history import replication  # few stores have a replica

        return await replication.catch_up(self.context)

    async def close(self) -> None:
        """Close the engine; closing twice is not an error."""
        await self.context.close()
