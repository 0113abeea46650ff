"""Saves whose base is gone, as the beginning of a thread: they keep what they brought themselves.

A save adds to the state before it. If others deleted that, and its rows were freed, a save that waited in a spool
meanwhile cannot be stored as it is: it points at rows that nobody has. So its state is read without them and written
anew: the items that it appended, the values that it set, its id, label, tags and custom fields.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from backtrail.encode.change_detection import KnownLists
from backtrail.encode.planner import PlannedRow, Planner
from backtrail.encode.record_types import Unregistered
from backtrail.encode.row_format import ListNode, Root
from backtrail.engines.base import Branch, Engine, Mark, NewRow, Position
from backtrail.engines.branch_origins import previous_position
from backtrail.history.context import Context
from backtrail.history.records import (
    NO_DIGEST,
    first_link,
    label_marks,
    open_mark,
    read_step,
    seal_mark,
    seal_row,
    start_branch,
)
from backtrail.history.salvage import SalvageReader
from backtrail.history.save_arguments import Facts
from backtrail.model import Hole
from backtrail.replicate.merge_rules import SpooledRow


class _Rewritten(msgspec.Struct):
    """A row that was written anew, with all that the next one builds on."""

    position: Position
    id: bytes
    digest: bytes
    root: Root
    lists: KnownLists
    type: str | None  #: of its state
    children: dict[str, Any]  #: the nodes of its state, as they were


class DetachedSaves:
    """Rewrites the saves of one thread, in the order in which they were made. `names`: of its lineage and itself, as
    they are sealed."""

    def __init__(self, context: Context, engine: Engine, names: tuple[str, str], saves: Sequence[SpooledRow]) -> None:
        self._context = context.with_engine(engine)
        self._new_branch = context.new_branch
        self._lineage, self._thread = names
        first = saves[0].position[0]
        #: the same each time, so that a delivery that is repeated recognizes its thread, and no other spool's
        self.owner = hashlib.blake2b(saves[0].head.owner + first, digest_size=16).digest()
        self.branches: list[Branch] = []
        self.rows: list[NewRow] = []
        self.marks: list[Mark] = []
        self.blobs: dict[bytes, bytes] = {}
        self._made: dict[Position, _Rewritten] = {}
        self._taken: set[Position] = set()

    async def add(self, save: SpooledRow, lineage: str) -> None:
        """Rewrite the next save of a lineage, whose name the engine knows."""
        context, frames = self._context, self._context.frames
        reader = SalvageReader(context, lineage)
        tree = (await reader.root(*save.position, save.row.root, deep=False)).tree
        children: dict[str, Any] = await reader.children(tree)
        base = self._base(save)
        position, link, old = self._next(base)
        lists: KnownLists = {} if base is None or old is None else base.lists
        planner = Planner(context.values, *position, old, lists, frames.blob_id)
        if base is None or old is None or base.type != tree.type:
            planned = planner.replace(_without_holes(await reader.value(tree)))
        else:  # only what is new is read: of a list that grew by each of many saves, what each of them appended
            planned = await _change(planner, reader, base.children, children)
        meta, _ = read_step(frames, save.position[0], save.row)
        facts = Facts(meta.label, meta.tags, meta.custom, meta.files)
        parent = None if base is None else base.id
        row, blobs, sealed = seal_row(frames, position, save.row.id, link, parent, meta.created, planned, facts)
        self.rows.append(row)
        self._taken.add(position)
        self.blobs |= blobs
        if save.row.mark is not None:
            self.marks.append(seal_mark(frames, *position, open_mark(frames, *save.position, save.row.mark)))
        else:
            self.marks += label_marks(frames, *position, sealed)
        self._made[save.position] = _Rewritten(position, row.id, row.digest, planned.root, lists, tree.type, children)

    def at(self, position: Position) -> NewRow:
        """The row that was at this position; the last one if that is gone."""
        made = self._made.get(position)
        return next((row for row in self.rows if made is not None and row.id == made.id), self.rows[-1])

    def _base(self, save: SpooledRow) -> _Rewritten | None:
        branch, step = save.position
        before = (branch, step - 1) if save.branch is None else previous_position(save.branch, step)
        return None if before is None else self._made.get(before)

    def _next(self, base: _Rewritten | None) -> tuple[Position, bytes, Root | None]:
        """The position of the row after this one, the digest that it is chained to, and the root that it changes."""
        if base is not None and (following := (base.position[0], base.position[1] + 1)) not in self._taken:
            return following, base.digest, base.root
        origin, digest = (None, NO_DIGEST) if base is None else (base.position, base.digest)
        made = start_branch(
            self._context.frames, self._new_branch(), self._lineage, self._thread, self.owner, origin, digest
        )
        self.branches.append(made)
        return (made.id, 1 if origin is None else origin[1] + 1), first_link(made, digest), None


async def _change(planner: Planner, reader: SalvageReader, before: dict[str, Any], after: dict[str, Any]) -> PlannedRow:
    """Plan the change from one state to the next, both given by their nodes."""
    changes: dict[str, Any] = {}
    append: tuple[str, list[Any]] | None = None
    for key, node in after.items():
        old: Any = before.get(key)
        if old is None or node != old:
            if append is None and _grew(old, node):
                append = key, _without_holes(await reader.items(node, old.count, node.count))
            else:
                changes[key] = await reader.value(node)
    gone = {*before} - {*after} | {key for key, value in changes.items() if isinstance(value, Hole)}
    kept = {key: _without_holes(value) for key, value in changes.items() if key not in gone}
    return planner.change(kept, append=append, drop=tuple(gone))


def _grew(old: Any, new: Any) -> bool:
    """True if a list got more items at its end, and is otherwise in the same pieces."""
    if not isinstance(old, ListNode) or not isinstance(new, ListNode) or not old.pieces or new.count < old.count:
        return False
    last = len(old.pieces) - 1
    if old.pieces[:last] != new.pieces[:last] or len(new.pieces) <= last:
        return False
    end, longer = old.pieces[last], new.pieces[last]
    same = (end.branch, end.stream, end.start, end.first) == (longer.branch, longer.stream, longer.start, longer.first)
    return same and longer.stop >= end.stop and (longer.stop == end.stop or len(new.pieces) == last + 1)


def _without_holes(value: Any) -> Any:
    if type(value) is dict:
        return {key: _without_holes(one) for key, one in value.items() if not isinstance(one, Hole)}
    if type(value) is list:
        return [_without_holes(one) for one in value if not isinstance(one, Hole)]
    if isinstance(value, Unregistered):
        return Unregistered(value.type, _without_holes(value.value))
    return value
