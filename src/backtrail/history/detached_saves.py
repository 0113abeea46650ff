"""Saves whose base is gone, as a thread of their own: they keep what they brought themselves.

A save adds to the state before it. If others deleted that, and its rows were freed, a save that waited in a spool
meanwhile cannot be stored as it is: it points at rows that nobody has. So its state is read without them and written
anew: the items that it appended, the values that it set, its id, label, tags and custom fields.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from backtrail.encode.change_detection import KnownLists
from backtrail.encode.planner import PlannedRow, Planner
from backtrail.encode.record_types import Unregistered
from backtrail.encode.row_format import ListNode, Root
from backtrail.engines.base import Engine, Mark, NewRow, Position
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


class DetachedSaves:
    """Rewrites the saves of one thread on a branch of its own, in the order in which they were made. `names`: of its
    lineage and itself, as they are sealed."""

    def __init__(self, context: Context, engine: Engine, names: tuple[str, str], saves: Sequence[SpooledRow]) -> None:
        self._context = context.with_engine(engine)
        first = saves[0].position[0]
        #: the same each time, so that a delivery that is repeated recognizes its thread, and no other spool's
        self.owner = hashlib.blake2b(saves[0].head.owner + first, digest_size=16).digest()
        self.branch = start_branch(context.frames, context.new_branch(), *names, self.owner)
        self.rows: list[NewRow] = []
        self.marks: list[Mark] = []
        self.blobs: dict[bytes, bytes] = {}
        self._made: dict[Position, NewRow] = {}
        # of the last save:
        self._root: Root | None = None
        self._lists: KnownLists = {}
        self._type: str | None = None
        self._children: dict[str, Any] = {}

    async def add(self, save: SpooledRow, lineage: str) -> None:
        """Rewrite the next save of a lineage, whose name the engine knows."""
        context, frames = self._context, self._context.frames
        reader = SalvageReader(context, lineage)
        tree = (await reader.root(*save.position, save.row.root, deep=False)).tree
        children: dict[str, Any] = await reader.children(tree)
        position, link, parent = (self.branch.id, 1), first_link(self.branch, NO_DIGEST), None
        if self.rows:
            last = self.rows[-1]
            position, link, parent = (last.branch, last.step + 1), last.digest, last.id
        planner = Planner(context.values, *position, self._root, self._lists, frames.blob_id)
        if self._root is None or self._type != tree.type:
            planned = planner.replace(_without_holes(await reader.value(tree)))
        else:  # only what is new is read: of a list that grew by each of many saves, what each of them appended
            planned = await _change(planner, reader, self._children, children)
        meta, _ = read_step(frames, save.position[0], save.row)
        facts = Facts(meta.label, meta.tags, meta.custom, meta.files)
        row, blobs, sealed = seal_row(frames, position, save.row.id, link, parent, meta.created, planned, facts)
        self._root, self._type, self._children = planned.root, tree.type, children
        self.rows.append(row)
        self._made[save.position] = row
        self.blobs |= blobs
        if save.row.mark is not None:
            self.marks.append(seal_mark(frames, *position, open_mark(frames, *save.position, save.row.mark)))
        else:
            self.marks += label_marks(frames, *position, sealed)

    def at(self, position: Position) -> NewRow:
        """The row that was at this position; the last one if that is gone."""
        return self._made.get(position, self.rows[-1])


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
