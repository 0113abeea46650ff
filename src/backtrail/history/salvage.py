"""Reading round damage: everything of a state but the holes, and a `Hole` where each of them is.

A step adds to a state, so one damaged row takes from all later states only what that row had added: some items of a
list, a value, a page of a large dict. A part that reads as usual is read as usual; only where that fails is it taken
apart. The sections of a stream are numbered, so the rows around a damaged one tell how many items it held.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Container
from itertools import islice
from typing import Any

from backtrail.encode.frame import describe_row
from backtrail.encode.payload_format import Payload
from backtrail.encode.piece_table import pieces_between
from backtrail.encode.record_types import Unregistered
from backtrail.encode.row_format import MAX_TREE_DEPTH, ListNode, Node, Page, Piece, Tree
from backtrail.errors import Corrupt
from backtrail.history.state_reader import StateReader
from backtrail.model import Hole

_CHUNK = 256  # rows read at once
_MOST = 1_000_000  # holes and parts of one state: a count that somebody made up must not exhaust memory


class SalvageReader(StateReader):
    """Reads what is left of states of one lineage. Nodes that it returns may be holes."""

    _left = _MOST

    async def value(self, node: Node | Hole, depth: int = 0) -> Any:
        """The value of a node, with holes in it where it is damaged."""
        if isinstance(node, Hole):
            return node
        try:
            return await super().value(node)
        except Corrupt as damage:
            if isinstance(node, ListNode):
                return await self.items(node, 0, node.count)
            if not isinstance(node, Tree) or depth > MAX_TREE_DEPTH:
                return hole(damage)
            self._spend(1, damage)
            children: dict[str, Any] = await self.children(node)
            fields = {key: await self.value(child, depth + 1) for key, child in children.items()}
            return fields if node.type is None else Unregistered(node.type, fields)

    async def some_children(self, tree: Tree, start: int, stop: int | None) -> tuple[int, dict[str, Any]]:
        found = await self.children(tree)
        return len(found), dict(islice(found.items(), start, stop))

    async def children(self, tree: Tree, without: Container[Page] = ()) -> dict[str, Any]:
        """The children of a tree. A hole named after its page stands for all children on a damaged page."""
        try:
            return await super().children(tree, without)
        except Corrupt:
            found: dict[str, Any] = {}
            for number, page in enumerate(tree.pages, 1):
                try:
                    if page not in without:
                        found |= await super().children(Tree(None, None, 0, (page,)))
                except Corrupt as damage:
                    found[f"(page {number} of {len(tree.pages)})"] = hole(damage)
            return found

    async def items(self, node: Node, start: int, stop: int) -> list[Any]:
        """Items start..stop-1 of a list, a hole for each that is lost."""
        try:
            return await super().items(node, start, stop)
        except Corrupt:
            if not isinstance(node, ListNode):
                raise
            found: list[Any] = []
            for piece, low, high in pieces_between(node, start, stop):
                found += await self._piece(piece, low, high)
            return found

    async def _piece(self, piece: Piece, low: int, high: int) -> list[Any]:
        """Items low..high-1 of the piece's stream."""
        found: list[Any] = []
        at = low
        damage: Corrupt | None = None
        step = piece.first - 1
        async for step, row in self._payloads(piece):
            if at >= high:
                break
            if isinstance(row, Corrupt):
                damage = row
                continue
            for section in row.sections(piece.stream):
                begin, end = max(section.start, at), min(section.start + section.items, high)
                if begin >= end:
                    continue
                found += self._holes(begin - at, damage or _missing(piece, step - 1))
                try:
                    items = self._values.decode_items([section.data], section.items, describe_row(piece.branch, step))
                    found += items[begin - section.start : end - section.start]
                except Corrupt as error:
                    found += self._holes(end - begin, error)
                at, damage = end, None
        return found + self._holes(high - at, damage or _missing(piece, min(step + 1, piece.last)))

    async def _payloads(self, piece: Piece) -> AsyncIterator[tuple[int, Payload | Corrupt]]:
        """The rows of a piece that exist, ascending, each with its payload or its damage."""
        first, chunk = piece.first, _CHUNK
        while first <= piece.last:
            last = min(piece.last, first + chunk - 1)
            rows = await self._read(piece.branch, first, last)
            chunk = _CHUNK if rows else chunk * 8  # of chunks that are empty there are few, however long the piece is
            for step, payload in rows:
                try:
                    if isinstance(payload, Corrupt):
                        raise payload
                    (frame,) = await self._bare(piece.branch, [step], [payload])
                    yield step, Payload(frame, describe_row(piece.branch, step))
                except Corrupt as damage:
                    yield step, damage
            first = last + 1

    async def _read(self, branch: bytes, first: int, last: int) -> list[tuple[int, bytes | Corrupt]]:
        """The payloads of a range. An engine may refuse a range because of one row in it: then it is halved."""
        try:
            return list(await self._context.engine.payloads(self._lineage, branch, first, last))
        except Corrupt as damage:
            if first == last:
                return [(first, damage)]
            middle = (first + last) // 2
            return [*await self._read(branch, first, middle), *await self._read(branch, middle + 1, last)]

    def _holes(self, count: int, damage: Corrupt) -> list[Any]:
        self._spend(count, damage)
        return [hole(damage)] * count

    def _spend(self, count: int, damage: Corrupt) -> None:
        self._left -= count
        if self._left < 0:
            raise damage


def hole(damage: Corrupt) -> Hole:
    """The mark for what is lost by this damage."""
    return Hole(damage.where, damage.reason)


def _missing(piece: Piece, step: int) -> Corrupt:
    return Corrupt(describe_row(piece.branch, step), "the row is missing, but a state points at it")
