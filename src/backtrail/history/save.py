"""Writing: one save is one row, one head swap, one commit.

`Saver` holds what every kind of save has in common: find the tip, check what the caller expected, plan, commit, and
remember the new tip. Whatever goes wrong, nothing was written and the tip is forgotten.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from backtrail.encode.change_detection import KnownLists
from backtrail.encode.frame import describe_row
from backtrail.encode.planner import NeedsItems, PlannedRow, Planner
from backtrail.encode.row_format import ENOUGH_STREAMS, Root, pack_root
from backtrail.encode.values import Values
from backtrail.engines.base import Branch, Commit, Fence, Head, Mark, NewRow, Swap
from backtrail.engines.conflicts import Refused
from backtrail.errors import BacktrailError, Conflict, Corrupt, InvalidInput, Unavailable
from backtrail.history.ancestry import Ancestry, describe, find, seen_at
from backtrail.history.caches import Tip
from backtrail.history.context import Context
from backtrail.history.records import (
    NO_DIGEST,
    Meta,
    Move,
    Note,
    body_digest,
    chain,
    checkpoint,
    new_id,
    now_micros,
    open_note,
    pack_meta,
    seal_note,
    touch,
    uuid_text,
)
from backtrail.history.retire import due, policy_of, retire, window_of
from backtrail.history.retry import tries
from backtrail.history.state_reader import StateReader
from backtrail.history.steady import steady
from backtrail.history.sweep import Sweeper
from backtrail.history.validation import check_custom, check_label, check_tags
from backtrail.history.zstd_dictionary import choose
from backtrail.model import Checkpoint

Plan = Callable[[Planner], PlannedRow]
_log = logging.getLogger(__name__)
MAX_MOVES = 32  # rewinds and jumps that can be undone


class Facts(msgspec.Struct, frozen=True):
    """What a caller says about a checkpoint, checked and ready to be stored."""

    label: str | None
    tags: tuple[str, ...]
    custom: bytes
    files: str | None
    id: bytes | None

    @classmethod
    def check(cls, values: Values, label: Any, tags: Any, custom: Any, files: str | None, id: Any) -> Facts:
        if label is None and not tags and not custom and files is None and id is None:
            return _NO_FACTS
        fields = check_custom(custom)
        packed = values.encode(fields, "custom") if fields else b""
        return cls(check_label(label), check_tags(tags), packed, files, None if id is None else check_id(id))


_NO_FACTS = Facts(None, (), b"", None, None)


def check_id(value: Any, what: str = "id") -> bytes:
    """The 16 bytes of a checkpoint id that a caller chose."""
    try:
        return value.bytes if isinstance(value, uuid.UUID) else uuid.UUID(value).bytes
    except (ValueError, AttributeError, TypeError):
        hint = "leave it out, and one is made" if what == "id" else "give a Checkpoint, or its whole id"
        raise InvalidInput(f"{what}={value!r:.80} is not a UUID: {hint}") from None


class Saver:
    """Saves to one thread. `seen` is the checkpoint the caller last looked at, or None."""

    def __init__(self, context: Context, thread: str, kind: str, values: Values) -> None:
        self._context = context
        self._thread = thread
        self._kind = kind
        self._values = values
        self.seen: bytes | None = None
        self.fence: Fence | None = None
        self.caption: Callable[[Root, bytes], bytes] | None = None  # what a view lets listings tell of a checkpoint

    @property
    def whose(self) -> tuple[Context, str]:
        """The core and the thread that it writes to."""
        return self._context, self._thread

    @steady(lambda writer: writer.whose)
    async def save(
        self,
        plan: Plan,
        facts: Facts,
        *,
        expect: Any = UNSET,
        whole: bool = False,
        rebase: bool = False,
        on_conflict: Literal["raise", "branch"] = "raise",
        parent: Any = UNSET,
    ) -> Checkpoint:
        """Plan and commit one checkpoint. `whole`: the plan compares lists, so their items must be known.
        `rebase`: the change is meant for whatever the head is, so a lost race is tried again.
        `parent`: the checkpoint to build on; if the head is another, a branch begins there and the head goes along."""
        self._context.check_open()
        if on_conflict not in ("raise", "branch"):
            raise InvalidInput(f"on_conflict={on_conflict!r} is unknown: use 'raise' or 'branch'")
        follow = not isinstance(parent, UnsetType)
        if follow and not isinstance(expect, UnsetType):
            raise InvalidInput("expect= and parent= cannot be given together: parent= never conflicts")
        base = self._base(parent, rebase, "parent") if follow else self._base(expect, rebase, "expect")
        id = facts.id  # one for all attempts: of two that were made on two sides of a mirror one is the other
        for attempt in tries():
            tip = self._context.tips.take(self._thread) if attempt == 0 else None
            cached = tip is not None
            if tip is None:
                tip = await read_tip(self._context, self._thread, self._values)
                if attempt and tip is not None and id is not None and facts.id is None:  # one that was chosen: below
                    done = await self._made_after_all(tip, id)
                    if done is not None:
                        return done
            if base is not UNSET and (tip.note.checkpoint if tip is not None else None) != base:
                if cached:
                    continue  # the cached tip may be the stale one: look again before telling the caller
                if facts.id is not None and tip is not None:
                    done = await self._already(tip, facts.id)
                    if done is not None:
                        return done
                if (follow or on_conflict == "branch") and isinstance(base, bytes):
                    return await self._beside(plan, facts, base, follow, whole)
                raise self._conflict(base, tip)
            if facts.id is not None and tip is not None:
                done = await self._already(tip, facts.id)
                if done is not None and not (cached and await self._moved(tip)):
                    return done
                if done is not None:
                    continue  # what was done may have been undone since, with the whole thread
            now = now_micros() if tip is None else max(now_micros(), tip.head.updated + 1)
            if id is None:
                id = new_id(now)
            try:
                return await self._commit(plan, facts, id, now, tip, whole)
            except Refused:
                continue
            except Corrupt:
                if not cached:
                    raise  # else it may be the tip that is old: a mirror changed sides, or a sweep was there
        raise self._conflict(base, await read_tip(self._context, self._thread, self._values))

    def _base(self, expect: Any, rebase: bool, what: str) -> bytes | UnsetType | None:
        if not isinstance(expect, UnsetType):
            return None if expect is None else check_id(expect.id if isinstance(expect, Checkpoint) else expect, what)
        return UNSET if rebase or self.seen is None else self.seen

    def _conflict(self, base: bytes | UnsetType | None, tip: Tip | None) -> Conflict:
        expected = uuid_text(base) if isinstance(base, bytes) else None
        return Conflict(self._thread, expected, uuid_text(tip.note.checkpoint) if tip is not None else None)

    async def _already(self, tip: Tip, id: bytes) -> Checkpoint | None:
        """The checkpoint of this id, if it is there: then the save that is being repeated was done."""
        places = await self._context.ids.positions(self._context.engine, tip.head, id)
        trail = await Ancestry.to(self._context, tip.head, tip.head.branch, tip.head.step) if places else ()
        for branch_id, step in places:
            branch = await self._context.branch(tip.head.lineage, branch_id)
            seen = await seen_at(self._context, tip.head, branch, step) if branch is not None else None
            if seen is None or not seen.alive:
                continue
            if seen.branch.owner == tip.head.owner or (branch_id, step) in trail:
                if tip.note.checkpoint == id:
                    self.seen = id
                self._context.tips.put(tip)
                return await describe(self._context, tip.head, seen)
        return None

    async def _made_after_all(self, tip: Tip, id: bytes) -> Checkpoint | None:
        """The checkpoint of this id, if an attempt that seemed to fail did not. On the other side of a mirror somebody
        may even have gone on from it."""
        if self._context.mirror is None and tip.note.checkpoint != id:
            return None
        try:
            return await self._already(tip, id)
        except Unavailable:
            return None  # nobody can be asked; should it go to a spool, its delivery will know it by its id

    async def _moved(self, tip: Tip) -> bool:
        """Whether a tip that was remembered is not the newest any more."""
        head = await self._context.engine.head(self._thread)
        return head is None or head.key != tip.head.key

    async def _commit(self, plan: Plan, facts: Facts, id: bytes, now: int, tip: Tip | None, whole: bool) -> Checkpoint:
        context = self._context
        branches: tuple[Branch, ...] = ()
        root: Root | None
        lists: KnownLists | None
        if tip is None:
            owner = os.urandom(16)
            branch, step, parent = Branch(context.new_branch(), self._thread, self._thread, owner), 1, None
            branches = (branch,)
            here, lineage = branch.id, self._thread
            root, lists, digest = None, ({} if whole else None), NO_DIGEST
            version, created, count, kind = 1, now, 1, self._kind
            expect = None
        else:
            head = tip.head
            owner, lineage, kind, created = head.owner, head.lineage, head.kind, head.created
            if kind == "workspace" != self._kind:
                raise InvalidInput(
                    f"{self._thread!r} keeps a directory's snapshots: only store.workspace() writes to it"
                )
            step, parent, digest, root = head.step + 1, tip.note.checkpoint, tip.digest, tip.root
            version, count, expect = head.version + 1, head.count + 1, head.key
            here = head.branch
            if (
                tip.note.pinned
                or tip.root.streams > ENOUGH_STREAMS
                or not head.branch.startswith(context.branch_prefix)
            ):
                branch = Branch(context.new_branch(), lineage, self._thread, owner, (head.branch, head.step))
                branches, here, root = (branch,), branch.id, Root(tip.root.tree, 0)
            lists = tip.lists
            if whole and lists is None:
                lists = await StateReader(context, lineage, self._values).known_lists(tip.root.tree)
        try:
            planned = plan(self._planner(here, step, root, lists))
        except NeedsItems:
            assert tip is not None
            lists = await StateReader(context, lineage, self._values).known_lists(tip.root.tree)
            planned = plan(self._planner(here, step, root, lists))
        dictionary, bringing = b"", None
        if context.frames.compression is not None:
            dictionary, bringing = await choose(context, tip, here, step)
        row, blobs, meta = seal_row(context, here, step, id, digest, parent, now, planned, facts, dictionary)
        if bringing:
            blobs |= bringing
        line = await window_of(context, tip) if self._retires(tip) else None
        marks: list[Mark] = []
        if line is not None:
            policy = policy_of(context, tip) if tip is not None else context.retention
            marks = retire(context, policy, line)
            stays = (policy.keep_labelled and meta.label is not None) or not set(policy.keep_tags).isdisjoint(meta.tags)
            line.waiting.append((here, step, stays))
            line.rows += 1
        count -= len(marks)
        before = tip.note if tip is not None else Note(id)
        custom = before.custom if self.caption is None else self.caption(planned.root, id)
        note = Note(id, False, before.moves, custom, before.retention, dictionary)
        size = planned.root.tree.size
        stands = (self._thread, lineage, owner, here, step, version, kind, created, now, count, size)
        moved = Head(*stands, seal_note(context.frames, Head(*stands), note))
        swap = Swap(self._thread, expect, moved)
        await context.engine.commit(Commit(lineage, (swap,), (row,), branches, marks, blobs, self.fence))
        for new in branches:
            context.add_branch(new)
        if tip is not None:
            context.ids.saved(tip.head, moved, id, (here, step))
        context.tips.put(Tip(moved, note, row.digest, planned.root, lists, line))
        self.seen = id
        if line is not None and due(line):
            await self._sweep(lineage)
        return checkpoint(context.values, self._thread, id, step, meta, None, parent)

    def _retires(self, tip: Tip | None) -> bool:
        """Whether a save has to ask what it pushes out: nearly none has."""
        return self._context.retention.keep_last is not None or (tip is not None and bool(tip.note.retention))

    async def _sweep(self, lineage: str) -> None:
        """Free what saves have let go of. The save itself is done, so a sweep that fails is told to the log only."""
        try:
            await Sweeper(self._context).lineage(lineage)
        except BacktrailError as error:
            _log.warning("the sweep of %r after a save failed and is left to the next one: %s", lineage, error)

    def _planner(self, branch: bytes, step: int, root: Root | None, lists: KnownLists | None) -> Planner:
        context = self._context
        return Planner(self._values, branch, step, root, lists, context.frames.blob_id, context.identity)

    async def _beside(self, plan: Plan, facts: Facts, base: bytes, follow: bool, whole: bool) -> Checkpoint:
        """Save on a branch of its own off `base`. The head stays where another writer put it, or follows."""
        context = self._context
        id = facts.id or new_id(now_micros())
        for _ in tries():
            head = await context.engine.head(self._thread)
            if head is None:
                raise Conflict(self._thread, uuid_text(base), None)
            seen = await find(context, head, uuid_text(base))
            row = await context.engine.row(head.lineage, *seen.place)
            if row is None:
                raise Corrupt(describe_row(*seen.place), "the row is missing")
            reader = StateReader(context, head.lineage, self._values)
            root = await reader.root(*seen.place, row.root)
            lists = await reader.known_lists(root.tree) if whole else None
            branch = Branch(context.new_branch(), head.lineage, self._thread, head.owner, seen.place)
            step, fresh = seen.step.step + 1, Root(root.tree, 0)
            try:
                planned = plan(self._planner(branch.id, step, fresh, lists))
            except NeedsItems:
                planned = plan(self._planner(branch.id, step, fresh, await reader.known_lists(root.tree)))
            now = max(now_micros(), seen.meta.created + 1)
            new, blobs, meta = seal_row(context, branch.id, step, id, row.digest, base, now, planned, facts)
            if follow:
                moved = self._jump(head, branch.id, step, id, now, planned.root.tree.size)
            else:
                moved = touch(context.frames, head, now, count=head.count + 1)
            swap = Swap(self._thread, head.key, moved)
            try:
                await context.engine.commit(Commit(head.lineage, (swap,), (new,), (branch,), (), blobs, self.fence))
            except Refused:
                continue
            context.add_branch(branch)
            context.ids.saved(head, moved, id, (branch.id, step))
            if follow:
                self.seen = id
            return checkpoint(context.values, self._thread, id, step, meta, None, base)
        raise Conflict(self._thread, uuid_text(base), None)

    def _jump(self, head: Head, branch: bytes, step: int, id: bytes, now: int, size: int) -> Head:
        """The head, moved to a row on another branch; `undo` goes back to where it was."""
        old = open_note(self._context.frames, head)
        moves = (*old.moves, Move((branch, step), (head.branch, head.step)))[-MAX_MOVES:]
        note = msgspec.structs.replace(old, checkpoint=id, pinned=False, moves=moves)
        bare = msgspec.structs.replace(
            head,
            branch=branch,
            step=step,
            version=head.version + 1,
            updated=max(now, head.updated + 1),
            count=head.count + 1,
            size=size,
            note=b"",
        )
        return msgspec.structs.replace(bare, note=seal_note(self._context.frames, bare, note))


def seal_row(
    context: Context,
    branch: bytes,
    step: int,
    id: bytes,
    previous: bytes,
    parent: bytes | None,
    now: int,
    planned: PlannedRow,
    facts: Facts,
    dictionary: bytes = b"",
) -> tuple[NewRow, dict[bytes, bytes], Meta]:
    """A planned save as the bytes that an engine gets."""
    wrap = context.frames.wrap
    where = describe_row(branch, step)
    root = wrap(pack_root(planned.root, branch), f"{where}: root")
    payload = wrap(planned.payload, f"{where}: payload", dictionary)
    written = len(root) + len(payload)
    blobs: dict[bytes, bytes] = {}
    if planned.blobs or planned.framed:
        blobs = {name: wrap(data, f"blob {name.hex()}") for name, data in planned.blobs.items()} | planned.framed
        written += sum(map(len, blobs.values()))
    body = body_digest(root, payload)
    size = planned.root.tree.size
    meta = Meta(now, parent, size, written, body, facts.label, facts.tags, facts.custom, facts.files)
    packed = wrap(pack_meta(meta), f"{where}: meta")
    return NewRow(branch, step, id, packed, chain(previous, id, packed), root, payload), blobs, meta


async def read_tip(context: Context, thread: str, values: Values) -> Tip | None:
    """Where a thread stands now, by the engine's word."""
    found = await (context.engine.tip(thread) if context.spool is None else context.spool.base(thread))
    if found is None:
        return None
    head, row = found
    note = open_note(context.frames, head)
    if row is None:
        raise Corrupt(describe_row(head.branch, head.step), f"the row is missing, but thread {thread!r} stands on it")
    root: Root = await StateReader(context, head.lineage, values).root(head.branch, head.step, row.root)
    return Tip(head, note, row.digest, root, None)
