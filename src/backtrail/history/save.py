"""Saving: one save is one row, one head swap, one commit.

`save`, `append` and `update` are the public calls; each makes a plan and passes it to `save_plan`. That takes the tip
that the last save or load cached and tries once. Only if the tip is missing or stale does it read the head, and retry
for as long as other writers are faster. On any error, nothing has been written and the tip is dropped.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from backtrail.encode.change_detection import KnownLists
from backtrail.encode.frame import describe_row
from backtrail.encode.payload_format import ENOUGH_STREAMS
from backtrail.encode.planner import NeedsItems, PlannedRow, Planner
from backtrail.encode.row_format import Root
from backtrail.engines.base import Branch, Commit, HeadKey, Position, Swap
from backtrail.engines.conflicts import Refused
from backtrail.errors import Conflict, Corrupt, InvalidInput, Unavailable
from backtrail.history import retention_on_save, zstd_dictionary
from backtrail.history.ancestry import Ancestry, step_at, to_checkpoint
from backtrail.history.caches import Tip
from backtrail.history.checkpoint_ids import new_id, uuid_text
from backtrail.history.context import NO_PREFIX
from backtrail.history.file_refs import file_reference
from backtrail.history.records import (
    NO_DIGEST,
    Note,
    checkpoint,
    first_head,
    first_link,
    label_marks,
    next_head,
    now_micros,
    open_note,
    seal_row,
    start_branch,
)
from backtrail.history.resolve import resolve, whole_id
from backtrail.history.retry import attempts, repeat_while_moving
from backtrail.history.row_cache import RowCache
from backtrail.history.run_status import kind_at
from backtrail.history.save_arguments import NO_FACTS, Facts, OnConflict
from backtrail.history.state_reader import StateReader, through_cache
from backtrail.history.thread_handle import S, ThreadHandle
from backtrail.history.validation import check_name, check_names
from backtrail.model import Checkpoint

Plan = Callable[[Planner], PlannedRow]


# -- the ways to save --------------------------------------------------------------------------------------------------


async def save(
    thread: ThreadHandle[S],
    state: Any,
    label: str | None = None,
    tags: Any = (),
    custom: Mapping[str, Any] | None = None,
    files: Any = None,
    expect: Any = UNSET,
    id: Any = None,
    on_conflict: OnConflict = "raise",
    parent: Any = UNSET,
) -> Checkpoint:
    """Save the whole state; only what changed since the head is written.

    `expect` is the checkpoint (or id) that must be the head, None for a thread that must not exist yet; without it, the
    last one this handle loaded or saved. If the head is another, `Conflict` is raised; with on_conflict="branch" the
    state is saved on a branch of its own instead, and the head stays. `id` is a UUID chosen by the caller: if the
    thread has a checkpoint of that id, the save changes nothing. `parent` is the checkpoint to build on, wherever the
    head is: if it is not the head, a branch begins at `parent` and the head moves there.
    """
    facts = await check_facts(thread, label, tags, custom, files, id)
    plan: Plan = partial(Planner.replace, state=state)
    try:
        return await save_plan(
            thread, plan, facts, expect=expect, compare_lists=True, on_conflict=on_conflict, parent=parent
        )
    except Unavailable as error:
        if thread.context.spool is None:
            raise
        from backtrail.history.mirrored_save import is_adrift, save_adrift  # few stores have a spool

        if not await is_adrift(thread):
            raise
        tried = whole_id(error.id)
        return await save_adrift(thread, state, facts, tried, expect=expect, on_conflict=on_conflict, parent=parent)


async def append(
    thread: ThreadHandle[S],
    key: str,
    items: Any,
    label: str | None = None,
    tags: Any = (),
    custom: Mapping[str, Any] | None = None,
    files: Any = None,
    expect: Any = UNSET,
    id: Any = None,
) -> Checkpoint:
    """Add items at the end of the list `state[key]`. The items before them are neither read nor compared, and if
    another writer was faster, the new items go after theirs. A missing thread or list is created."""
    facts = await check_facts(thread, label, tags, custom, files, id)
    if type(items) not in (list, tuple):
        raise InvalidInput(f"append() takes a list of items, not {type(items).__qualname__}")
    plan: Plan = partial(Planner.append, key=check_name(key, "key"), items=list(items))
    return await save_plan(thread, plan, facts, expect=expect, rebase=expect is UNSET)


async def update(
    thread: ThreadHandle[S],
    changes: Mapping[str, Any],
    label: str | None = None,
    tags: Any = (),
    custom: Mapping[str, Any] | None = None,
    files: Any = None,
    expect: Any = UNSET,
    id: Any = None,
    on_conflict: OnConflict = "raise",
    parent: Any = UNSET,
    remove: Any = (),
    append: tuple[str, list[Any] | tuple[Any, ...]] | None = None,
    created_at: Any = None,
) -> Checkpoint:
    """Set some top-level keys, delete those in `remove`, and add items at the end of one list with `append=(key,
    items)`, all in one checkpoint; everything else is unchanged and not read. `created_at` is the time of a step that
    was made elsewhere, and is imported now."""
    facts = await check_facts(thread, label, tags, custom, files, id, created_at)
    if not isinstance(changes, Mapping):
        raise InvalidInput(f"update() takes a dict, not {type(changes).__qualname__}")
    plan: Plan = partial(
        Planner.change,
        changes=dict(changes),
        append=None if append is None else _check_append(append),
        drop=check_names(remove, "remove", "key"),
    )
    compare_lists = any(type(value) in (list, dict) for value in changes.values())
    return await save_plan(
        thread, plan, facts, expect=expect, compare_lists=compare_lists, on_conflict=on_conflict, parent=parent
    )


async def edit(thread: ThreadHandle[S], plan: Plan, facts: Facts, *, compare_lists: bool = False) -> Checkpoint:
    """For views: save any plan, based on whatever the head is at the commit."""
    return await save_plan(thread, plan, facts, compare_lists=compare_lists, rebase=True)


async def check_facts(
    thread: ThreadHandle[S], label: Any, tags: Any, custom: Any, files: Any, id: Any, created_at: Any = None
) -> Facts:
    """The metadata of a save, checked; for views too. Of a workspace in `files`, a snapshot is taken."""
    if label is None and not tags and not custom and files is None and id is None and created_at is None:
        return NO_FACTS
    reference = None if files is None else await file_reference(files)
    return Facts.check(thread.values, label, tags, custom, reference, id, created_at)


def _check_append(value: Any) -> tuple[str, list[Any]]:
    if type(value) is not tuple or len(value) != 2 or type(value[1]) not in (list, tuple):
        raise InvalidInput(f"append must be a tuple (key, list of items), not {value!r:.80}")
    return check_name(value[0], "key"), list(value[1])


# -- trying ------------------------------------------------------------------------------------------------------------


class SaveRequest:
    """One requested save: everything that its attempts have in common."""

    __slots__ = ("base_id", "branches", "compare_lists", "facts", "follows", "id", "own_id", "plan")

    def __init__(self, plan: Plan, facts: Facts, base_id: bytes | UnsetType | None, compare_lists: bool) -> None:
        self.plan = plan
        self.facts = facts
        self.base_id = base_id  # the checkpoint that must be the head; None: no thread; UNSET: whatever is there
        self.compare_lists = compare_lists  # the plan compares lists, so their items must be known
        self.own_id: bytes | None = None  # a save of the same handle that counts as `base_id` too
        self.branches = False  # if another checkpoint is the head, save on a branch off `base_id`
        self.follows = False  # … and move the head there
        self.id = facts.id  # the same for all attempts: two made on two sides of a mirror are recognized as one

    def time(self) -> int:
        """Now, or when the step was made elsewhere. A time to come would be that of all steps until then."""
        return now_micros() if self.facts.created is None else min(self.facts.created, now_micros())


async def save_plan(
    thread: ThreadHandle[S],
    plan: Plan,
    facts: Facts,
    *,
    expect: Any = UNSET,
    compare_lists: bool = False,
    rebase: bool = False,
    on_conflict: OnConflict = "raise",
    parent: Any = UNSET,
    repeats: bytes | None = None,
) -> Checkpoint:
    """Plan and commit one checkpoint; for views too. `compare_lists`: the plan compares lists, so their items must be
    known. `rebase`: the change applies to whatever the head is. `repeats`: the id of an attempt that may have been
    made. The rest is as in `save`."""
    context = thread.context
    if context.closed:
        context.check_open()  # raises
    if on_conflict not in ("raise", "branch"):
        raise InvalidInput(f"on_conflict={on_conflict!r} is unknown: use 'raise' or 'branch'")
    request = SaveRequest(plan, facts, UNSET if rebase else thread.base_id or UNSET, compare_lists)
    request.id = facts.id or repeats
    if parent is not UNSET:
        if expect is not UNSET:
            raise InvalidInput("expect= and parent= cannot be given together: parent= never conflicts")
        request.base_id, request.branches, request.follows = await _id_of(thread, parent, "parent"), True, True
    elif expect is not UNSET:
        request.base_id = await _id_of(thread, expect, "expect")
    else:
        request.own_id = thread.unsure_id
    if on_conflict == "branch":
        request.branches = True
    try:
        tip = context.caches.tips.take(thread.id)
        saved = await _save_on_cached_tip(thread, request, tip) if tip is not None else None
        if saved is None:
            saved = await _save_on_head(thread, request)
    except Corrupt as damage:
        saved = await repeat_while_moving(thread, damage, lambda: _save_on_head(thread, request))
    except Unavailable as error:  # the commit may have been made all the same
        thread.unsure_id = request.id = request.id or new_id(now_micros())
        raise _with_id(error, request.id) from error.__cause__
    thread.unsure_id = None
    return saved


def _with_id(error: Unavailable, id: bytes) -> Unavailable:
    """The error of one save. Saves that share a commit share its error, but each has an id of its own."""
    own = copy.copy(error)
    own.id = uuid_text(id)
    return own.with_traceback(error.__traceback__)


async def _id_of(thread: ThreadHandle[S], at: Any, argument: str) -> bytes | None:
    """The id of the checkpoint that `expect` or `parent` names; a whole id is not looked up."""
    if at is None or (id := whole_id(at)) is not None:
        return None if at is None else id
    return (await resolve(thread.context, await thread.require_head(), at, argument)).step.id


async def _save_on_cached_tip(thread: ThreadHandle[S], request: SaveRequest, tip: Tip) -> Checkpoint | None:
    """Save on the cached tip; None if it is not, or may not be, the head any more."""
    if request.base_id is not UNSET and tip.note.checkpoint != request.base_id:
        return None
    if request.facts.id is not None:
        if thread.context.mirror is not None:
            return None  # the tip may be that of one side, and the ids those of the other
        done = await find_saved(thread, tip, request.facts.id)
        if done is not None:
            head = await thread.context.engine.head(thread.id)  # it may have been undone since, or the thread deleted
            return done if head is not None and head.key == tip.head.key else None
    try:
        return await _commit(thread, request, tip)
    except (Refused, Corrupt):
        return None  # another writer was faster, a sweep swapped the head, or a mirror changed sides


async def _save_on_head(thread: ThreadHandle[S], request: SaveRequest) -> Checkpoint:
    """Save on the head that the engine returns; retried until no other writer is faster.

    If the head has not moved after a refusal, no writer was faster: the step after it is taken by a row that was copied
    from elsewhere, or left by a head that was put back. Then the save starts a branch beside that row."""
    refused: HeadKey | None = None
    context = thread.context
    for _ in attempts():
        generation = context.generation
        tip = await read_tip(thread)
        done = await _find_done(thread, request, tip) if tip is not None and request.id is not None else None
        if done is not None:
            return done
        if context.generation != generation:
            context.caches.ids.forget(thread.id)  # they may be those of one side, and the tip that of the other
            continue
        current = tip.note.checkpoint if tip is not None else None
        if request.base_id is not UNSET and current != request.base_id and (not current or current != request.own_id):
            if request.branches and isinstance(request.base_id, bytes):
                from backtrail.history.branch_save import save_on_branch  # it is made of the functions here

                return await save_on_branch(thread, request, request.base_id)
            raise _conflict(thread, request, tip)
        try:
            return await _commit(thread, request, tip, beside=tip is not None and tip.head.key == refused)
        except Refused:
            refused = None if tip is None else tip.head.key
    raise _conflict(thread, request, await read_tip(thread))


def _conflict(thread: ThreadHandle[S], request: SaveRequest, tip: Tip | None) -> Conflict:
    expected = uuid_text(request.base_id) if isinstance(request.base_id, bytes) else None
    return Conflict(thread.id, expected, uuid_text(tip.note.checkpoint) if tip is not None else None)


async def _find_done(thread: ThreadHandle[S], request: SaveRequest, tip: Tip) -> Checkpoint | None:
    """The checkpoint, if this save was already made: by an earlier call with the same id, or by an attempt that seemed
    to fail."""
    assert request.id is not None
    if request.facts.id is not None or (thread.context.mirror is None and tip.note.checkpoint == request.id):
        return await find_saved(thread, tip, request.id)
    if thread.context.mirror is None:
        return None
    from backtrail.history.mirrored_save import find_on_either_side  # few stores have a replica

    return await find_on_either_side(thread, tip, request.id)


async def find_saved(thread: ThreadHandle[S], tip: Tip, id: bytes) -> Checkpoint | None:
    """The thread's checkpoint of this id; None if it was deleted or belongs to another thread."""
    context, head = thread.context, tip.head
    if tip.note.checkpoint == id:
        positions: tuple[Position, ...] = (head.position,)
    else:
        positions = await context.caches.ids.positions(context.engine, head, id)
    ancestry = await Ancestry.of(context, head) if positions else ()
    for position in positions:
        branch = await context.branch(head.lineage, position[0])
        found = await step_at(context, head, branch, position[1]) if branch is not None else None
        if found is not None and found.alive and (found.branch.owner == head.owner or position in ancestry):
            if tip.note.checkpoint == id:
                thread.base_id = id
            context.caches.tips.put(tip)
            return await to_checkpoint(context, head, found)
    return None


