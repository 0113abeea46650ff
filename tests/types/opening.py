"""`backtrail.open`: its options are known by name and type, in both classes, and another name is refused."""

from datetime import timedelta
from pathlib import Path
from typing import Any, assert_type

import backtrail
import backtrail.aio
from backtrail.engines.memory import MemoryEngine
from backtrail.typing import Target


class Plan: ...


def stores(settings: dict[str, Any], where: Target) -> None:
    assert_type(backtrail.open("agents.db"), backtrail.Store)
    backtrail.open(Path("agents.db"), durability="normal", create=False, types=[Plan], compression="zstd")
    backtrail.open("memory:", types={"plan": Plan}, detect="identity", namespace="acme")
    backtrail.open(MemoryEngine(), retention=backtrail.Retention(keep_last=3))
    backtrail.open("a.db", replica=Path("b.db"), replication="async", spool="spool", on_change=print, failover=False)
    backtrail.open("redis://localhost", prefix="app", ttl=timedelta(days=1), retries=3, pool_size=10)
    backtrail.open("postgresql://localhost/db", schema="app", sslmode="require", deadline=5)
    backtrail.open("agents.db", key=[b"new", "old"])
    backtrail.open("mongo://localhost?collection=agents")  # an engine of somebody else has its options in the URL
    backtrail.open(where, **settings)

    backtrail.open("agents.db", durabilty="normal")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    backtrail.open("agents.db", durability="fast")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    backtrail.open("agents.db", types=Plan)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    backtrail.open(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    backtrail.opne("agents.db")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


async def async_stores() -> None:
    assert_type(await backtrail.aio.open("agents.db", durability="full"), backtrail.aio.AsyncStore)
    async with await backtrail.aio.open("agents.db", replica="b.db") as store:
        assert_type(store, backtrail.aio.AsyncStore)

    await backtrail.aio.open("agents.db", durabilty="normal")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
