"""An engine that delegates: every method calls `_ask` with its own name.

The base of mirrors and of wrappers, which differ in the engine they call, in the handling of its errors, and in how
they write.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from backtrail.engines.base import Branch, Commit, Drop, Engine, Head, Lease, Row, Step, Taken


class DelegatingEngine(Engine):
    """Implements every method by `_ask`."""

    @abstractmethod
    async def _ask(self, method: str, *args: Any, **options: Any) -> Any:
        """Call the method of this name on the right engine."""

    async def commit(self, commit: Commit) -> None:
        await self._ask("commit", commit)

    async def drop(self, drop: Drop) -> None:
        await self._ask("drop", drop)

    async def compact(self) -> None:
        await self._ask("compact")

    async def close(self) -> None:
        await self._ask("close")

    async def head(self, thread: str) -> Head | None:
        found: Head | None = await self._ask("head", thread)
        return found

    async def tip(self, thread: str) -> tuple[Head, Row | None] | None:
        found: tuple[Head, Row | None] | None = await self._ask("tip", thread)
        return found

    async def heads(self, lineage: str, *, after: str | None = None, limit: int | None = None) -> list[Head]:
        found: list[Head] = await self._ask("heads", lineage, after=after, limit=limit)
        return found

    async def threads(
        self,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
        kind: str | None = None,
        newest_first: bool = False,
    ) -> list[Head]:
        found: list[Head] = await self._ask(
            "threads", prefix=prefix, after=after, limit=limit, kind=kind, newest_first=newest_first
        )
        return found

    async def count(self, prefix: str = "") -> int:
        number: int = await self._ask("count", prefix)
        return number

    async def lineages(self, *, after: str | None = None, limit: int | None = None) -> list[str]:
        found: list[str] = await self._ask("lineages", after=after, limit=limit)
        return found

    async def branches(self, lineage: str) -> list[Branch]:
        found: list[Branch] = await self._ask("branches", lineage)
        return found

    async def row(self, lineage: str, branch: bytes, step: int) -> Row | None:
        found: Row | None = await self._ask("row", lineage, branch, step)
        return found

    async def steps(
        self, lineage: str, branch: bytes, first: int, last: int, *, newest: int | None = None, marked: bool = False
    ) -> list[Step]:
        found: list[Step] = await self._ask("steps", lineage, branch, first, last, newest=newest, marked=marked)
        return found

    async def payloads(self, lineage: str, branch: bytes, first: int, last: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = await self._ask("payloads", lineage, branch, first, last)
        return found

    async def rows(self, lineage: str, branch: bytes, first: int, last: int) -> list[Row]:
        found: list[Row] = await self._ask("rows", lineage, branch, first, last)
        return found

    async def locate(self, lineage: str, low: bytes, high: bytes, limit: int) -> list[tuple[bytes, int, bytes]]:
        found: list[tuple[bytes, int, bytes]] = await self._ask("locate", lineage, low, high, limit)
        return found

    async def blobs(self, pool: str, ids: Sequence[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = await self._ask("blobs", pool, ids)
        return found

    async def blob_ids(
        self, pool: str, *, after: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, int]]:
        found: list[tuple[bytes, int]] = await self._ask("blob_ids", pool, after=after, limit=limit)
        return found

    async def lease(self, name: str, owner: str, ttl: float) -> Lease | Taken:
        answer: Lease | Taken = await self._ask("lease", name, owner, ttl)
        return answer

    async def release(self, name: str, owner: str) -> bool:
        given: bool = await self._ask("release", name, owner)
        return given

    async def ping(self) -> None:
        await self._ask("ping")

    async def stats(self) -> dict[str, int]:
        figures: dict[str, int] = await self._ask("stats")
        return figures

    async def stats_between(self, low: str, high: str | None) -> dict[str, int]:
        figures: dict[str, int] = await self._ask("stats_between", low, high)
        return figures

    async def check(self, *, repair: bool = False) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = await self._ask("check", repair=repair)
        return found
