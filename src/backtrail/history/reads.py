"""Reading a thread: its states and its checkpoints. Nothing here writes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from heapq import heappop, heappush
from typing import Any, NamedTuple

from backtrail.encode.frame import describe_row
from backtrail.encode.planner import PlannedRow
from backtrail.encode.record_types import conform
from backtrail.encode.row_format import ListNode, Root
from backtrail.encode.values import Values
from backtrail.engines.base import LAST_STEP, Head, Position, Row
from backtrail.engines.branch_origins import previous_position
from backtrail.errors import Corrupt, ThreadNotFound
from backtrail.history.ancestry import (
    CHUNK,
    Ancestry,
    HistoryStep,
    labelled_steps,
    make_checkpoint,
    own_branches,
    parent_of,
    steps_from_end,
    to_checkpoint,
)
from backtrail.history.caches import Tip
from backtrail.history.checkpoint_ids import uuid_text
from backtrail.history.records import open_note
from backtrail.history.resolve import resolve, whole_id
from backtrail.history.retry import rereading
from backtrail.history.row_cache import RowCache
from backtrail.history.salvage import SalvageReader, hole
from backtrail.history.state_reader import StateReader, through_cache
from backtrail.history.thread_handle import S, ThreadHandle
from backtrail.history.validation import check_custom, check_limit, check_name, check_names
from backtrail.model import Checkpoint

# -- states ------------------------------------------------------------------------------------------------------------


async def load(thread: ThreadHandle[S], at: Any = None, as_: Any = None, salvage: bool = False) -> Any:
    """The state at the head, or at `at`. `salvage`: if it is damaged, everything of it but the holes, as plain values,
    with a `Hole` in the place of each of them."""
    if not salvage:
        return await _load(thread, at, as_)
    try:
        return await _load(thread, at, as_)
    except Corrupt:
        return await _salvage(thread, at)


async def _salvage(thread: ThreadHandle[S], at: Any) -> Any:
    head, _, position, row = await _read_row(thread, at, salvage=True)
    reader = SalvageReader(thread.context, head.lineage, thread.values)
    try:
        root = await reader.root(*position, row.root, deep=False)
    except Corrupt as damage:
        return hole(damage)
    return await reader.value(root.tree)


@rereading
async def _load(thread: ThreadHandle[S], at: Any, as_: Any) -> Any:
    wanted = as_ or thread.type
    values = thread.values if as_ is None else Values(thread.values.types.with_type(as_))
    head, id, position, row = await _read_row(thread, at)
    context = thread.context

    async def read(rows: RowCache) -> tuple[Root, Any]:
        reader = StateReader(context, head.lineage, values, _subject(thread, id), rows)
        tip = context.caches.tips.peek(thread.id) if position == head.position else None
        if tip is not None and tip.head == head:  # then its root is in memory already, with all pages
            root = tip.root
            reader.begin(describe_row(*position))
        else:
            root = await reader.root(*position, row.root)
        return root, await reader.value(root.tree)

    root, state = await through_cache(context, read)
    if position == head.position:
        _remember_tip(thread, head, row, root)
    if at is None:
        thread.base_id, thread.loaded_kind = id, head.kind
    return state if wanted is None else conform(state, wanted)


@rereading
async def pick(thread: ThreadHandle[S], keys: Any, at: Any = None) -> dict[str, Any]:
    """The values of those of these top-level keys that the state has; nothing else is read."""
    names = check_names(keys, "keys", "key")
    _, _, root, reader = await read_root(thread, at)
    children = root.tree.children or {}
    return {name: await reader.value(children[name]) for name in names if name in children}


@rereading
async def tail(thread: ThreadHandle[S], key: str, count: int, at: Any = None) -> list[Any]:
    """The last `count` items of the list `state[key]`, without reading those before them."""
    limit = check_limit(count, "count") or 0
    _, _, root, reader = await read_root(thread, at)
    node = (root.tree.children or {}).get(check_name(key, "key"))
    if node is None:
        return []
    if isinstance(node, ListNode):
        return await read_end(thread, reader, node, max(0, node.count - limit))
    return (await reader.items(node, 0, 2**31))[-limit:] if limit else []


class RootRead(NamedTuple):
    """The root of a checkpoint, with the head and the checkpoint's id, and a reader for the rows it points at."""

    head: Head
    checkpoint: bytes
    root: Root
    reader: StateReader


@rereading
async def read_root(thread: ThreadHandle[S], at: Any = None, deep: bool = True, salvage: bool = False) -> RootRead:
    """For views: the root at the head, or at `at`; `deep`: with every page of its tree. `salvage`: with a reader that
    reads round damage."""
    head, id, position, row = await _read_row(thread, at, salvage)
    if salvage:
        salvager = SalvageReader(thread.context, head.lineage, thread.values, _subject(thread, id))
        return RootRead(head, id, await salvager.root(*position, row.root, deep=False), salvager)
    reader = StateReader(thread.context, head.lineage, thread.values, _subject(thread, id))
    tip = thread.context.caches.tips.peek(thread.id) if at is None and deep else None
    if tip is not None and tip.head == head:  # then its root is in memory already
        return RootRead(head, id, tip.root, reader)
    return RootRead(head, id, await reader.root(*position, row.root, deep), reader)


