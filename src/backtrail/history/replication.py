"""A store and its replica: the status of a mirror, making two stores equal, and the records that a merge changes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from backtrail.encode.seal import refuse_sealed
from backtrail.engines.base import Commit, Engine, Head, Mark, Step, Swap
from backtrail.engines.capabilities import capability
from backtrail.engines.conflicts import refusals_as_conflicts
from backtrail.engines.namespace import in_namespace_of, without_namespace
from backtrail.engines.reserved_names import NAMESPACE_END, namespace_of, user_threads
from backtrail.engines.reserved_record import swap
from backtrail.errors import InvalidInput, Unavailable
from backtrail.history.context import Context
from backtrail.history.detached_saves import DetachedSaves
from backtrail.history.keyring import RING, share_ring
from backtrail.history.records import MarkBody, Meta, now_micros, open_mark, open_note, read_step, seal_mark, with_note
from backtrail.replicate import concurrency, role_record
from backtrail.replicate.head_comparison import differing
from backtrail.replicate.lineage_copy import Copied, CountingEngine, Progress
from backtrail.replicate.merge import merge
from backtrail.replicate.merge_rules import Annotated, Codec, MarkFacts, OursUnlessAhead, SpooledRow
from backtrail.replicate.mirror import Mirror
from backtrail.replicate.status import Mirrored, Status

M = TypeVar("M")


class Synced(msgspec.Struct, frozen=True):
    """The result of making two stores equal."""

    records: int = 0  #: that were copied
    bytes: int = 0
    diverged: tuple[tuple[str, str], ...] = ()  #: threads that differed, and the names under which the others are kept


class MergeCodec(Codec):
    """Opens and seals marks and heads for a merge. It works below namespaces, so the names it gets have a prefix that
    the seals do not cover."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def rewrite(self, head: Head, *, version: int, count: int, name: str | None = None, owner: bytes) -> Head:
        fields = {"version": version, "count": count, "owner": owner, "updated": head.updated + 1}
        if name is None:
            return self._change(head, fields)
        return self._change(head, {**fields, "thread": name}, pinned=True, moves=(), undone=())

    def move(self, head: Head, branch: bytes, step: Step) -> Head:
        meta, _ = read_step(self._context.frames, branch, step)
        fields = {"branch": branch, "step": step.step, "size": meta.size}
        return self._change(head, fields, checkpoint=step.id, pinned=True, moves=(), undone=())

    def _change(self, head: Head, fields: dict[str, Any], **note: Any) -> Head:
        """A head with other fields, and other fields in its note."""
        cut = _namespace_length(head)
        frames = self._context.frames
        bare = msgspec.structs.replace(head, thread=head.thread[cut:], lineage=head.lineage[cut:])
        changed = msgspec.structs.replace(open_note(frames, bare), **note)
        name = fields.get("thread", head.thread)
        new = with_note(frames, msgspec.structs.replace(bare, **{**fields, "thread": name[cut:]}), changed)
        return msgspec.structs.replace(new, thread=name, lineage=head.lineage)

    def mark_facts(self, branch: bytes, step: Step) -> MarkFacts | None:
        if step.mark is None:
            return None
        mark = open_mark(self._context.frames, branch, step.step, step.mark)
        return MarkFacts(mark.deleted and not mark.duplicate, mark.at, mark.duplicate, mark.generation)

    def mark(
        self,
        branch: bytes,
        step: Step,
        annotated: Annotated | None = None,
        *,
        deleted_in: int | None = None,
        duplicate: bool = False,
    ) -> Mark:
        frames = self._context.frames
        meta, known = read_step(frames, branch, step)
        facts: Meta | MarkBody = meta if known is None or known.deleted else known
        earlier = self.mark_facts(branch, step)
        at = max(now_micros(), 0 if earlier is None else earlier.at + 1)
        if annotated is not None:
            facts = read_step(frames, annotated.branch, annotated.step)[1] or facts
            if known is None or not known.deleted:
                at = annotated.at  # so that no merge finds another one later than this
        deleted = duplicate or deleted_in is not None
        body = MarkBody(
            at, deleted, facts.label, facts.tags, facts.custom, duplicate=duplicate, generation=deleted_in or 0
        )
        return seal_mark(frames, branch, step.step, body)

    async def detach(self, engine: Engine, saves: Sequence[SpooledRow]) -> Commit:
        head = saves[0].head
        cut = _namespace_length(head)
        detached = DetachedSaves(self._context, engine, (head.lineage[cut:], head.thread[cut:]), saves)
        for save in saves:
            await detached.add(save, head.lineage)
        tip = detached.at(head.position)
        size = read_step(self._context.frames, tip.branch, Step(tip.step, tip.id, tip.meta, tip.digest, None))[0].size
        fields = {"owner": detached.owner, "branch": tip.branch, "step": tip.step, "count": len(saves), "size": size}
        new = self._change(head, fields, checkpoint=tip.id, pinned=True, moves=(), undone=())
        branch = msgspec.structs.replace(detached.branch, lineage=head.lineage, thread=head.thread)
        swap = Swap(head.thread, None, new)
        return Commit(head.lineage, (swap,), detached.rows, (branch,), detached.marks, detached.blobs)


