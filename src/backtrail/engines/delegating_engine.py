"""An engine that delegates: every method calls `_ask` with the contract's method of its name.

The base of mirrors and of wrappers, which differ in the engine they call, in the handling of its errors, and in how
they write.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from backtrail.engines.base import Branch, Commit, Drop, Engine, Head, Lease, Row, Step, Taken

T = TypeVar("T")
Method = Callable[..., Coroutine[Any, Any, T]]  #: of the contract


class DelegatingEngine(Engine):
    """Implements every method by `_ask`."""

    @abstractmethod
    async def _ask(self, method: Method[T], *args: Any, **options: Any) -> T:
        """Call the method of this name on the right engine."""

    async def commit(self, commit: Commit) -> None:
        await self._ask(Engine.commit, commit)

    async def drop(self, drop: Drop) -> None:
        await self._ask(Engine.drop, drop)

    async def compact(self) -> None:
        await self._ask(Engine.compact)

    async def close(self) -> None:
        await self._ask(Engine.close)

    async def head(self, thread: str) -> Head | None:
        return await self._ask(Engine.head, thread)

    async def tip(self, thread: str) -> tuple[Head, Row | None] | None:
        return await self._ask(Engine.tip, thread)

    async def heads(self, lineage: str, *, after: str | None = None, limit: int | None = None) -> list[Head]:
        return await self._ask(Engine.heads, lineage, after=after, limit=limit)

    async def threads(
        self,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
        kind: str | None = None,
        newest_first: bool = False,
    ) -> list[Head]:
        return await self._ask(
            Engine.threads, prefix=prefix, after=after, limit=limit, kind=kind, newest_first=newest_first
        )

    async def count(self, prefix: str = "") -> int:
        return await self._ask(Engine.count, prefix)

    async def lineages(self, *, after: str | None = None, limit: int | None = None) -> list[str]:
        return await self._ask(Engine.lineages, after=after, limit=limit)

    async def branches(self, lineage: str) -> list[Branch]:
        return await self._ask(Engine.branches, lineage)

    async def row(self, lineage: str, branch: bytes, step: int) -> Row | None:
        return await self._ask(Engine.row, lineage, branch, step)

    async def steps(
        self, lineage: str, branch: bytes, first: int, last: int, *, newest: int | None = None, marked: bool = False
    ) -> list[Step]:
        return await self._ask(Engine.steps, lineage, branch, first, last, newest=newest, marked=marked)

    async def payloads(self, lineage: str, branch: bytes, first: int, last: int) -> list[tuple[int, bytes]]:
        return await self._ask(Engine.payloads, lineage, branch, first, last)

    async def rows(self, lineage: str, branch: bytes, first: int, last: int) -> list[Row]:
        return await self._ask(Engine.rows, lineage, branch, first, last)

    async def locate(self, lineage: str, low: bytes, high: bytes, limit: int) -> list[tuple[bytes, int, bytes]]:
        return await self._ask(Engine.locate, lineage, low, high, limit)

    async def blobs(self, pool: str, ids: Sequence[bytes]) -> dict[bytes, bytes]:
        return await self._ask(Engine.blobs, pool, ids)

    async def blob_ids(
        self, pool: str, *, after: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, int]]:
        return await self._ask(Engine.blob_ids, pool, after=after, limit=limit)

    async def lease(self, name: str, owner: str, ttl: float) -> Lease | Taken:
        return await self._ask(Engine.lease, name, owner, ttl)

    async def release(self, name: str, owner: str) -> bool:
        return await self._ask(Engine.release, name, owner)

    async def ping(self) -> None:
        await self._ask(Engine.ping)

    async def stats(self) -> dict[str, int]:
        return await self._ask(Engine.stats)

    async def stats_between(self, low: str, high: str | None) -> dict[str, int]:
        return await self._ask(Engine.stats_between, low, high)

    async def check(self, *, repair: bool = False) -> list[tuple[str, str]]:
        return await self._ask(Engine.check, repair=repair)


class WrappingEngine(DelegatingEngine):
    """An engine around one other engine."""

    def __init__(self, engine: Engine) -> None:
        self._inner = engine
        self.properties = engine.properties

    def unwrap(self) -> Engine:
        return self._inner

    async def _ask(self, method: Method[Any], *args: Any, **options: Any) -> Any:
        return await getattr(self._inner, method.__name__)(*args, **options)
