"""The store as a whole, kept in order: pruned, compacted, measured, checked, copied, locked with a new key."""

from __future__ import annotations

import datetime as dt
from typing import Any

from backtrail.engines.capabilities import capability
from backtrail.engines.namespace import NamespaceEngine, namespaces
from backtrail.errors import Corrupt, InvalidInput
from backtrail.history import keyring
from backtrail.history.context import Context
from backtrail.history.lineage import LineageView
from backtrail.history.listing import Listing
from backtrail.history.reachability import NO_GARBAGE, Garbage, garbage
from backtrail.history.sweep import Progress, Sweeper, lineages
from backtrail.model import Copied, Pruned, Verified


class Upkeep(Listing):
    """What a store can do with everything in it."""

    async def prune(
        self,
        retention: Any = None,
        max_age: dt.timedelta | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Pruned:
        """Let go of what the policy does not keep, and free what nobody needs any more.

        `retention` (or `max_age` alone) counts instead of the store's and the threads' own policies. With `dry_run`
        nothing changes; the report says what would go. `progress` is called with (done, in all)."""
        return await Sweeper(self.context).prune(retention, max_age, dry_run, progress)

    async def compact(self, progress: Progress | None = None) -> Pruned:
        """Free everything that nobody needs, and give the space back to the disk or the server. No checkpoint goes."""
        report = await Sweeper(self.context).prune("", progress=progress, all_blobs=True)
        await self.context.engine.compact()
        return report

    async def stats(self, survey: bool = True) -> dict[str, Any]:
        """What the store holds and occupies: threads, branches, rows, blobs, bytes in all (`total`), bytes that can be
        reached (`live`) and bytes that a prune would free (`garbage`). Without `survey`, the last two are left out."""
        figures = await super().stats()
        figures["total"] = figures["bytes"]
        if survey:
            live = waste = 0
            async for lineage in lineages(self.context):
                written, found = await self._survey(lineage)
                live, waste = live + written - found.bytes - found.light, waste + found.bytes
            figures |= {"live": live, "garbage": waste}
        return figures

    async def _survey(self, lineage: str) -> tuple[int, Garbage]:
        """What the rows of a lineage say they wrote, and what of it is garbage."""
        while True:
            heads = await self.context.engine.heads(lineage)
            try:
                view = await LineageView.of(self.context, lineage)
                found = await garbage(self.context, view, set(), all_blobs=False)
            except Corrupt:
                if await self.context.engine.heads(lineage) == heads:
                    return 0, NO_GARBAGE  # for verify to tell
                continue
            return sum(seen.meta.written for rows in view.rows.values() for seen in rows), found

    async def count(self) -> int:
        """How many threads there are."""
        return int((await super().stats())["threads"])

    async def verify(self, repair: bool = False, progress: Progress | None = None) -> Verified:
        """Check every digest and chain, every pointer, every head, parent and count; the report tells what does not
        hold. With `repair`, what is damaged is set aside, and threads go back to their newest sound checkpoint."""
        from backtrail.history.verify import verify  # large, and rarely asked for

        return await verify(self.context, repair, progress)

    async def copy_to(self, target: Context, progress: Progress | None = None) -> Copied:
        """Bring everything into another store that it lacks; what was brought is verified."""
        from backtrail.history.copy import copy  # large, and rarely asked for

        return await copy(self.context, target, progress)

    async def rekey(self, key: Any) -> int:
        """Replace the key of an encrypted store: the ring is locked with `key`, and what is written from now on is
        sealed with a fresh data key. Returns how many data keys the ring holds."""
        return await keyring.rekey(self.context, key)

    async def namespaces(self) -> list[str]:
        """The namespaces of a store that was opened without one."""
        self.context.check_open()
        engine = self.context.engine
        if capability(engine, NamespaceEngine) is not None:
            raise InvalidInput("a store that was opened with namespace=… sees no other one")
        return await namespaces(engine)