def _subject(thread: ThreadHandle[S], id: bytes) -> Callable[[], str]:
    return lambda: f"checkpoint {uuid_text(id)} of thread {thread.id!r}"


async def read_end(thread: ThreadHandle[S], reader: StateReader, listing: ListNode, start: int) -> list[Any]:
    """For views: the items of a list from `start` to its end, from the cache if it has them."""
    tails = thread.context.caches.tails
    found = tails.items(listing, start, listing.count, thread.values)
    if found is None:
        known = tails.known_up_to(listing, start)  # others may have added a few
        more = await reader.items(listing, known, listing.count)
        tails.add_read(listing, known, more)
        if known == start:
            return more
        found = tails.items(listing, start, listing.count, thread.values)
    return found if found is not None else await reader.items(listing, start, listing.count)


def remember_end(thread: ThreadHandle[S], key: str, planned: PlannedRow) -> None:
    """For views: cache the items that a row, just committed, has added to the list at a top-level key, for the next
    read of the list's end."""
    node = (planned.root.tree.children or {}).get(key)
    if isinstance(node, ListNode):
        thread.context.caches.tails.add_written(node, planned.payload, thread.values)


async def _read_row(thread: ThreadHandle[S], at: Any, salvage: bool = False) -> tuple[Head, bytes, Position, Row]:
    """(head, checkpoint id, position, row) of the checkpoint that `at` names."""
    context = thread.context
    context.check_open()
    if at is None:
        found = await context.engine.tip(thread.id)
        if found is None:
            raise ThreadNotFound(thread.id)
        head, row = found
        saved = context.caches.tips.peek(thread.id)
        # If the engine gives back the very head that was saved, its note was made here and need not be checked.
        note = saved.note if saved is not None and saved.head is head else open_note(context.frames, head)
        id, position = note.checkpoint, head.position
    else:
        head = await thread.require_head()
        id, position = open_note(context.frames, head).checkpoint, head.position
        if whole_id(at) != id:
            one = await resolve(context, head, at, salvage=salvage)
            id, position = one.step.id, one.position
        row = await context.engine.row(head.lineage, *position)
    if row is None:
        raise Corrupt(describe_row(*position), "the row is missing")
    return head, id, position, row


def _remember_tip(thread: ThreadHandle[S], head: Head, row: Row, root: Root) -> None:
    """Cache the tip that was read, with all pages of its tree, so that the next save or load does not read it."""
    context = thread.context
    if context.spool is None and context.caches.tips.peek(thread.id) is None:
        context.caches.tips.put(Tip(head, open_note(context.frames, head), row.digest, root, None))


# -- checkpoints -------------------------------------------------------------------------------------------------------


@rereading
async def head(thread: ThreadHandle[S]) -> Checkpoint | None:
    """The checkpoint at the head."""
    context = thread.context
    found = await _find_head(thread)
    return None if found is None else await to_checkpoint(context, found, await resolve(context, found, found.step))


async def step(thread: ThreadHandle[S]) -> int:
    """The step of the head, 0 if there is none."""
    thread.context.check_open()
    found = await thread.context.engine.head(thread.id)
    return found.step if found is not None else 0


async def exists(thread: ThreadHandle[S]) -> bool:
    """True if the thread has a checkpoint."""
    thread.context.check_open()
    return await thread.context.engine.head(thread.id) is not None


@rereading
async def get(thread: ThreadHandle[S], at: Any, salvage: bool = False) -> Checkpoint:
    """The checkpoint that `at` names; `salvage`: also if it is damaged, marked as such."""
    found = await thread.require_head()
    return await to_checkpoint(thread.context, found, await resolve(thread.context, found, at, salvage=salvage))


@rereading
async def history(
    thread: ThreadHandle[S],
    limit: int | None = None,
    newest_first: bool = False,
    all: bool = False,
    salvage: bool = False,
) -> list[Checkpoint]:
    """The checkpoints from the thread's first to its head, oldest first, including those that a fork inherited. `limit`
    keeps the newest. `all`: abandoned ones as well. `salvage`: damaged ones are listed too, marked as such."""
    most = check_limit(limit)
    found = await _find_head(thread)
    if found is None or most == 0:
        return []
    ancestry = await Ancestry.of(thread.context, found)
    page = _Page(most)
    checkpoints: list[Checkpoint] = []
    async for one, parent in _living(thread, found, ancestry, page.chunk, salvage):
        page.add(one)
        checkpoints.append(make_checkpoint(thread.context, one, parent))
        if len(checkpoints) == most:
            break
    if all:
        async for one, parent in _abandoned(thread, found, ancestry, page, salvage):
            checkpoints.append(make_checkpoint(thread.context, one, parent))
        checkpoints.sort(key=lambda c: (c.step, c.created_at, c.id), reverse=True)
    checkpoints = checkpoints[:most]
    return checkpoints if newest_first else checkpoints[::-1]


