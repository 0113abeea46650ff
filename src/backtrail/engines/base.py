"""The engine contract: what a place for bytes must do so that backtrail can stand on it.

An engine knows nothing of states, messages or types. It keeps five kinds of record, all of them small and flat:

* **branch**: who started it and where it hangs (`origin`). Written once.
* **row**: one step of a branch, in four parts: `meta`, `root`, `payload`, `digest`. Written once, never changed.
* **head**: where a thread stands. The only record that moves, and only by compare-and-swap.
* **mark**: what was said about a row afterwards (an annotation, a deletion). The newest one counts.
* **blob**: bytes under a name that was made from them, in a pool. Written once; writing it again is no change.

Every byte string is opaque and already framed with a checksum by the layers above: an engine gives back exactly what
it was given, or raises. Everything that belongs to one *lineage* (a thread and its forks) may live in one shard; a
commit never spans two lineages.

All methods are `async def`. An engine whose `properties.blocking` is true never suspends in them (it does its I/O in
place, and is safe to call from several threads at once); any other engine awaits its client and is used from one
event loop. Failures of the place itself (closed, full, read-only, unreachable) are `Unavailable`, with the driver's
error as `__cause__`; such a call may be repeated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

LAST_STEP = 2**32 - 1  #: the highest number that a step can have


class Branch(msgspec.Struct, frozen=True, gc=False):
    """An append-only log of steps. Its first step is `origin[1] + 1`, or 1 where there is no origin."""

    id: bytes  #: 16 random bytes, unique everywhere
    lineage: str
    thread: str  #: the thread that wrote it
    owner: bytes  #: 16 bytes: the life of that thread; a thread deleted and made again has another
    origin: tuple[bytes, int] | None = None  #: (branch id, step) that the first row follows


class Head(msgspec.Struct, frozen=True, gc=False):
    """Where a thread stands, and what a listing of threads needs to know."""

    thread: str
    lineage: str
    owner: bytes
    branch: bytes
    step: int
    version: int  #: 1 for a new thread, one more at each change of this record
    kind: str  #: "thread", "session", "run", "workspace", …
    created: int  #: microseconds since 1970
    updated: int
    count: int  #: checkpoints that the thread itself wrote
    size: int  #: encoded bytes of the state at the head
    note: bytes = b""  #: opaque to the engine, at most a few KB

    @property
    def key(self) -> tuple[bytes, int, int]:
        """What a compare-and-swap compares: never the same twice in the life of a store."""
        return (self.branch, self.step, self.version)


class Step(NamedTuple):
    """The light half of a row: all that history, find and listings read."""

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
    """A mark to be written (`data`), or taken away (`None`)."""

    branch: bytes
    step: int
    data: bytes | None


class Swap(NamedTuple):
    """Moves one head. `expect` is the `Head.key` that must be there now (None: no such thread); `new` None deletes."""

    thread: str
    expect: tuple[bytes, int, int] | None
    new: Head | None


class Fence(NamedTuple):
    """The lease a commit relies on: it is refused unless `token` is still the lease's newest."""

    name: str
    token: int


class Commit(msgspec.Struct, frozen=True, gc=False):
    """Everything that one call changes. All of it happens, or none."""

    lineage: str
    swaps: Sequence[Swap] = ()
    rows: Sequence[NewRow] = ()
    branches: Sequence[Branch] = ()
    marks: Sequence[Mark] = ()
    blobs: Mapping[bytes, bytes] = {}  #: into the pool named like the lineage
    fence: Fence | None = None


class Drop(msgspec.Struct, frozen=True):
    """What a sweep takes away from one lineage, if its heads are still the ones the sweep looked at."""

    lineage: str
    expect: Sequence[tuple[str, tuple[bytes, int, int]]]  #: (thread, Head.key) of every head of the lineage
    rows: Sequence[tuple[bytes, int]] = ()  #: whole rows, with their marks
    bodies: Sequence[tuple[bytes, int]] = ()  #: only root and payload go (become b""); meta, digest and mark stay
    branches: Sequence[bytes] = ()  #: branch records, with all their rows and marks
    blobs: Sequence[bytes] = ()


