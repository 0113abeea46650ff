"""The PostgreSQL engine: one implementation, over a blocking or an asyncio client."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import psycopg
import psycopg.conninfo
from psycopg.abc import Params

from backtrail.engines import conflicts
from backtrail.engines.base import Branch, Commit, Drop, Engine, Fence, Head, Lease, Properties, Row, Step, Taken
from backtrail.engines.capabilities import FailsFast
from backtrail.engines.conflicts import Refused
from backtrail.engines.postgres.client import AsyncClient, BlockingClient, ConnectionOptions, Rows, Run, Statement
from backtrail.engines.postgres.schema import Schema, newest
from backtrail.engines.reserved_names import namespace_of
from backtrail.engines.retry import NETWORK, ONCE_MORE, RetryPolicy, landed, retry_interrupted
from backtrail.engines.server_url import check_server_url, public_url
from backtrail.engines.tls import checked_files
from backtrail.errors import InvalidInput, LockLost

#: Seconds that a statement may take that reads or rewrites the whole store.
LONG = 3600.0
_COUNTED = ("threads", "branches", "rows", "blobs")

#: The types of the parameters of the function append(): text, bytea and bigint, as pg_type numbers them.
_TEXT, _BYTES, _NUMBER = 25, 17, 20
_APPEND = (
    *(_TEXT, _TEXT, _BYTES, _NUMBER, _NUMBER),
    *(_BYTES, _BYTES, _NUMBER, _NUMBER, _TEXT, _NUMBER, _NUMBER, _NUMBER, _NUMBER, _BYTES),
    *(_BYTES, _NUMBER, _BYTES, _BYTES, _BYTES, _BYTES, _BYTES),
    *(_TEXT, _NUMBER),
)
_number = struct.Struct(">q").pack


class PostgresEngine(Engine, FailsFast):
    """A store in one schema of a PostgreSQL database.

    `prepare` lets the server keep prepared statements, which saves some time in each call but needs connections whose
    session no pooler switches. The options from `application_name` on are libpq's own.
    """

    def __init__(
        self,
        url: str,
        *,
        asynchronous: bool = False,
        schema: str = "backtrail",
        pool_size: int = 10,
        min_idle: int = 0,
        connect_timeout: float = 5.0,
        read_timeout: float = 30.0,
        retries: int = 8,
        backoff: float = 0.05,
        deadline: float = 20.0,
        prepare: bool = False,
        application_name: str = "backtrail",
        sslmode: str = "",
        sslrootcert: str = "",
        sslcert: str = "",
        sslkey: str = "",
        target_session_attrs: str = "",
    ) -> None:
        if pool_size < 1:
            raise InvalidInput(f"pool_size must be at least 1, not {pool_size}")
        libpq = {
            "application_name": application_name,
            "sslmode": sslmode,
            "sslrootcert": sslrootcert,
            "sslcert": sslcert,
            "sslkey": sslkey,
            "target_session_attrs": target_session_attrs,
        }
        given = {name: value for name, value in libpq.items() if value}
        checked_files({name: given.get(name, "") for name in ("sslrootcert", "sslcert", "sslkey")})
        if "://" in url:  # else `name=value …`, which libpq knows as well
            check_server_url(url)
        try:
            hosts = psycopg.conninfo.conninfo_to_dict(url, **given).get("host") or ""
        except psycopg.Error:  # its text quotes the URL, password and all
            raise InvalidInput(
                f"{public_url(url)!r} is not the URL of a PostgreSQL database: "
                "write postgresql://user:password@host:port/database, special characters as %XX"
            ) from None
        options = ConnectionOptions(url, pool_size, connect_timeout, read_timeout, prepare, given)
        self._client = AsyncClient(options) if asynchronous else BlockingClient(options)
        self._schema = Schema(schema)
        self._append = Statement(self._schema["append"], _APPEND)
        self._retries = RetryPolicy(retries, backoff, deadline)
        self._one_server = "," not in str(hosts)
        self._min_idle = min(min_idle, pool_size)
        self._ready = False
        self._closed = False
        self.properties = Properties(name="postgres", blocking=not asynchronous, durable=True, shared=True)

    # -- calls --------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        if self._closed:
            raise conflicts.closed("PostgreSQL")
        if not self._ready:
            await self._prepare()

    async def _prepare(self) -> None:
        async def once() -> None:
            # Reading the format first needs no lock and no privilege to create anything.
            if await self._schema.format(self._client.run) != newest():
                await self._client.transaction(self._schema.prepare)

        await retry_interrupted(once, self._retries, self._client.sleep, self._fail_fast_if)
        if self._min_idle:
            await retry_interrupted(partial(self._client.warm, self._min_idle), self._retries, self._client.sleep)
        self._ready = True

    async def _call(self, query: str, params: Params) -> tuple[Rows, bool]:
        await self._open()
        run = partial(self._client.run, self._schema[query], params)
        return await retry_interrupted(run, self._retries, self._client.sleep, self._fail_fast_if)

    @property
    def _fail_fast_if(self) -> Callable[[], bool] | None:
        """The mirror's `fail_fast`, if there is a single server and the user chose no limits. With several servers
        another one may take over, and chosen limits are kept."""
        return self.fail_fast if self._one_server and self._retries == NETWORK else None

    async def _change(self, call: Callable[[], Awaitable[Any]]) -> tuple[psycopg.Error | None, bool]:
        """Call a function that may refuse. Returns the refusal, if any, and True if an earlier answer may have been
        lost."""

        async def attempt() -> psycopg.Error | None:
            try:
                await call()
            except psycopg.Error as refused:
                return refused
            return None

        await self._open()
        return await retry_interrupted(attempt, self._retries, self._client.sleep, self._fail_fast_if)

    async def _ask(self, query: str, *params: Any) -> Rows:
        return (await self._call(query, params))[0]

    # -- writing ------------------------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> None:
        short = _of_append(commit)
        refused, lost = await self._change(
            partial(self._client.execute_prepared, self._append, short)
            if short
            else partial(self._client.run, self._schema["commit"], _of_commit(commit))
        )
        if refused is not None and not (lost and await landed(self, commit)):
            raise _refusal(refused, commit.lineage, commit.fence)

    async def drop(self, drop: Drop) -> None:
        heads = [[thread, *key] for thread, key in drop.expect]
        params = [
            drop.lineage,
            *_columns(heads, 4),
            *_columns(drop.rows, 2),
            *_columns(drop.bodies, 2),
            list(drop.branches) or None,
            list(drop.blobs) or None,
        ]
        refused, _ = await self._change(partial(self._client.run, self._schema["drop"], params))
        if refused is not None:
            raise _refusal(refused, drop.lineage, None)

    # -- reading ------------------------------------------------------------------------------------------------

    async def head(self, thread: str) -> Head | None:
        found = await self._ask("head", thread)
        return Head(*found[0]) if found else None

    async def tip(self, thread: str) -> tuple[Head, Row | None] | None:
        found = await self._ask("tip", thread)
        if not found:
            return None
        head, row = found[0][:12], (*found[0][12:], b"")
        return Head(*head), None if row[0] is None else Row._make(row)

    async def heads(self, lineage: str, *, after: str | None = None, limit: int | None = None) -> list[Head]:
        return [Head(*found) for found in await self._ask("heads", lineage, after or "", limit)]

    async def threads(
        self,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
        kind: str | None = None,
        newest_first: bool = False,
    ) -> list[Head]:
        params = {"low": prefix, "high": _beyond(prefix), "after": after, "limit": limit}
        if kind is not None:
            params["kind"] = kind
        if newest_first:
            params["namespace"] = namespace_of(prefix)
        query = "newest" if newest_first else "threads"
        found, _ = await self._call(query if kind is None else f"{query}_of_kind", params)
        return [Head(*columns) for columns in found]

    async def count(self, prefix: str = "") -> int:
        if not prefix:
            return int((await self._ask("count"))[0][0])
        found, _ = await self._call("count_named", {"low": prefix, "high": _beyond(prefix)})
        return int(found[0][0])

    async def lineages(self, *, after: str | None = None, limit: int | None = None) -> list[str]:
        found, _ = await self._call("lineages", {"after": after or "", "limit": limit})
        return [name for (name,) in found]

    async def branches(self, lineage: str) -> list[Branch]:
        return [
            Branch(name, lineage, thread, owner, None if origin is None else (origin, step), seal)
            for name, thread, owner, origin, step, seal in await self._ask("branches", lineage)
        ]

    async def row(self, lineage: str, branch: bytes, step: int) -> Row | None:
        found = await self._ask("row", lineage, branch, step)
        return Row(*found[0]) if found else None

    async def steps(
        self, lineage: str, branch: bytes, first: int, last: int, *, newest: int | None = None, marked: bool = False
    ) -> list[Step]:
        query = "marked_steps" if marked else "steps" if newest is None else "newest_steps"
        found = await self._ask(query, branch, lineage, first, last, *([newest] if query == "newest_steps" else ()))
        if query == "newest_steps":
            found = found[::-1]
        return [Step(*columns) for columns in (found if newest is None else found[max(0, len(found) - newest) :])]

    async def payloads(self, lineage: str, branch: bytes, first: int, last: int) -> list[tuple[int, bytes]]:
        return await self._ask("payloads", branch, lineage, first, last)

    async def rows(self, lineage: str, branch: bytes, first: int, last: int) -> list[Row]:
        return list(map(Row._make, await self._ask("rows", branch, lineage, first, last)))

    async def locate(self, lineage: str, low: bytes, high: bytes, limit: int) -> list[tuple[bytes, int, bytes]]:
        return await self._ask("locate", lineage, low, high, limit)

    async def blobs(self, pool: str, ids: Sequence[bytes]) -> dict[bytes, bytes]:
        found = await self._ask("blobs", pool, list(ids) or None)
        return dict(found)

    async def blob_ids(
        self, pool: str, *, after: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, int]]:
        found, _ = await self._call("blob_ids", {"pool": pool, "after": after, "limit": limit})
        return found

    # -- leases -------------------------------------------------------------------------------------------------

    async def lease(self, name: str, owner: str, ttl: float) -> Lease | Taken:
        ((given, has, token, until),) = await self._ask("lease", name, owner, round(ttl * 1_000_000))
        return Lease(name, owner, token, until) if given else Taken(has, until)

    async def release(self, name: str, owner: str) -> bool:
        given_back, lost = await self._call("release", [name, owner])
        # After a lost answer, "not the owner" means that the first attempt released it.
        return bool(given_back) or lost

    # -- the store ----------------------------------------------------------------------------------------------

    async def ping(self) -> None:
        await self._open()
        await retry_interrupted(partial(self._client.run, self._schema["ping"]), ONCE_MORE, self._client.sleep)

    async def stats(self) -> dict[str, int]:
        (counts,) = await self._ask("stats", self._schema.name)
        return dict(zip((*_COUNTED, "bytes"), counts, strict=True))

    async def stats_between(self, low: str, high: str | None) -> dict[str, int]:
        await self._open()
        (counts,) = await self._client.run(self._schema["stats_between"], {"low": low, "high": high}, LONG)
        return dict(zip((*_COUNTED, "bytes"), counts, strict=True))

    async def check(self, *, repair: bool = False) -> list[tuple[str, str]]:
        await self._open()
        (found,) = await self._client.run(self._schema["compare_counts"], None, LONG)
        problems = [
            (f"the number of {what}", f"{kept} are recorded, and {there} are there")
            for what, there, kept in zip(_COUNTED, found[::2], found[1::2], strict=True)
            if kept != there
        ]
        if repair and problems:
            await self._client.transaction(self._recount, LONG)
        return problems

    async def _recount(self, run: Run) -> None:
        for query in "lock_counts", "forget_counts", "recount":
            await run(self._schema[query], None)

    async def compact(self) -> None:
        await self._ask("fold_counts")
        await self._client.run(self._schema["vacuum"], None, LONG)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._client.close()


def _columns(records: Sequence[Sequence[Any]], width: int) -> list[list[Any] | None]:
    """Records as columns, the form of a function's arguments; NULLs if there are no records."""
    return [list(column) for column in zip(*records, strict=True)] if records else [None] * width