class _Page:
    """The steps of the checkpoints on a page of `most`: those of the highest steps that were found so far."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._steps: list[int] = []  # a heap
        self.chunk = CHUNK if most is None else min(most + 1, CHUNK)  #: steps to read at first

    def wants(self, one: HistoryStep) -> bool:
        """True if a checkpoint may be on the page."""
        return self._most is None or len(self._steps) < self._most or one.step.step >= self._steps[0]

    def add(self, one: HistoryStep) -> None:
        """A checkpoint was found."""
        if self._most is not None:
            heappush(self._steps, one.step.step)
            if len(self._steps) > self._most:
                heappop(self._steps)


async def _find_head(thread: ThreadHandle[S]) -> Head | None:
    thread.context.check_open()
    found = await thread.context.engine.head(thread.id)
    if found is not None:
        open_note(thread.context.frames, found)  # nothing relies on a damaged head
    return found


async def _living(
    thread: ThreadHandle[S], head: Head, ancestry: Ancestry, chunk: int = CHUNK, salvage: bool = False
) -> AsyncIterator[tuple[HistoryStep, HistoryStep | None]]:
    """The checkpoints of a history, newest first, each with its parent."""
    child: HistoryStep | None = None
    newest: Position | None = None
    async for one in ancestry.steps_back(chunk=chunk, salvage=salvage):
        newest = newest or one.position
        if newest != head.position:
            break
        if one.alive:
            if child is not None:
                yield child, one
            child = one
    if newest != head.position:
        raise Corrupt(describe_row(*head.position), f"the row is missing, but it is the head of thread {thread.id!r}")
    if child is not None:
        yield child, None


async def _abandoned(
    thread: ThreadHandle[S], head: Head, ancestry: Ancestry, page: _Page, salvage: bool = False
) -> AsyncIterator[tuple[HistoryStep, HistoryStep | None]]:
    """The checkpoints that this thread wrote and that are not in its history, with their parents; of each branch, from
    its end on, only those that may be on the page."""
    context = thread.context
    in_history = {segment.branch.id: segment.last for segment in ancestry.segments}
    branches = {branch.id: branch for branch in await context.branches(head.lineage)}
    origins: dict[Position | None, HistoryStep | None] = {}  # branches often begin at the same checkpoint
    for branch in branches.values():
        if branch.owner != head.owner:
            continue
        child: HistoryStep | None = None
        async for one in steps_from_end(context, head, branch, in_history.get(branch.id, 0) + 1, page.chunk, salvage):
            if not one.alive:
                continue
            if child is not None:
                yield child, one
            child = one if page.wants(one) else None
            if child is None:
                break
            page.add(one)
        if child is not None:
            before = previous_position(branch, child.step.step)
            if before not in origins:
                origins[before] = await parent_of(context, head, branch, child.step.step, salvage, branches.get)
            yield child, origins[before]


@rereading
async def find(
    thread: ThreadHandle[S], tag: str | None = None, label: str | None = None, custom: Mapping[str, Any] | None = None
) -> list[Checkpoint]:
    """Checkpoints with this tag, this label and these custom fields, oldest first, abandoned ones included. Those of a
    label are found without reading the others."""
    fields = check_custom(custom)
    head = await _find_head(thread)
    if head is None:
        return []
    ancestry = await Ancestry.of(thread.context, head)
    found: list[Checkpoint] = []
    steps = _all_steps(thread, head, ancestry) if label is None else _labelled(thread, head, ancestry, label)
    async for one, parent in steps:
        if tag is None or tag in one.facts.tags:
            checkpoint = make_checkpoint(thread.context, one, parent)
            if all(key in checkpoint.custom and _equal(checkpoint.custom[key], value) for key, value in fields.items()):
                found.append(checkpoint)
    return sorted(found, key=lambda c: (c.step, c.created_at, c.id))


async def _all_steps(
    thread: ThreadHandle[S], head: Head, ancestry: Ancestry
) -> AsyncIterator[tuple[HistoryStep, HistoryStep | None]]:
    async for pair in _living(thread, head, ancestry):
        yield pair
    async for pair in _abandoned(thread, head, ancestry, _Page(None)):
        yield pair


async def _labelled(
    thread: ThreadHandle[S], head: Head, ancestry: Ancestry, label: str
) -> AsyncIterator[tuple[HistoryStep, HistoryStep | None]]:
    """The checkpoints of a label, with their parents."""
    context = thread.context
    ends = {segment.branch.id: segment.last for segment in ancestry.segments}
    abandoned = [(branch, ends.get(branch.id, 0) + 1, LAST_STEP) for branch in await own_branches(context, head)]
    for branch, first, last in (*ancestry.segments, *abandoned):
        for one in await labelled_steps(context, head, branch, first, last):
            if one.facts.label == label:
                yield one, await parent_of(context, head, branch, one.step.step, salvage=True)


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except ArithmeticError:  # a signalling NaN: it equals nothing
        return False
