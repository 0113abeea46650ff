"""Namespaces: an engine around an engine that shows one tenant's names and no other's.

The name of everything in a namespace is its own name behind a prefix that starts with a reserved character, which no
name of a user may start with. So neither a hostile id nor a hostile namespace can reach into another one, and a store
that was opened without a namespace is one more room of the same kind: the one without a prefix. The reserved character
is the last one there is, so that in every listing by name the rooms come after what stands outside of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from backtrail.engines.base import (
    LAST_STEP,
    Branch,
    Commit,
    Drop,
    Engine,
    Fence,
    Head,
    Lease,
    Row,
    Step,
    Swap,
    Taken,
)
from backtrail.errors import InvalidInput

RESERVED = "\U0010ffff"
MAX_NAMESPACE = 64
_END = "\x1f"
_ALL_STEPS = (0, LAST_STEP)
_PAGE = 256


def check_namespace(value: Any) -> str:
    """`value` if it can name a namespace."""
    if type(value) is not str or not value:
        raise InvalidInput(f"namespace must be a str that is not empty, not {value!r}")
    if len(value) > MAX_NAMESPACE:
        raise InvalidInput(f"namespace has {len(value):,} characters, more than {MAX_NAMESPACE}: {value[:40]!r}…")
    if any(ord(character) < 32 or 0xD800 <= ord(character) < 0xE000 for character in value) or RESERVED in value:
        raise InvalidInput(f"namespace {value[:40]!r} contains a control character or half of a surrogate pair")
    return value


async def namespaces(engine: Engine) -> list[str]:
    """The namespaces of a store; `engine` is the one around which they are."""
    found: list[str] = []
    after: str | None = RESERVED
    while names := await engine.lineages(after=after, limit=1):
        name, mark, _ = names[0][1:].partition(_END)
        after = names[0]
        if mark:
            found.append(name)
            after = f"{RESERVED}{name}{_END}{RESERVED * 600}"  # behind everything in it: no name is that long
    return found


class NamespaceEngine(Engine):
    """One room of an engine: of the namespace, or, with None, of what is in no namespace."""

    def __init__(self, engine: Engine, namespace: str | None) -> None:
        self.inner = engine
        self.properties = engine.properties
        self.outermost = namespace is None
        self._prefix = "" if namespace is None else f"{RESERVED}{check_namespace(namespace)}{_END}"
        if namespace is None:
            # Without a prefix, only what lists has to be looked at: the rest is the inner engine's own.
            for name in _AS_THEY_ARE:
                setattr(self, name, getattr(engine, name))

    @property
    def stamp(self) -> bytes:  # type: ignore[override]  # the inner engine's word, which changes
        return self.inner.stamp

    @property
    def adrift(self) -> bool:  # type: ignore[override]  # the inner engine's word, which changes
        return self.inner.adrift

    # -- names --------------------------------------------------------------------------------------------------------

    def _head_in(self, head: Head) -> Head:
        return msgspec.structs.replace(head, thread=self._prefix + head.thread, lineage=self._prefix + head.lineage)

    def _head_out(self, head: Head) -> Head:
        cut = len(self._prefix)
        return msgspec.structs.replace(head, thread=head.thread[cut:], lineage=head.lineage[cut:]) if cut else head

    def around(self, engine: Engine) -> NamespaceEngine:
        """The same room of another engine."""
        return NamespaceEngine(engine, None if self.outermost else self._prefix[1 : -len(_END)])

    def mine(self, head: Head) -> Head | None:
        """A head of the inner engine as it is named in this room; None if it belongs elsewhere."""
        if not head.thread.startswith(self._prefix) or head.thread.startswith(RESERVED, len(self._prefix)):
            return None
        return self._head_out(head)

    # -- writing ------------------------------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> None:
        prefix = self._prefix
        swaps = [
            Swap(prefix + thread, expect, None if new is None else self._head_in(new))
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
        return None if head is None else self._head_out(head)

    async def tip(self, thread: str) -> tuple[Head, Row | None] | None:
        found = await self.inner.tip(self._prefix + thread)
        return None if found is None else (self._head_out(found[0]), found[1])

    async def base(self, thread: str) -> tuple[Head, Row | None] | None:
        found = await self.inner.base(self._prefix + thread)
        return None if found is None else (self._head_out(found[0]), found[1])

    async def heads(self, lineage: str) -> list[Head]:
        return [self._head_out(head) for head in await self.inner.heads(self._prefix + lineage)]

    async def threads(
        self,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
        kind: str | None = None,
        newest_first: bool = False,
    ) -> list[Head]:
        found: list[Head] = []
        last = None if after is None else self._prefix + after
        while limit is None or len(found) < limit:
            most = None if limit is None else limit - len(found)
            page = await self.inner.threads(
                prefix=self._prefix + prefix, after=last, limit=most, kind=kind, newest_first=newest_first
            )
            found += [self._head_out(head) for head in page if not self._hidden(head.thread)]
            if most is None or len(page) < most:
                break
            last = page[-1].thread
        return found

    def _hidden(self, name: str) -> bool:
        """Nobody lists other rooms, nor the records that a store keeps about itself."""
        cut = len(self._prefix)
        return len(name) > cut + 1 and name[cut] == RESERVED

    async def lineages(self, *, after: str | None = None, limit: int | None = None) -> list[str]:
        cut = len(self._prefix)
        if not cut:
            names = await self.inner.lineages(after=after, limit=limit)
            return [name for name in names if not self._hidden(name)]
        found: list[str] = []
        last = self._prefix if after is None else self._prefix + after
        while limit is None or len(found) < limit:
            page = await self.inner.lineages(after=last, limit=_PAGE)
            mine = [name for name in page if name.startswith(self._prefix)]
            found += [name[cut:] for name in mine if not self._hidden(name)]
            if len(mine) < _PAGE:
                break
            last = page[-1]
        return found[:limit]

    async def branches(self, lineage: str) -> list[Branch]:
        cut = len(self._prefix)
        return [
            msgspec.structs.replace(branch, lineage=branch.lineage[cut:], thread=branch.thread[cut:])
            for branch in await self.inner.branches(self._prefix + lineage)
        ]

    async def row(self, lineage: str, branch: bytes, step: int) -> Row | None:
        return await self.inner.row(self._prefix + lineage, branch, step)

    async def steps(self, lineage: str, branch: bytes, first: int, last: int) -> list[Step]:
        return await self.inner.steps(self._prefix + lineage, branch, first, last)

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

    # -- the place ----------------------------------------------------------------------------------------------------

    async def ping(self) -> None:
        await self.inner.ping()

    async def stats(self) -> dict[str, int]:
        """The inner engine's own figures while all of it is this room; else what is in this room is counted."""
        if not self._prefix:
            hidden = [head for head in await self.inner.threads(prefix=RESERVED, limit=3) if self._hidden(head.thread)]
            if len(hidden) < 2 and all(_END not in head.thread for head in hidden):
                figures = await self.inner.stats()
                return {**figures, "threads": figures["threads"] - len(hidden)}
        figures = dict.fromkeys(("threads", "branches", "rows", "blobs", "bytes"), 0)
        for lineage in await self.lineages():
            figures["threads"] += len(await self.heads(lineage))
            blobs = await self.blob_ids(lineage)
            figures["blobs"] += len(blobs)
            figures["bytes"] += sum(size for _, size in blobs)
            for branch in await self.branches(lineage):
                figures["branches"] += 1
                for row in await self.rows(lineage, branch.id, *_ALL_STEPS):
                    figures["rows"] += 1
                    figures["bytes"] += len(row.meta) + len(row.root) + len(row.payload) + len(row.mark or b"")
        return figures

    async def compact(self) -> None:
        await self.inner.compact()

    async def close(self) -> None:
        await self.inner.close()


_AS_THEY_ARE = (
    *("commit", "drop", "head", "tip", "base", "heads", "branches", "row", "steps", "payloads", "rows", "locate"),
    *("blobs", "blob_ids", "lease", "release", "ping", "compact", "close"),
)