def _of_append(commit: Commit) -> list[bytes | None] | None:
    """Arguments of append(), for a commit that only adds one row after the head and moves the head to it; else None."""
    if len(commit.rows) != 1 or len(commit.swaps) != 1:
        return None
    if commit.branches or commit.marks or commit.blobs:
        return None
    fence = commit.fence
    row, (thread, expect, new) = commit.rows[0], commit.swaps[0]
    if expect is None or new is None:
        return None
    return [
        *(commit.lineage.encode(), thread.encode(), expect[0], _number(expect[1]), _number(expect[2])),
        *(new.owner, new.branch, _number(new.step), _number(new.version), new.kind.encode()),
        *(_number(new.created), _number(new.updated), _number(new.count), _number(new.size), new.note),
        *(row.branch, _number(row.step), row.id, row.meta, row.digest, row.root, row.payload),
        *((None, None) if fence is None else (fence.name.encode(), _number(fence.token))),
    ]


def _of_commit(commit: Commit) -> list[Any]:
    """Arguments of commit(), for any commit."""
    fence = commit.fence
    branches = [(b.id, b.thread, b.owner, *(b.origin or (b"", 0)), b.seal) for b in commit.branches]
    marks = [(mark.branch, mark.step, mark.data is not None, mark.data or b"") for mark in commit.marks]
    swaps = [
        (
            thread,
            *(expect or (b"", 0, 0)),
            new is None,
            *(_GONE if new is None else _new_head(new)),
        )
        for thread, expect, new in commit.swaps
    ]
    return [
        commit.lineage,
        fence and fence.name,
        fence and fence.token,
        *_columns(branches, 6),
        *_columns(commit.rows, 7),
        *_columns(marks, 4),
        *_columns(list(commit.blobs.items()), 2),
        *_columns(swaps, 15),
    ]