async def read_tip(thread: ThreadHandle[S]) -> Tip | None:
    """The tip of a thread, read from the engine, without the items of its lists."""
    context = thread.context
    found = await (context.engine.tip(thread.id) if context.spool is None else context.spool.base(thread.id))
    if found is None:
        return None
    head, row = found
    note = open_note(context.frames, head)
    if row is None:
        raise Corrupt(
            describe_row(head.branch, head.step), f"the row is missing, but it is the head of thread {thread.id!r}"
        )
    root = await StateReader(context, head.lineage, thread.values).root(head.branch, head.step, row.root)
    return Tip(head, note, row.digest, root, None)


# -- committing --------------------------------------------------------------------------------------------------------


class RowBase(msgspec.Struct):
    """The position of a new row, and the parts of the row before it that it builds on."""

    lineage: str
    position: Position
    parent: bytes | None
    digest: bytes  #: what the row is chained to: the digest of the row before, or the branch's first link
    root: Root | None  #: of the row before, with the streams of the new row's branch
    lists: KnownLists | None  #: the plan changes them
    started: tuple[Branch, ...] = ()  #: the branch, if the row is its first


async def _commit(thread: ThreadHandle[S], request: SaveRequest, tip: Tip | None, beside: bool = False) -> Checkpoint:
    """Plan the next row of a thread, and commit it with its head; `beside`: on a branch of its own."""
    context, frames = thread.context, thread.context.frames
    base = _first_row(thread) if tip is None else _next_row(thread, tip, beside)
    planned = await plan_row(thread, request, base)
    dictionary = zstd_dictionary.NONE
    if frames.compression is not None:
        dictionary = await zstd_dictionary.choose(context, tip, base.position)
    now = request.time() if tip is None else max(request.time(), tip.head.updated + 1)
    id = request.id = request.id or new_id(now)
    row, blobs, meta = seal_row(
        frames, base.position, id, base.digest, base.parent, now, planned, request.facts, dictionary.name
    )
    retired = retention_on_save.NONE
    if context.retention.keep_last is not None or (tip is not None and tip.note.retention):
        retired = await retention_on_save.retire(context, tip, base.position, request.facts)
    old = Note(id) if tip is None else tip.note
    caption = old.custom if thread.caption is None else thread.caption(planned.root, id)
    note = Note(id, False, old.moves, caption, old.retention, dictionary.name)
    size = planned.root.tree.size
    kind = kind_at(thread.kind if tip is None else tip.head.kind, planned.root)
    if tip is None:
        head = first_head(frames, context.generation, base.started[0], kind, now, size, note)
    else:
        removed = len(retired.marks)
        head = next_head(frames, context.generation, tip.head, base.position, kind, now, size, note, removed)
    swap = Swap(thread.id, None if tip is None else tip.head.key, head)
    blobs |= dictionary.blobs
    marks = [*retired.marks, *label_marks(frames, *base.position, meta)]
    await context.engine.commit(Commit(base.lineage, (swap,), (row,), base.started, marks, blobs, thread.fence))
    context.caches.add_saved(None if tip is None else tip.head, head, id, base.position, base.started)
    context.caches.tips.put(Tip(head, note, row.digest, planned.root, base.lists, retired.window))
    thread.base_id = id
    if retired.window is not None:
        await retention_on_save.sweep_if_due(context, base.lineage, retired.window)
    return checkpoint(context.values, thread.id, id, base.position[1], meta, None, base.parent)


