"""The Redis engine: one implementation, over a blocking or an asyncio client."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from backtrail.engines import conflicts
from backtrail.engines.base import Branch, Commit, Drop, Engine, Fence, Head, Lease, Properties, Row, Step, Taken
from backtrail.engines.capabilities import FailsFast
from backtrail.engines.redis import kept_sizes, keys, script_args, shard_pointers
from backtrail.engines.redis.client import Argument, BlockingClient, Script, client_for, translated
from backtrail.engines.redis.connect import Login, connect, is_cluster
from backtrail.engines.retry import LEASE_POLL, NETWORK, ONCE_MORE, RetryPolicy, landed, retry_interrupted
from backtrail.engines.server_url import check_server_url
from backtrail.errors import InvalidInput, LockTimeout, UnsupportedFormat

CLUSTER_SHARDS = 64
PAGE = 1000
#: compact() deletes a lease that expired this long ago.
LEASE_MEMORY = timedelta(days=1)

OPEN, HEAD, HEADS = map(Script, ("open_store", "head", "heads"))
APPEND, COMMIT = (Script(name, "kept_sizes", "ages") for name in ("append_row", "commit"))
DROP = Script("drop", "kept_sizes")
BRANCHES, ROWS, LOCATE = map(Script, ("branches", "rows", "locate"))
LIST = Script("list_threads", "ages")
BLOBS, BLOB_IDS, LEASE, RELEASE, TOKEN = map(Script, ("blobs", "blob_ids", "lease", "release", "newest_token"))
COMPACT, COUNT = map(Script, ("compact", "count"))


class RedisEngine(Engine, FailsFast):
    """A store on Redis.

    `url` is redis://, rediss://, unix://, redis+cluster:// or redis+sentinel://; or pass a `client` of redis-py, which
    you close yourself. With `ttl` (seconds or a timedelta), a lineage expires that long after its last commit. `lock`
    takes a lease around each commit: not needed for safety, which compare-and-swap provides, but it makes writers queue
    instead of conflict.
    """

    def __init__(
        self,
        url: str = "redis://localhost:6379/0",
        *,
        client: Any = None,
        asynchronous: bool = False,
        prefix: str = "backtrail",
        ttl: float | timedelta | None = None,
        shards: int | None = None,
        username: str | None = None,
        password: str | None = None,
        db: int | None = None,
        pool_size: int = 50,
        min_idle: int = 0,
        connect_timeout: float = 5.0,
        read_timeout: float = 5.0,
        write_timeout: float | None = None,
        retries: int = 8,
        backoff: float = 0.05,
        deadline: float = 20.0,
        lock: bool = False,
        lock_timeout: float = 10.0,
        lock_expiry: float = 30.0,
        ssl_ca_certs: str = "",
        ssl_certfile: str = "",
        ssl_keyfile: str = "",
        ssl_cert_reqs: str = "",
    ) -> None:
        self._prefix = keys.checked_prefix(prefix)
        self._ttl = _milliseconds(ttl)
        if shards is not None and shards < 1:
            raise InvalidInput(f"shards must be at least 1, not {shards}")
        self._wanted_shards = shards
        self._min_idle = min(min_idle, pool_size)
        self._retries = RetryPolicy(retries, backoff, deadline)
        self._lock = (lock_timeout, lock_expiry) if lock else None
        if client is None:
            tls = {
                "ssl_ca_certs": ssl_ca_certs,
                "ssl_certfile": ssl_certfile,
                "ssl_keyfile": ssl_keyfile,
                "ssl_cert_reqs": ssl_cert_reqs,
            }
            given = {name: value for name, value in tls.items() if value}
            login = Login(username, password, db, pool_size, connect_timeout, read_timeout, write_timeout, given)
            check_server_url(url)
            self._cluster = is_cluster(url)
            self._one_server = not self._cluster and "+sentinel:" not in url
            with translated():
                self._client = client_for(connect(url, login, asynchronous=asynchronous), login)
        else:
            self._cluster = hasattr(client, "get_node_from_key")
            self._one_server = False  # unknown
            self._client = client_for(_raw(client), None)
        # Such clients may repeat a call by themselves, so any refusal may be caused by our own first attempt.
        self._repeats_unseen = self._cluster or client is not None
        self._shards: keys.Shards | None = None
        self._closed = False
        self.properties = Properties(
            name="redis", blocking=isinstance(self._client, BlockingClient), durable=True, shared=True
        )

    # -- calls --------------------------------------------------------------------------------------------------

    async def _ready(self) -> keys.Shards:
        if self._closed:
            raise conflicts.closed("Redis")
        if self._shards is not None:
            return self._shards
        wanted = self._wanted_shards or (CLUSTER_SHARDS if self._cluster else 1)
        first = keys.Shards(self._prefix, 1).key(0)
        attempt = partial(self._client.run, OPEN, first, [keys.FORMAT, wanted])
        answer, _ = await retry_interrupted(attempt, self._retries, self._client.sleep, self._fail_fast_if)
        written, count = map(int, answer)
        if written > keys.FORMAT:
            raise UnsupportedFormat(
                f"the store under {self._prefix!r} was written by a newer backtrail: install that one"
            )
        if written < keys.FORMAT:
            raise UnsupportedFormat(
                f"the store under {self._prefix!r} has format {written}, which this backtrail does not read any more: "
                "copy it into a file with the one that wrote it, and from there to another prefix with this one"
            )
        if self._wanted_shards not in (None, count):
            raise InvalidInput(f"the store under {self._prefix!r} has {count} shards: copy it to change that")
        if self._min_idle and not self._cluster:
            await retry_interrupted(partial(self._client.warm, self._min_idle), self._retries, self._client.sleep)
        self._shards = keys.Shards(self._prefix, count)
        return self._shards

    async def _call(self, script: Script, shard: int, args: Sequence[Argument]) -> tuple[Any, bool]:
        shards = self._shards or await self._ready()
        attempt = partial(self._client.run, script, shards.key(shard), args)
        return await retry_interrupted(attempt, self._retries, self._client.sleep, self._fail_fast_if)

    @property
    def _fail_fast_if(self) -> Callable[[], bool] | None:
        """The mirror's `fail_fast`, if there is a single server and the user chose no limits. With several servers
        another one may take over, and chosen limits are kept."""
        return self.fail_fast if self._one_server and self._retries == NETWORK else None

    async def _run(self, script: Script, shard: int, args: Sequence[Argument]) -> Any:
        return (await self._call(script, shard, args))[0]

    async def _of(self, name: str, script: Script, *args: Argument) -> Any:
        """Run a script in the shard of `name`, with `name` as the first argument."""
        shards = self._shards or await self._ready()
        return await self._run(script, shards.of(name), [name, *args])

    # -- writing ------------------------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> None:
        if self._lock is None:
            return await self._commit(commit)
        name, owner = f"commit:{commit.lineage}", secrets.token_hex(16)
        lease = await self._wait_for(name, owner, *self._lock)
        try:
            return await self._commit(
                commit if commit.fence else msgspec.structs.replace(commit, fence=Fence(name, lease.token))
            )
        finally:
            await self.release(name, owner)

    async def _wait_for(self, name: str, owner: str, timeout: float, expiry: float) -> Lease:
        waited, looks = 0.0, 0
        while isinstance(answer := await self.lease(name, owner, expiry), Taken):
            if waited >= timeout:
                raise LockTimeout(name, timeout, answer.owner)
            pause = LEASE_POLL.pause(looks)
            await self._client.sleep(pause)
            waited, looks = waited + pause, looks + 1
        return answer

    async def _commit(self, commit: Commit) -> None:
        shards = self._shards or await self._ready()
        here, lost = shards.of(commit.lineage), self._repeats_unseen
        short = script_args.of_append(shards, commit, self._ttl)
        if short:
            answer, again = await self._call(APPEND, here, short)
            if answer == b"OK":
                return
            lost = lost or again
            if answer[0] != b"more":
                await self._refuse(commit, answer, lost)
                return
        fence = commit.fence
        if fence and shards.of(fence.name) != here and int(await self._of(fence.name, TOKEN)) != fence.token:
            raise conflicts.fence_stale(fence)
        versions = await shard_pointers.set_pointers(self._run, shards, commit)
        while True:
            answer, again = await self._call(COMMIT, here, script_args.of_commit(shards, commit, versions, self._ttl))
            if answer == b"OK":
                return
            lost = lost or again
            if answer[0] == b"elsewhere":
                await shard_pointers.delete_pointer(self._run, shards, answer[1].decode(), answer[2])
            elif answer[0] == b"blocked":
                thread = answer[1].decode()
                versions[thread] = await shard_pointers.set_pointer(
                    self._run, shards, thread, commit.lineage, anew=True
                )
            else:
                await self._refuse(commit, answer, lost)
                return

    async def _refuse(self, commit: Commit, answer: list[bytes], lost: bool) -> None:
        """Raise the reason for a refused commit, unless it was refused because an earlier attempt had succeeded."""
        if not (lost and await landed(self, commit)):
            raise script_args.refusal(commit, answer)

    async def drop(self, drop: Drop) -> None:
        if not await self._of(drop.lineage, DROP, *script_args.of_drop(drop)):
            raise conflicts.swept_meanwhile(drop.lineage)

    # -- reading ------------------------------------------------------------------------------------------------

    async def _head(self, thread: str, with_row: int) -> list[Any] | None:
        shards = self._shards or await self._ready()
        answer = await self._run(HEAD, shards.of(thread), [thread, b"", with_row])
        if answer[0] and not answer[1]:
            shard, _, lineage = answer[0].split(b":", 2)
            if int(shard) != shards.of(thread):
                answer = await self._run(HEAD, int(shard), [thread, lineage, with_row])
        return answer if answer[1] else None

    async def head(self, thread: str) -> Head | None:
        found = await self._head(thread, 0)
        return None if found is None else keys.unpack_head(thread.encode(), found[1])

    async def tip(self, thread: str) -> tuple[Head, Row | None] | None:
        found = await self._head(thread, 1)
        if found is None:
            return None
        head = keys.unpack_head(thread.encode(), found[1])
        return head, None if found[2] is None else _row(head.step, *found[2:])

    async def heads(self, lineage: str, *, after: str | None = None, limit: int | None = None) -> list[Head]:
        page = () if limit is None else (b"-" if after is None else b"(" + after.encode(), limit)
        answer = await self._of(lineage, HEADS, *page)
        found = (head for head in _heads(answer) if after is None or head.thread > after)
        return sorted(found, key=lambda head: head.thread)[slice(limit)]

    async def threads(
        self,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
        kind: str | None = None,
        newest_first: bool = False,
    ) -> list[Head]:
        shards = self._shards or await self._ready()
        if kind == "" or limit == 0:
            return []
        position: tuple[Argument, Argument] = ("", "")
        if newest_first and after is not None:
            last = await self.head(after)
            if last is None:
                return []
            position = (last.updated, last.thread)
        found: list[Head] = []
        while True:
            size = PAGE if limit is None else min(PAGE, limit - len(found))
            how = ("age", *position) if newest_first else ("name", *_between(prefix, after))
            page: list[Head] = []
            for shard in range(shards.count):
                page += _heads(await self._run(LIST, shard, [kind or "", prefix, size, shard, *how]))
            # Each sorted set returned its first ones, so the first ones overall are among them.
            page.sort(key=lambda head: (head.updated, head.thread) if newest_first else head.thread)
            page = (page[::-1] if newest_first else page)[:size]
            found += page
            if len(page) < size or len(found) == limit:
                return found
            after, position = page[-1].thread, (page[-1].updated, page[-1].thread)

    async def count(self, prefix: str = "") -> int:
        shards = self._shards or await self._ready()
        if not prefix:
            return (await kept_sizes.total(self._run, shards))[0]
        found = 0
        for shard in range(shards.count):
            there = await self._run(COUNT, shard, _between(prefix, None))
            if there < 0:
                return await super().count(prefix)
            found += there
        return found

    async def lineages(self, *, after: str | None = None, limit: int | None = None) -> list[str]:
        shards = self._shards or await self._ready()
        found: list[str] = []
        while limit is None or len(found) < limit:
            size = PAGE if limit is None else min(PAGE, limit - len(found))
            low = b"-" if after is None else b"(" + after.encode()
            page: list[bytes] = []
            for shard in range(shards.count):
                page += await self._run(kept_sizes.LINEAGES, shard, [low, size, b"+"])
            names = [name.decode() for name in sorted(page)[:size]]
            found += names
            if len(names) < size:
                break
            after = names[-1]
        return found

    async def branches(self, lineage: str) -> list[Branch]:
        flat = await self._of(lineage, BRANCHES)
        numbered = [keys.unpack_branch(lineage, *pair) for pair in zip(flat[::2], flat[1::2], strict=True)]
        return [branch for _, branch in sorted(numbered, key=lambda pair: pair[0])]

    async def _parts(
        self,
        lineage: str,
        branch: bytes,
        first: int,
        last: int,
        *parts: str,
        newest: int | None = None,
        marked: bool = False,
    ) -> list[tuple[Any, ...]]:
        flat = await self._of(lineage, ROWS, branch, first, last, "" if newest is None else newest, int(marked), *parts)
        width = len(parts) + 1
        return list(zip(*(flat[n::width] for n in range(width)), strict=True))

    async def row(self, lineage: str, branch: bytes, step: int) -> Row | None:
        for found in await self._parts(lineage, branch, step, step, "rows", "marks"):
            return _row(*found)
        return None

    async def steps(
        self, lineage: str, branch: bytes, first: int, last: int, *, newest: int | None = None, marked: bool = False
    ) -> list[Step]:
        parts = await self._parts(lineage, branch, first, last, "lights", "marks", newest=newest, marked=marked)
        return [Step(step, *keys.unpack_row(light)[:3], mark) for step, light, mark in parts]

    async def payloads(self, lineage: str, branch: bytes, first: int, last: int) -> list[tuple[int, bytes]]:
        parts = await self._parts(lineage, branch, first, last, "payloads")
        return [(step, payload or b"") for step, payload in parts]

    async def rows(self, lineage: str, branch: bytes, first: int, last: int) -> list[Row]:
        return [_row(*found) for found in await self._parts(lineage, branch, first, last, "rows", "marks", "payloads")]

    async def locate(self, lineage: str, low: bytes, high: bytes, limit: int) -> list[tuple[bytes, int, bytes]]:
        while (found := await self._of(lineage, LOCATE, low, high, limit)) == b"MORE":
            continue
        return [(member[16:32], int(member[32:]), member[:16]) for member in found]

    async def blobs(self, pool: str, ids: Sequence[bytes]) -> dict[bytes, bytes]:
        found = await self._of(pool, BLOBS, *ids)
        return {name: data for name, data in zip(ids, found, strict=True) if data is not None}

    async def blob_ids(
        self, pool: str, *, after: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, int]]:
        flat = await self._of(pool, BLOB_IDS, b"-" if after is None else b"(" + after, -1 if limit is None else limit)
        return list(zip(flat[::2], flat[1::2], strict=True))

    # -- leases -------------------------------------------------------------------------------------------------

    async def lease(self, name: str, owner: str, ttl: float) -> Lease | Taken:
        given, who, expires = await self._of(name, LEASE, owner, round(ttl * 1_000_000))
        return Lease(name, owner, int(who), int(expires)) if given else Taken(who.decode(), int(expires))

    async def release(self, name: str, owner: str) -> bool:
        shards = self._shards or await self._ready()
        given_back, lost = await self._call(RELEASE, shards.of(name), [name, owner])
        # After a lost answer, "not the owner" means that the first attempt released it.
        return bool(given_back) or lost

    # -- the store ----------------------------------------------------------------------------------------------

    async def ping(self) -> None:
        await self._ready()
        await retry_interrupted(self._client.ping, ONCE_MORE, self._client.sleep)

    async def stats(self) -> dict[str, int]:
        """The usual figures. `bytes` is an estimate: the bytes of the records and what Redis usually adds to them."""
        return kept_sizes.figures(await kept_sizes.total(self._run, self._shards or await self._ready()))

    async def stats_between(self, low: str, high: str | None) -> dict[str, int]:
        bounds = b"[" + low.encode(), b"+" if high is None else b"(" + high.encode()
        return kept_sizes.figures(await kept_sizes.count(self._run, self._shards or await self._ready(), *bounds))

    async def check(self, *, repair: bool = False) -> list[tuple[str, str]]:
        return await kept_sizes.check(self._run, self._shards or await self._ready(), repair=repair)

    async def compact(self) -> None:
        shards = self._shards or await self._ready()
        memory = round(LEASE_MEMORY.total_seconds() * 1_000_000)
        for shard in range(shards.count):
            for what in "branches", "leases":
                cursor = b"0"
                while (cursor := await self._run(COMPACT, shard, [what, cursor, memory])) != b"0":
                    continue
        # Listing also removes index entries of expired lineages.
        thread: str | None = None
        while page := await self.threads(after=thread, limit=PAGE):
            thread = page[-1].thread
        lineage: str | None = None
        while names := await self.lineages(after=lineage, limit=PAGE):
            lineage = names[-1]

    async def close(self) -> None:
        if not self._closed:
            self._closed, self._shards = True, None
            await self._client.close()


def _heads(flat: list[bytes]) -> list[Head]:
    return [keys.unpack_head(thread, packed) for thread, packed in zip(flat[::2], flat[1::2], strict=True)]


def _between(prefix: str, after: str | None) -> tuple[bytes, bytes]:
    """The bounds for ZRANGEBYLEX; no byte of UTF-8 is as high as 0xff."""
    start = prefix.encode()
    low = b"(" + after.encode() if after is not None and after >= prefix else b"[" + start if start else b"-"
    return low, b"(" + start + b"\xff" if start else b"+"


def _row(step: int, packed: bytes, mark: bytes | None, payload: bytes | None = None) -> Row:
    name, meta, digest, root = keys.unpack_row(packed)
    return Row(step, name, meta, digest, mark, root, payload or b"")


def _milliseconds(ttl: float | timedelta | None) -> int:
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    if seconds is not None and seconds <= 0:
        raise InvalidInput(f"ttl must be positive, not {ttl}")
    return 0 if seconds is None else max(1, round(seconds * 1000))


def _raw(client: Any) -> Any:
    """The client, if it returns bytes as bytes; else `InvalidInput`."""
    if client.get_encoder().decode_responses:
        raise InvalidInput("this Redis client decodes its answers: make it with decode_responses=False")
    return client
