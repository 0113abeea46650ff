"""The engine contract: everything that backtrail needs from a storage backend.

An engine knows nothing of states, messages or types. It keeps five kinds of record, all of them small and flat:

* **branch**: which thread started it, and the row it continues (`origin`). Written once.
* **row**: one step of a branch, in four parts: `meta`, `root`, `payload`, `digest`. Written once, never changed.
* **head**: the position that a thread is at. The only record that moves, and only by compare-and-swap.
* **mark**: an annotation or a deletion of a row. Only the newest one counts.
* **blob**: bytes named by their hash, in a pool. Written once; writing it again changes nothing.

Every byte string is opaque and already framed with a checksum by the layers above: an engine returns exactly what it
was given, or raises. Everything that belongs to one *lineage* (a thread and its forks) may be kept in one shard; a
commit never spans two lineages.

All methods are `async def`. An engine whose `properties.blocking` is true never suspends in them (it does its I/O in
place, and is safe to call from several threads at once); any other engine awaits its client and is used from one event
loop. A store that cannot be used (closed, full, read-only, unreachable) raises `Unavailable`, with the driver's error
as `__cause__`; such a call may be repeated. A change that does not fit the stored data raises `Refused`.

Features that only some engines have are declared in `capabilities`, and found with `capability()`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

COUNTED = 1000  #: heads or lineages in a page, where an engine does not count them itself
LAST_STEP = 2**32 - 1  #: the highest number that a step can have
_CHANGES = 2**32  # the lower bits of a version count changes, those above them are the generation

#: The address of a row: (branch id, step). Rows never move, so a position names the same row for as long as it exists.
Position = tuple[bytes, int]
#: Compared by the compare-and-swap of a head: (branch id, step, version). No key ever occurs twice in a store.
HeadKey = tuple[bytes, int, int]


class Branch(msgspec.Struct, frozen=True, gc=False):
    """An append-only log of steps. Its first step is `origin[1] + 1`, or 1 without an origin."""

    id: bytes  #: 16 random bytes, unique everywhere
    lineage: str
    thread: str  #: the thread that wrote it
    owner: bytes  #: 16 bytes: the incarnation of that thread; a thread that is deleted and created again gets another
    origin: Position | None = None  #: the row that the first row follows
    seal: bytes = b""  #: opaque to the engine: binds the other fields to each other


class Head(msgspec.Struct, frozen=True, gc=False):
    """The position that a thread is at, and the fields that a listing of threads shows."""

    thread: str
    lineage: str
    owner: bytes
    branch: bytes
    step: int
    version: int  #: grows at each change of this record; see `next_version`
    kind: str  #: "thread", "session", "run", "workspace", …
    created: int  #: microseconds since 1970
    updated: int
    count: int  #: checkpoints that the thread itself wrote
    size: int  #: encoded bytes of the state at the head
    note: bytes = b""  #: opaque to the engine, at most a few KB

    if TYPE_CHECKING:

        @property
        def key(self) -> HeadKey: ...

        @property
        def position(self) -> Position: ...

    else:  # every save reads them several times: this avoids a Python frame
        key = property(attrgetter("branch", "step", "version"))
        position = property(attrgetter("branch", "step"))


def next_version(version: int, generation: int = 0) -> int:
    """The version of a head after a change that is made in this generation of a mirror (0 without one).

    The lower 32 bits count the changes, from 1 for a new thread; the bits above are the generation of the newest one.
    So of two heads that a thread got on two sides, the one of the newer generation has the higher version."""
    return max(version // _CHANGES, generation) * _CHANGES + changes_of(version) + 1


def changes_of(version: int) -> int:
    """How often a head with this version has changed."""
    return version % _CHANGES


def generation_of(version: int) -> int:
    """The generation in which a head got this version."""
    return version // _CHANGES


class Step(NamedTuple):
    """The light half of a row: the part that history, find and listings read."""

    step: int
    id: bytes  #: the checkpoint's id, 16 bytes
    meta: bytes
    digest: bytes  #: 16 bytes, chained to the step before
    mark: bytes | None  #: the newest mark, if any


class Row(NamedTuple):
    """A whole step. `row()` and `tip()` leave `payload` empty, because it may be large."""

    step: int
    id: bytes
    meta: bytes
    digest: bytes
    mark: bytes | None
    root: bytes
    payload: bytes


class NewRow(NamedTuple):
    """A row to be written."""

    branch: bytes
    step: int
    id: bytes
    meta: bytes
    digest: bytes
    root: bytes
    payload: bytes


class Mark(NamedTuple):
    """A mark to be written (`data`), or deleted (`None`)."""

    branch: bytes
    step: int
    data: bytes | None


class Swap(NamedTuple):
    """Moves one head. `expect` is the `Head.key` that must be there now (None: no such thread); `new` None deletes."""

    thread: str
    expect: HeadKey | None
    new: Head | None


class Fence(NamedTuple):
    """The lease a commit relies on: it is refused unless `token` is still the lease's newest."""

    name: str
    token: int