def _first_row(thread: ThreadHandle[S]) -> RowBase:
    context = thread.context
    branch = start_branch(context.frames, context.new_branch(), thread.id, thread.id, os.urandom(16))
    return RowBase(thread.id, (branch.id, 1), None, first_link(branch, NO_DIGEST), None, None, (branch,))


def _next_row(thread: ThreadHandle[S], tip: Tip, beside: bool) -> RowBase:
    head, context = tip.head, thread.context
    if head.kind == "workspace" != thread.kind:
        raise InvalidInput(f"{thread.id!r} keeps a directory's snapshots: only store.workspace() writes to it")
    prefix = NO_PREFIX if context.mirror is None else context.mirror.branch_prefix
    current = head.branch.startswith(prefix)  # else it was begun by a mirror, or before a failover
    if current and not beside and not tip.note.pinned and tip.root.streams <= ENOUGH_STREAMS:
        position = (head.branch, head.step + 1)
        return RowBase(head.lineage, position, tip.note.checkpoint, tip.digest, tip.root, tip.lists)
    branch = start_branch(
        context.frames, context.new_branch(), head.lineage, thread.id, head.owner, head.position, tip.digest
    )
    position, root, link = (branch.id, head.step + 1), Root(tip.root.tree, 0), first_link(branch, tip.digest)
    return RowBase(head.lineage, position, tip.note.checkpoint, link, root, tip.lists, (branch,))


async def plan_row(thread: ThreadHandle[S], request: SaveRequest, base: RowBase) -> PlannedRow:
    """The planned row. The items of lists are read if the plan needs them and they are not known."""
    if request.compare_lists and base.lists is None:
        await _read_lists(thread, base)
    frames, identity = thread.context.frames, thread.context.identity
    while True:
        try:
            planner = Planner(thread.values, *base.position, base.root, base.lists, frames.blob_id, identity)
            return request.plan(planner)
        except NeedsItems:
            await _read_lists(thread, base)


async def _read_lists(thread: ThreadHandle[S], base: RowBase) -> None:
    base.lists = {}
    if base.root is not None:
        context, tree = thread.context, base.root.tree

        async def read(rows: RowCache) -> KnownLists:
            return await StateReader(context, base.lineage, thread.values, cache=rows).known_lists(tree)

        base.lists = await through_cache(context, read)
