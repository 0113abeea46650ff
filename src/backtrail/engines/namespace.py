"""Namespaces: a wrapper around an engine that shows one tenant's names only.

Every name in a namespace is stored with a prefix that starts with the reserved character, which no name of a user may
start with. So neither a hostile id nor a hostile namespace can reach into another one, and a store that was opened
without a namespace simply uses its engine: it lists no reserved names, hence no namespaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from backtrail.engines.base import Branch, Commit, Drop, Engine, Fence, Head, Lease, Row, Step, Swap, Taken
from backtrail.engines.capabilities import SavesAdrift, capability
from backtrail.engines.reserved_names import NAMESPACE_END, RESERVED
from backtrail.errors import InvalidInput

MAX_NAMESPACE = 64
_PAGE = 256
_AFTER_END = chr(ord(NAMESPACE_END) + 1)


def check_namespace(value: Any) -> str:
    """Return `value` if it is a valid name of a namespace, else raise `InvalidInput`."""
    if type(value) is not str or not value:
        raise InvalidInput(f"namespace must be a str that is not empty, not {value!r}")
    if len(value) > MAX_NAMESPACE:
        raise InvalidInput(f"namespace has {len(value):,} characters, more than {MAX_NAMESPACE}: {value[:40]!r}…")
    if any(ord(character) < 32 or 0xD800 <= ord(character) < 0xE000 for character in value) or RESERVED in value:
        raise InvalidInput(f"namespace {value[:40]!r} contains a control character or half of a surrogate pair")
    return value


async def namespaces(engine: Engine) -> list[str]:
    """The namespaces of a store; `engine` is the one without a namespace."""
    found: list[str] = []
    after: str | None = RESERVED
    while names := await engine.lineages(after=after, limit=1):
        name, mark, _ = names[0][1:].partition(NAMESPACE_END)
        after = names[0]
        if mark:
            found.append(name)
            after = f"{RESERVED}{name}{NAMESPACE_END}{RESERVED * 600}"  # after everything in it: no name is that long
    return found


def in_namespace(engine: Engine, namespace: str | None) -> Engine:
    """`engine` wrapped for this namespace; the engine itself if `namespace` is None."""
    if namespace is None:
        return engine
    spool = capability(engine, SavesAdrift)
    return NamespaceEngine(engine, namespace) if spool is None else _AdriftNamespaceEngine(engine, namespace, spool)


def in_namespace_of(engine: Engine, other: Engine) -> Engine:
    """`other` in the namespace that `engine` is in, if any."""
    room = capability(engine, NamespaceEngine)
    return in_namespace(other, None if room is None else room.namespace)


def without_namespace(engine: Engine) -> Engine:
    """The inner engine of a namespace, which holds everything; else `engine` itself."""
    room = capability(engine, NamespaceEngine)
    return engine if room is None else room.inner


class NamespaceEngine(Engine):
    """One namespace of an engine."""

    def __init__(self, engine: Engine, namespace: str) -> None:
        self.inner = engine
        self.namespace = check_namespace(namespace)
        self.properties = engine.properties
        self._prefix = f"{RESERVED}{namespace}{NAMESPACE_END}"

    def unwrap(self) -> Engine:
        return self.inner

    # -- names --------------------------------------------------------------------------------------------------------

    def _add_prefix(self, head: Head) -> Head:
        return msgspec.structs.replace(head, thread=self._prefix + head.thread, lineage=self._prefix + head.lineage)

    def _cut_prefix(self, head: Head) -> Head:
        cut = len(self._prefix)
        return msgspec.structs.replace(head, thread=head.thread[cut:], lineage=head.lineage[cut:])

    def _cut_prefix_of_tip(self, found: tuple[Head, Row | None] | None) -> tuple[Head, Row | None] | None:
        return None if found is None else (self._cut_prefix(found[0]), found[1])

    # -- writing ------------------------------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> None:
        prefix = self._prefix
        swaps = [
            Swap(prefix + thread, expect, None if new is None else self._add_prefix(new))
            for thread, expect, new in commit.swaps
        ]
        branches = [
            msgspec.structs.replace(branch, lineage=prefix + branch.lineage, thread=prefix + branch.thread)
            for branch in commit.branches
        ]
        fence = commit.fence and Fence(prefix + commit.fence.name, commit.fence.token)
        await self.inner.commit(
            msgspec.structs.replace(
                commit, lineage=prefix + commit.lineage, swaps=swaps, branches=branches, fence=fence
            )
        )

    async def drop(self, drop: Drop) -> None:
        expect = [(self._prefix + thread, key) for thread, key in drop.expect]
        await self.inner.drop(msgspec.structs.replace(drop, lineage=self._prefix + drop.lineage, expect=expect))

    # -- reading ------------------------------------------------------------------------------------------------------

    async def head(self, thread: str) -> Head | None:
        head = await self.inner.head(self._prefix + thread)
        return None if head is None else self._cut_prefix(head)

    async def tip(self, thread: str) -> tuple[Head, Row | None] | None:
        return self._cut_prefix_of_tip(await self.inner.tip(self._prefix + thread))

    async def heads(self, lineage: str, *, after: str | None = None, limit: int | None = None) -> list[Head]:
        start = None if after is None else self._prefix + after
        found = await self.inner.heads(self._prefix + lineage, after=start, limit=limit)
        return [self._cut_prefix(head) for head in found]

    async def threads(
        self,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
        kind: str | None = None,
        newest_first: bool = False,
    ) -> list[Head]:
        found = await self.inner.threads(
            prefix=self._prefix + prefix,
            after=None if after is None else self._prefix + after,
            limit=limit,
            kind=kind,
            newest_first=newest_first,
        )
        return [self._cut_prefix(head) for head in found]

    async def count(self, prefix: str = "") -> int:
        return await self.inner.count(self._prefix + prefix)

    async def lineages(self, *, after: str | None = None, limit: int | None = None) -> list[str]:
        cut = len(self._prefix)
        found: list[str] = []
        last = self._prefix if after is None else self._prefix + after
        while limit is None or len(found) < limit:
            size = _PAGE if limit is None else min(_PAGE, limit - len(found))
            page = await self.inner.lineages(after=last, limit=size)
            own = [name[cut:] for name in page if name.startswith(self._prefix)]
            found += own
            if len(own) < size:  # those of other namespaces follow
                break
            last = page[-1]
        return found

    async def branches(self, lineage: str) -> list[Branch]:
        cut = len(self._prefix)
        return [
            msgspec.structs.replace(branch, lineage=branch.lineage[cut:], thread=branch.thread[cut:])
            for branch in await self.inner.branches(self._prefix + lineage)
        ]

    async def row(self, lineage: str, branch: bytes, step: int) -> Row | None:
        return await self.inner.row(self._prefix + lineage, branch, step)

    async def steps(
        self, lineage: str, branch: bytes, first: int, last: int, *, newest: int | None = None, marked: bool = False
    ) -> list[Step]:
        return await self.inner.steps(self._prefix + lineage, branch, first, last, newest=newest, marked=marked)

    async def payloads(self, lineage: str, branch: bytes, first: int, last: int) -> list[tuple[int, bytes]]:
        return await self.inner.payloads(self._prefix + lineage, branch, first, last)

    async def rows(self, lineage: str, branch: bytes, first: int, last: int) -> list[Row]:
        return await self.inner.rows(self._prefix + lineage, branch, first, last)

    async def locate(self, lineage: str, low: bytes, high: bytes, limit: int) -> list[tuple[bytes, int, bytes]]:
        return await self.inner.locate(self._prefix + lineage, low, high, limit)

    async def blobs(self, pool: str, ids: Sequence[bytes]) -> dict[bytes, bytes]:
        return await self.inner.blobs(self._prefix + pool, ids)

    async def blob_ids(
        self, pool: str, *, after: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, int]]:
        return await self.inner.blob_ids(self._prefix + pool, after=after, limit=limit)

    # -- leases -------------------------------------------------------------------------------------------------------

    async def lease(self, name: str, owner: str, ttl: float) -> Lease | Taken:
        answer = await self.inner.lease(self._prefix + name, owner, ttl)
        return answer._replace(name=name) if isinstance(answer, Lease) else answer

    async def release(self, name: str, owner: str) -> bool:
        return await self.inner.release(self._prefix + name, owner)

    # -- the store ----------------------------------------------------------------------------------------------------

    async def ping(self) -> None:
        await self.inner.ping()

    async def stats(self) -> dict[str, int]:
        return await self.stats_between("", None)

    async def stats_between(self, low: str, high: str | None) -> dict[str, int]:
        return await self.inner.stats_between(
            self._prefix + low, self._prefix[:-1] + _AFTER_END if high is None else self._prefix + high
        )

    async def check(self, *, repair: bool = False) -> list[tuple[str, str]]:
        return await self.inner.check(repair=repair)

    async def compact(self) -> None:
        await self.inner.compact()

    async def close(self) -> None:
        await self.inner.close()


class _AdriftNamespaceEngine(NamespaceEngine, SavesAdrift):
    """A namespace of a mirror with a spool: thread ids are prefixed for the spool, too."""

    def __init__(self, engine: Engine, namespace: str, spool: SavesAdrift) -> None:
        super().__init__(engine, namespace)
        self._spool = spool

    @property
    def adrift(self) -> bool:  # type: ignore[override]  # the spool's current value
        return self._spool.adrift

    async def base(self, thread: str) -> tuple[Head, Row | None] | None:
        return self._cut_prefix_of_tip(await self._spool.base(self._prefix + thread))
