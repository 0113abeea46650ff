"""What one open store is made of, for the layers of history: engine, codec, frames, and a bounded memory of tips.

A tip is what the last save of a thread left in this process: the head it wrote, its root, and the memories of its long
lists. It only saves work. Every commit is checked by the engine against the real head, so a tip that has grown stale
costs a retry and never a wrong write.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from copy import copy
from typing import Any

import msgspec

from backtrail.encode.change_detection import KnownLists
from backtrail.encode.frame import Frames
from backtrail.encode.row_format import Root
from backtrail.encode.types import Types
from backtrail.encode.values import Values
from backtrail.engines.base import Branch, Engine, Head
from backtrail.engines.capabilities import PrefixesBranches, SavesAdrift, capability
from backtrail.engines.fork_safety import ForkSafe
from backtrail.errors import InvalidInput, Unavailable
from backtrail.history.ids import IdCache
from backtrail.history.records import Note
from backtrail.history.tails import TailCache
from backtrail.model import Retention

#: (core, thread, its living checkpoints as `trail.Seen`) -> blobs that they need besides those their roots name
Follow = Callable[[Any, str, list[Any]], Awaitable[set[bytes]]]
MAX_TIPS = 4096  # threads
MAX_TIP_BYTES = 128 * 1024 * 1024  # encoded bytes of the lists that tips remember
MAX_BRANCHES = 4096
_NO_PREFIX = bytes(2)  # of branches that no mirror made: its generation 0


class Tip(msgspec.Struct):
    """Where a thread stands, with all that the next save needs. `memories` None: lists were not looked at yet.

    The collector visits tips: memories lead to the caller's types and objects, and those may lead back to the store."""

    head: Head
    note: Note
    digest: bytes
    root: Root
    memories: KnownLists | None
    line: object = None  # of `retire`: what the next saves may let go of

    @property
    def cost(self) -> int:
        """About how many bytes the tip keeps alive."""
        return 1024 + (self.head.size if self.memories else 0)


class TipCache(ForkSafe):
    """The tips of the threads used last. `take` hands one over for good: a tip has one user at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._tips: OrderedDict[str, tuple[Tip, int]] = OrderedDict()  # with its cost when it was put there
        self.bytes = 0

    def take(self, thread: str) -> Tip | None:
        with self._lock:
            return self._take(thread)

    def peek(self, thread: str) -> Tip | None:
        """A tip to look at: it may have been handed over to a writer meanwhile, so its memories are not to be used."""
        found = self._tips.get(thread)
        return None if found is None else found[0]

    def put(self, tip: Tip) -> None:
        with self._lock:
            old = self._take(tip.head.thread)
            if old is not None and old.head.version > tip.head.version and old.head.owner == tip.head.owner:
                tip = old
            cost = tip.cost
            self._tips[tip.head.thread] = (tip, cost)
            self.bytes += cost
            while len(self._tips) > MAX_TIPS or (self.bytes > MAX_TIP_BYTES and len(self._tips) > 1):
                self._take(next(iter(self._tips)))

    def _take(self, thread: str) -> Tip | None:
        found = self._tips.pop(thread, None)
        if found is None:
            return None
        self.bytes -= found[1]
        return found[0]

    def __len__(self) -> int:
        return len(self._tips)


class Context:
    """One open store, below its front doors."""

    def __init__(
        self,
        engine: Engine,
        *,
        types: Types,
        frames: Frames,
        detect: str = "exact",
        retention: Retention | None = None,
        keys: tuple[bytes, ...] | None = None,
    ) -> None:
        if detect not in ("exact", "identity"):
            raise InvalidInput(f"detect={detect!r} is unknown: use 'exact' or 'identity'")
        self.use(engine)
        self.values = Values(types)
        self.frames = frames
        self.identity = detect == "identity"
        self.retention = retention or Retention()
        self.keys = keys  # the user's, the current one first; see history.keyring
        self.follow: dict[str, Follow] = {}  # by kind of thread: who knows which blobs its checkpoints need besides
        self.own: tuple[str, ...] = ()  # files and directories of the store itself, which no workspace takes up
        self.workspaces: dict[str, Any] = {}  # by thread: the ones opened last, for rewinds that move files as well
        self.trained = b""  # the dictionary that this process trained last
        self.tips = TipCache()
        self.ids = IdCache()
        self.tails = TailCache()
        self.closed = False
        self.failed_writes = 0  # of sessions that log their errors instead of raising them
        self._branches: OrderedDict[bytes, Branch] = OrderedDict()

    def use(self, engine: Engine) -> None:
        """Work with this engine from now on."""
        self.engine = engine
        # Found once: every save asks for them.
        self.mirror = capability(engine, PrefixesBranches)
        self.spool = capability(engine, SavesAdrift)

    def with_engine(self, engine: Engine) -> Context:
        """The same store by way of another engine: one side of its mirror."""
        other = copy(self)
        other.use(engine)
        return other

    @property
    def branch_prefix(self) -> bytes:
        """How the ids of branches begin that may be written to now."""
        return _NO_PREFIX if self.mirror is None else self.mirror.branch_prefix

    def new_branch(self) -> bytes:
        """An id for a branch: the prefix that it must have now, then random."""
        prefix = self.branch_prefix
        return prefix + os.urandom(16 - len(prefix))

    def is_current(self, branch: bytes) -> bool:
        """True if a branch may be written to."""
        return branch.startswith(self.branch_prefix)

    def check_open(self) -> None:
        if self.closed:
            raise Unavailable("the store is closed: open it again with backtrail.open()")

    @staticmethod
    def now() -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1000

    def learn(self, branch: Branch) -> None:
        """Branches never change, so any that was seen may be remembered."""
        self._branches[branch.id] = branch
        while len(self._branches) > MAX_BRANCHES:
            self._branches.popitem(last=False)

    async def branch(self, lineage: str, id: bytes) -> Branch | None:
        """The record of a branch."""
        known = self._branches.get(id)
        if known is None:
            for branch in await self.engine.branches(lineage):
                self.learn(branch)
                if branch.id == id:
                    known = branch  # a lineage may have more branches than are remembered
        return known