def _namespace_length(head: Head) -> int:
    """The length of the prefix that names in a namespace have, which no seal covers."""
    space = namespace_of(head.thread)
    return 0 if space is None else len(space + NAMESPACE_END)


def _mirror(context: Context, kind: type[M]) -> M:
    """The mirror of a store that has a replica, as a `kind`."""
    mirror = capability(context.engine, kind)
    if mirror is None:
        raise InvalidInput("this store has no replica: open it with replica=…")
    return mirror


async def check_rings(context: Context) -> None:
    """Refuse two sides that can never be equal: sealed with different keys, or only one of them sealed. An unreachable
    side is not checked; if its ring turns out to be another one, it is not written to."""
    found: list[Head] = []
    bare = False
    mirror = _mirror(context, Mirror)
    for name, side in mirror.sides.items():  # each separately, before the mirror starts to make them equal
        room = in_namespace_of(context.engine, side)
        with contextlib.suppress(Unavailable), mirror.failover.asking(name):
            ring = await room.head(RING)
            if ring is not None:
                found.append(ring)
            elif await user_threads(room, limit=1) and not (await role_record.read(side)).generation:
                bare = True
    if found and context.keys is None:
        raise refuse_sealed()
    if len({ring.created for ring in found}) > 1:
        raise InvalidInput(
            "the replica is sealed with another key ring than the primary, so neither could read what the other holds: "
            "give an empty replica"
        )
    if found and bare:
        raise InvalidInput(
            "one side of the mirror is sealed with a key and the other holds unsealed data: give an empty replica"
        )
    if found and await context.engine.head(RING) is None:
        # A new primary with a sealed replica adopts that ring instead of making another.
        await swap(context.engine, None, found[0])  # unless another process has done so


async def status(context: Context) -> Status:
    """The state of both sides: which one is active, and how far the follower is behind."""
    context.check_open()
    mirror = _mirror(context, Mirror)
    try:
        await context.engine.ping()
    except Unavailable as error:
        mirror.failover.last_error = str(error)  # so that the status shows it
    return mirror.status()


async def catch_up(context: Context) -> Status:
    """Compare both sides and copy what is missing now, instead of in the background."""
    context.check_open()
    return await _mirror(context, Mirrored).settle()


async def sync(context: Context, other: Context, progress: Progress | None = None) -> Synced:
    """Make `other` equal to this store by exchanging only what is missing; if heads differ, this store's count.
    Checkpoints that only the other one has are copied here, too. Safe to repeat, to interrupt, and to run beside
    writers."""
    context.check_open()
    other.check_open()
    here, there = without_namespace(context.engine), without_namespace(other.engine)
    if here is there:
        raise InvalidInput("a store cannot be made equal to itself: give another one")
    await share_ring(context, other)
    blocking = here.properties.blocking and there.properties.blocking
    copied = Copied(progress=progress)
    here, there = (CountingEngine(concurrency.side(engine, blocking), copied) for engine in (here, there))
    diverged: list[tuple[str, str]] = []
    generation = max(context.generation, other.generation)
    codec = MergeCodec(context)
    for lineage in await differing(here, there):
        with refusals_as_conflicts():
            merged = await merge(here, there, lineage, codec, generation=generation, rule=OursUnlessAhead())
            diverged += merged.diverged
    return Synced(copied.records, copied.bytes, tuple(diverged))