class Commit(msgspec.Struct, frozen=True, gc=False):
    """Everything that one call changes, applied as a whole or not at all."""

    lineage: str
    swaps: Sequence[Swap] = ()
    rows: Sequence[NewRow] = ()
    branches: Sequence[Branch] = ()
    marks: Sequence[Mark] = ()
    blobs: Mapping[bytes, bytes] = {}  #: into the pool named like the lineage
    fence: Fence | None = None

    @property
    def size(self) -> int:
        """The bytes of its rows and blobs."""
        rows = sum(len(row.root) + len(row.payload) + len(row.meta) for row in self.rows)
        return rows + sum(map(len, self.blobs.values()))


class Drop(msgspec.Struct, frozen=True):
    """Everything that a sweep deletes from one lineage, provided its heads are still the ones that the sweep read."""

    lineage: str
    expect: Sequence[tuple[str, HeadKey]]  #: (thread, Head.key) of every head of the lineage
    rows: Sequence[Position] = ()  #: whole rows, with their marks
    bodies: Sequence[Position] = ()  #: only root and payload go (become b""); meta, digest and mark stay
    branches: Sequence[bytes] = ()  #: branch records, with all their rows and marks
    blobs: Sequence[bytes] = ()


RELEASED = 0  #: the expiry that an engine keeps of a lease that its owner released


class Lease(NamedTuple):
    """A named lock with an owner and an expiry. `token` grows with every new owner."""

    name: str
    owner: str
    token: int
    expires: int  #: microseconds since 1970, by the engine's clock


class Taken(NamedTuple):
    """The answer to a request for a lease that another owner holds."""

    owner: str
    expires: int


class Properties(msgspec.Struct, frozen=True):
    """Properties that the layers above may rely on."""

    name: str  #: "sqlite", "memory", …
    blocking: bool  #: methods never suspend
    durable: bool  #: an acknowledged commit survives the death of the process
    shared: bool  #: several processes may use the same store at once