class Lease(NamedTuple):
    """A named, timed right. `token` grows with every new owner."""

    name: str
    owner: str
    token: int
    expires: int  #: microseconds since 1970, by the engine's clock


class Taken(NamedTuple):
    """The answer to a lease that somebody else has."""

    owner: str
    expires: int


class Properties(msgspec.Struct, frozen=True):
    """What the layers above may rely on."""

    name: str  #: "sqlite", "memory", …
    blocking: bool  #: methods never suspend
    durable: bool  #: an acknowledged commit survives the death of the process
    shared: bool  #: several processes may use the same store at once


class Engine(ABC):
    """A place for branches, rows, heads, marks and blobs. See the module's docstring for the ground rules."""

    properties: Properties
    #: How the ids of branches begin that may be gone on with now. A mirror changes it; branches are started anew then.
    stamp: bytes = bytes(2)
    #: Saves are kept somewhere else for now, and what was saved before cannot be read. Only a mirror with a spool is.
    adrift: bool = False

    #: Whether another engine can be asked instead, and at once. Then a place where nobody listens need not be waited
    #: for. A mirror says so of its sides; an engine that waits for nothing has no use for it.
    hurried: Callable[[], bool] | None = None

    # -- writing ------------------------------------------------------------------------------------------------

    @abstractmethod
    async def commit(self, commit: Commit) -> None:
        """Apply all of `commit`, or nothing, in one atomic step; return once it is as durable as the engine promises.

        Raises `Conflict` and changes nothing if a swap's `expect` is not what is there, if a row's (branch, step) or a
        branch's id is taken, or if the fence is stale. A blob that exists already is left as it is. A row for a
        branch that exists neither in the store nor in this commit is a Conflict as well: a sweep removed it.
        Rows of one branch come in ascending order of step.
        """

    @abstractmethod
    async def drop(self, drop: Drop) -> None:
        """Take away what a sweep found unreachable, atomically; `Conflict` if any head of the lineage has moved,
        appeared or gone since. What is not there is no error. A lineage without heads has `expect=()`."""

    # -- reading ------------------------------------------------------------------------------------------------

    @abstractmethod
    async def head(self, thread: str) -> Head | None:
        """Where a thread stands now."""

    @abstractmethod
    async def tip(self, thread: str) -> tuple[Head, Row | None] | None:
        """`head(thread)` and the row it points at (payload left empty), in one round trip where that can be.

        The row is None when it is missing, which the caller treats as damage."""

    async def base(self, thread: str) -> tuple[Head, Row | None] | None:
        """What the next save of a thread builds on: its tip, for every engine that can be asked for that."""
        return await self.tip(thread)

    @abstractmethod
    async def heads(self, lineage: str) -> list[Head]:
        """All heads of one lineage, by thread id."""

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
    async def steps(self, lineage: str, branch: bytes, first: int, last: int) -> list[Step]:
        """The light halves of steps first..last (both included) that exist, ascending.

        Never reads roots or payloads."""

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
        """Take `name` for `owner` for `ttl` seconds, or renew it if `owner` has it (same token). A lease that expired
        or was released is given with a higher token than any before it under that name."""

    @abstractmethod
    async def release(self, name: str, owner: str) -> bool:
        """Give a lease back; False if `owner` did not have it (never frees another's)."""

    # -- the place ----------------------------------------------------------------------------------------------

    @abstractmethod
    async def ping(self) -> None:
        """Return if the place answers, raise `Unavailable` if not."""

    @abstractmethod
    async def stats(self) -> dict[str, int]:
        """At least threads, branches, rows, blobs and bytes (all that the place occupies)."""

    @abstractmethod
    async def compact(self) -> None:
        """Give freed space back to where it came from, as far as the place can."""

    @abstractmethod
    async def close(self) -> None:
        """Release everything. Closing twice is no error; any other call afterwards is `Unavailable`."""