def _new_head(head: Head) -> tuple[Any, ...]:
    return (
        head.owner,
        head.branch,
        head.step,
        head.version,
        head.kind,
        head.created,
        head.updated,
        head.count,
        head.size,
        head.note,
    )


_GONE = (b"", b"", 0, 0, "", 0, 0, 0, 0, b"")


def _beyond(prefix: str) -> str | None:
    """The least text, by code points, that is greater than every text that begins with `prefix`; None if there is
    none."""
    for end in range(len(prefix), 0, -1):
        last = ord(prefix[end - 1])
        if last < 0x10FFFF:
            # Only surrogates are between these two, and no text contains them.
            return prefix[: end - 1] + chr(0xE000 if last == 0xD7FF else last + 1)
    return None


def _refusal(error: psycopg.Error, lineage: str, fence: Fence | None) -> Refused | LockLost:
    reason, fact = error.diag.message_hint or "", error.diag.message_detail or ""
    if reason == "moved":
        return conflicts.moved(fact)
    if reason == "step":
        branch, step = fact.split(" ")
        return conflicts.step_taken(lineage, bytes.fromhex(branch), int(step))
    if reason == "branch":
        return conflicts.branch_taken(lineage, bytes.fromhex(fact))
    if reason == "gone":
        return conflicts.branch_gone(lineage, bytes.fromhex(fact))
    if reason == "swept":
        return conflicts.swept_meanwhile(lineage)
    return conflicts.fence_stale(fence or Fence(fact, 0))
