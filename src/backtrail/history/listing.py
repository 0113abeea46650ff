"""The store as a whole: its threads, its counts, its health."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backtrail.engines.base import Head
from backtrail.engines.reserved import user_stats, user_threads
from backtrail.history.context import Context
from backtrail.history.records import thread_info
from backtrail.history.validation import check_limit, check_part
from backtrail.model import ThreadInfo

if TYPE_CHECKING:
    from backtrail.replicate.status import Status


async def heads_of(
    context: Context,
    prefix: str = "",
    limit: int | None = None,
    after: str | None = None,
    kind: str | None = None,
    newest_first: bool = True,
) -> list[Head]:
    """The heads of a page of threads, for a listing of any kind; every argument is looked at first."""
    context.check_open()
    check_part(prefix, "prefix")
    for value, what in ((after, "after"), (kind, "kind")):
        if value is not None:
            check_part(value, what)
    limit = check_limit(limit)
    return await user_threads(
        context.engine, prefix=prefix, limit=limit, after=after, kind=kind, newest_first=newest_first
    )


class Listing:
    """What a store answers about all of its threads."""

    def __init__(self, context: Context) -> None:
        self.context = context

    async def threads(
        self,
        prefix: str = "",
        limit: int | None = None,
        after: str | None = None,
        kind: str | None = None,
        newest_first: bool = False,
    ) -> list[ThreadInfo]:
        """Threads whose id starts with `prefix`, by id, or newest first; `after` is the last id of the page before."""
        heads = await heads_of(self.context, prefix, limit, after, kind, newest_first)
        return [thread_info(self.context.frames, head) for head in heads]

    async def count(self) -> int:
        """How many threads there are."""
        self.context.check_open()
        return (await user_stats(self.context.engine))["threads"]

    async def stats(self) -> dict[str, Any]:
        """What the store holds and occupies."""
        self.context.check_open()
        return {**await user_stats(self.context.engine), "failed_writes": self.context.failed_writes}

    async def ping(self) -> None:
        """Return if the store answers; raise `Unavailable` if it does not."""
        self.context.check_open()
        await self.context.engine.ping()

    async def status(self) -> Status:
        """How both sides of a mirrored store are, which one is active, and what the other one lacks."""
        from backtrail.history import replication  # few stores have a replica

        return await replication.status(self.context)

    async def catch_up(self) -> Status:
        """Compare both sides of a mirrored store and ship what is missing now, instead of in the background."""
        from backtrail.history import replication  # few stores have a replica

        return await replication.catch_up(self.context)

    async def close(self) -> None:
        """Close the engine; twice is no error."""
        await self.context.close()
