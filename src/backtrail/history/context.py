"""One open store, below its facades: its engine, its codec, its retention policy, and its caches."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from backtrail.encode.frame import Frames
from backtrail.encode.record_types import Types
from backtrail.encode.seal import Ring, SealedFrames
from backtrail.encode.values import Values
from backtrail.engines.base import Branch, Engine
from backtrail.engines.branch_origins import BranchLookup
from backtrail.engines.capabilities import SavesAdrift, WritesInGenerations, capability
from backtrail.errors import Closed, Corrupt, InvalidInput
from backtrail.history.caches import Caches
from backtrail.history.records import open_branch
from backtrail.model import Budget, Retention
from backtrail.telemetry import Telemetry

NO_PREFIX = bytes(2)  # of branches not made by a mirror: generation 0
#: (context, thread, its living checkpoints as `ancestry.HistoryStep`) -> blobs they need in addition to those their
#: roots name
BlobFinder = Callable[[Any, str, list[Any]], Awaitable[set[bytes]]]


class Context:
    """One open store. Its parts do not change, except for the key of an encrypted store."""

    def __init__(
        self,
        engine: Engine,
        *,
        types: Types,
        frames: Frames,
        detect: str = "exact",
        retention: Retention | None = None,
        keys: tuple[bytes, ...] | None = None,
        blob_finders: Mapping[str, BlobFinder] | None = None,
        own_paths: Sequence[str] = (),
        place: str | None = None,
        budget: Budget | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        if detect not in ("exact", "identity"):
            raise InvalidInput(f"detect={detect!r} is unknown: use 'exact' or 'identity'")
        self.engine = engine
        # Looked up once, because every save needs them. Both are None for a store without a replica.
        self.mirror = capability(engine, WritesInGenerations)
        self.spool = capability(engine, SavesAdrift)
        self.values = Values(types)
        self.frames = frames
        self.identity = detect == "identity"
        self.retention = retention or Retention()
        self.keys = keys  #: the user's, the current one first; see `keyring`
        self.blob_finders = blob_finders or {}  #: by kind of thread
        self.own_paths = tuple(own_paths)  #: files and directories of the store itself, which workspaces exclude
        self.place = place  #: tells this store from others, also in another process; None if it ends with this one
        self.budget = budget or Budget()  #: of each load
        self.telemetry = telemetry  #: None if the program collects no spans and metrics
        self.closed = False
        self.failed_writes = 0  #: of sessions that log their errors instead of raising them
        self.trained_dictionary = b""  #: the one that this process trained last
        self.caches = Caches()
        self._workspaces: dict[str, Any] = {}

    def with_engine(self, engine: Engine) -> Context:
        """The same store over another engine. It shares the codec and the policy, and no cache."""
        other = Context(
            engine,
            types=self.values.types,
            frames=self.frames,
            detect="identity" if self.identity else "exact",
            retention=self.retention,
            keys=self.keys,
            blob_finders=self.blob_finders,
            own_paths=self.own_paths,
            place=self.place,
            budget=self.budget,
            telemetry=self.telemetry,
        )
        other.closed = self.closed
        return other

    def describe(self) -> str:
        """The engine and the place of the store, without any secret."""
        where = self.own_paths[0] if self.own_paths else self.place
        parts = [self.engine.properties.name, *([] if where is None else [repr(where)]), *(["closed"] * self.closed)]
        return " ".join(parts)

    def check_open(self) -> None:
        """Raise `Unavailable` if the store was closed."""
        if self.closed:
            raise Closed("the store is closed: open it again with backtrail.open()")

    async def close(self) -> None:
        """Close the engine; closing twice is not an error."""
        if not self.closed:
            self.closed = True
            await self.engine.close()

    # -- what changes while a store is open ---------------------------------------------------------------------------

    def seal_with(self, ring: Ring) -> None:
        """Encrypt from now on with the keys of `ring`."""
        self.frames = SealedFrames(ring, self.frames.compression, self.frames.level, self.frames.most)

    def add_key(self, key: bytes) -> None:
        """Make `key` the user's current key; the earlier ones stay known."""
        self.keys = (key, *(known for known in self.keys or () if known != key))

    def add_dictionary(self, content: bytes) -> bytes:
        """Compress with this dictionary, and offer it to lineages that have none yet; returns its name."""
        self.trained_dictionary = content
        return self.frames.learn(content)

    def add_failed_write(self) -> None:
        """Count a write whose error a session has logged."""
        self.failed_writes += 1

    def add_workspace(self, thread: str, workspace: Any) -> None:
        """Remember the open workspace of a thread, so that a rewind of a conversation can move its files as well."""
        self._workspaces[thread] = workspace

    def workspace(self, thread: str) -> Any:
        """The workspace of a thread that was opened last, or None."""
        return self._workspaces.get(thread)

    # -- branches -----------------------------------------------------------------------------------------------------

    @property
    def branch_prefix(self) -> bytes:
        """The prefix of the ids of branches that may be written to now."""
        return NO_PREFIX if self.mirror is None else self.mirror.branch_prefix

    @property
    def generation(self) -> int:
        """The generation of heads that are changed now; 0 for a store without a replica."""
        return 0 if self.mirror is None else self.mirror.generation

    def new_branch(self) -> bytes:
        """An id for a new branch: the current prefix, then random bytes."""
        prefix = self.branch_prefix
        return prefix + os.urandom(16 - len(prefix))

    async def branch(self, lineage: str, id: bytes) -> Branch | None:
        """The record of a branch; `Corrupt` if it is not the one that was written."""
        known = self.caches.branches.get(id)
        return known if known is not None else (await self.branch_lookup(lineage))(id)

    async def branch_lookup(self, lineage: str) -> BranchLookup:
        """A lookup of the lineage's branches, which raises `Corrupt` only for one that is damaged itself."""
        records = {branch.id: branch for branch in await self.engine.branches(lineage)}
        damaged: dict[bytes, Corrupt] = {}
        for branch in records.values():
            try:
                self._check(branch)
            except Corrupt as error:
                damaged[branch.id] = error

        def lookup(id: bytes) -> Branch | None:
            if id in damaged:
                raise damaged[id]
            return records.get(id)

        return lookup

    async def branches(self, lineage: str) -> list[Branch]:
        """All branches of a lineage, in the order they were written; `Corrupt` if one of them is damaged."""
        branches = await self.engine.branches(lineage)
        for branch in branches:
            self._check(branch)
        return branches

    def _check(self, branch: Branch) -> None:
        if self.caches.branches.get(branch.id) != branch:
            open_branch(self.frames, branch)
            self.caches.branches.put(branch)