class Engine(ABC):
    """Stores branches, rows, heads, marks and blobs. See the module's docstring for the ground rules."""

    properties: Properties

    def unwrap(self) -> Engine | None:
        """The engine that this one only wraps, for `capability()`; None for an engine that stores data itself or
        combines several engines."""
        return None

    # -- writing ------------------------------------------------------------------------------------------------

    @abstractmethod
    async def commit(self, commit: Commit) -> None:
        """Apply all of `commit`, or nothing, in one atomic step; return once it is as durable as the engine promises.

        Raises `Refused` and changes nothing if a swap's `expect` is not what is there, or if a row's position or a
        branch's id is taken. A row for a branch that exists neither in the store nor in this commit is refused as well:
        a sweep removed it. A stale fence is `LockLost`. A blob that exists already is left as it is. Rows of one branch
        come in ascending order of step.
        """

    @abstractmethod
    async def drop(self, drop: Drop) -> None:
        """Delete what a sweep found unreachable, atomically; `Refused` if any head of the lineage has moved, appeared
        or gone since. Naming something that does not exist is not an error. A lineage without heads has `expect=()`."""

    # -- reading ------------------------------------------------------------------------------------------------

    @abstractmethod
    async def head(self, thread: str) -> Head | None:
        """The current head of a thread."""

    @abstractmethod
    async def tip(self, thread: str) -> tuple[Head, Row | None] | None:
        """`head(thread)` and the row it points at (payload left empty), in one round trip if the engine can.

        The row is None when it is missing, which the caller treats as damage."""

    @abstractmethod
    async def heads(self, lineage: str, *, after: str | None = None, limit: int | None = None) -> list[Head]:
        """All heads of one lineage, by thread id; or a page of them, at most `limit` after the thread `after`."""

    @abstractmethod
    async def threads(
        self,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
        kind: str | None = None,
        newest_first: bool = False,
    ) -> list[Head]:
        """Heads whose thread id starts with `prefix` (compared as code points, never as a pattern), ascending by id
        and greater than `after`; or, `newest_first`, descending by (`updated`, id) and after the thread `after`."""

    async def count(self, prefix: str = "") -> int:
        """The number of threads whose id starts with `prefix`. An engine that keeps the number of all its threads
        answers without reading them; this implementation reads them in pages."""
        found, after = 0, None
        while page := await self.threads(prefix=prefix, after=after, limit=COUNTED):
            found, after = found + len(page), page[-1].thread
        return found

    @abstractmethod
    async def lineages(self, *, after: str | None = None, limit: int | None = None) -> list[str]:
        """The names of all lineages that still have a branch, a head or a blob, ascending."""

    @abstractmethod
    async def branches(self, lineage: str) -> list[Branch]:
        """All branches of a lineage, in the order they were written."""

    @abstractmethod
    async def row(self, lineage: str, branch: bytes, step: int) -> Row | None:
        """One row without its payload."""

    @abstractmethod
    async def steps(
        self, lineage: str, branch: bytes, first: int, last: int, *, newest: int | None = None, marked: bool = False
    ) -> list[Step]:
        """The light halves of steps first..last (both included) that exist, ascending. `marked`: only of those that
        have a mark. `newest`: only the last so many of them.

        Never reads roots or payloads. The end of a long branch, and a few marks in it, cost what is returned, not the
        length of the branch, where the engine can."""

    @abstractmethod
    async def payloads(self, lineage: str, branch: bytes, first: int, last: int) -> list[tuple[int, bytes]]:
        """(step, payload) of steps first..last that exist, ascending."""

    @abstractmethod
    async def rows(self, lineage: str, branch: bytes, first: int, last: int) -> list[Row]:
        """Whole rows first..last that exist, ascending: for copying and verifying."""

    @abstractmethod
    async def locate(self, lineage: str, low: bytes, high: bytes, limit: int) -> list[tuple[bytes, int, bytes]]:
        """(branch, step, id) of rows of the lineage whose id lies in low..high (16 bytes each, both included)."""

    @abstractmethod
    async def blobs(self, pool: str, ids: Sequence[bytes]) -> dict[bytes, bytes]:
        """The blobs that exist among `ids`."""

    @abstractmethod
    async def blob_ids(
        self, pool: str, *, after: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, int]]:
        """(id, size) of the pool's blobs, ascending by id."""

    # -- leases -------------------------------------------------------------------------------------------------

    @abstractmethod
    async def lease(self, name: str, owner: str, ttl: float) -> Lease | Taken:
        """Acquire `name` for `owner` for `ttl` seconds, or renew it. The token stays the same for as long as nobody
        else has had the lease, also if it had expired meanwhile: so an owner sees by its token whether it lost the
        lease. A lease of another owner that expired, and any that was released, is granted with a higher token than
        any before it under that name."""

    @abstractmethod
    async def release(self, name: str, owner: str) -> bool:
        """Release a lease; False if `owner` did not hold it (another owner's lease is never released)."""

    # -- the store ----------------------------------------------------------------------------------------------

    @abstractmethod
    async def ping(self) -> None:
        """Return if the store answers, raise `Unavailable` if not."""

    @abstractmethod
    async def stats(self) -> dict[str, int]:
        """At least threads, branches, rows, blobs and bytes (the space that the whole store occupies)."""

    async def stats_between(self, low: str, high: str | None) -> dict[str, int]:
        """The figures of `stats` for the lineages from `low` on that come before `high` (None: to the last). `bytes`
        are those of their records. This implementation reads them all; an engine that can count them where they are
        stored does so."""
        figures = dict.fromkeys(("threads", "branches", "rows", "blobs", "bytes"), 0)
        names, after = [low], low
        while names:
            for lineage in names:
                figures["threads"] += len(await self.heads(lineage))
                blobs = await self.blob_ids(lineage)
                figures["blobs"] += len(blobs)
                figures["bytes"] += sum(size for _, size in blobs)
                for branch in await self.branches(lineage):
                    figures["branches"] += 1
                    for row in await self.rows(lineage, branch.id, 0, LAST_STEP):
                        figures["rows"] += 1
                        figures["bytes"] += len(row.meta) + len(row.root) + len(row.payload) + len(row.mark or b"")
            page = await self.lineages(after=after, limit=COUNTED)
            names = [name for name in page if high is None or name < high]
            after = page[-1] if page else after
        return figures

    async def check(self, *, repair: bool = False) -> list[tuple[str, str]]:  # noqa: ARG002 - for engines that keep any
        """Compare what the engine keeps in addition to the records (counts, an order by age) with the records: (what,
        how it differs) for each disagreement. With `repair`, make it agree. An engine without any has none."""
        return []

    @abstractmethod
    async def compact(self) -> None:
        """Return freed space to the disk or server, if the engine can."""

    @abstractmethod
    async def close(self) -> None:
        """Release everything. Closing twice is not an error; any other call afterwards raises `Unavailable`."""
