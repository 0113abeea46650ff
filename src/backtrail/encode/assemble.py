"""Assembles a value from a root and the payloads it points at.

`rows_needed` lists the rows that a tree needs; the caller fetches them into `FetchedRows`; then `Assembler` builds. A
list is decoded a few dozen rows at a time: joining everything first would move the text through the CPU cache twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from backtrail.encode.change_detection import RowIndex
from backtrail.encode.frame import describe_row
from backtrail.encode.row_format import (
    Blob,
    Inline,
    ListNode,
    Node,
    Page,
    Piece,
    Section,
    Slot,
    Tree,
    leaves,
    one_section_rows,
    unpack_page,
    unpack_payload,
)
from backtrail.encode.values import Values
from backtrail.errors import Corrupt

_TOGETHER = 32  # rows decoded at once

RowRanges = dict[bytes, list[tuple[int, int]]]  # branch -> (first, last) of rows, ascending and apart


def merge_spans(spans: Iterable[tuple[bytes, int, int]]) -> RowRanges:
    """Row ranges by branch, overlapping and adjacent ones joined."""
    ranges: RowRanges = {}
    for branch, first, last in sorted(spans):
        known = ranges.setdefault(branch, [])
        if known and first <= known[-1][1] + 1:
            known[-1] = (known[-1][0], max(known[-1][1], last))
        else:
            known.append((first, last))
    return ranges


def rows_needed(nodes: Iterable[Node]) -> Iterator[tuple[bytes, int, int]]:
    """Spans (branch, first, last) of rows whose payloads these nodes need; of a tree, those of its leaves."""
    for node in nodes:
        if isinstance(node, Tree):
            yield from rows_needed(leaves(node))
        elif isinstance(node, ListNode):
            yield from ((piece.branch, piece.first, piece.last) for piece in node.pieces)
        elif isinstance(node, Slot):
            yield (node.branch, node.step, node.step)


def unread_pages(tree: Tree) -> Iterator[Page]:
    """The pages in a tree that have not been fetched yet."""
    if tree.children is None:
        yield from tree.pages
    else:
        for node in tree.children.values():
            if isinstance(node, Tree):
                yield from unread_pages(node)


def blobs_needed(nodes: Iterable[Node]) -> Iterator[bytes]:
    """The ids of blobs that these nodes need."""
    for node in nodes:
        if isinstance(node, Tree):
            yield from blobs_needed(leaves(node))
        elif isinstance(node, Blob):
            yield node.id


class FetchedRows:
    """Payloads, in bare frames, by branch and step."""

    def __init__(self) -> None:
        self._payloads: dict[bytes, dict[int, bytes]] = {}

    def add(self, branch: bytes, steps: Iterable[int], payloads: Iterable[bytes]) -> None:
        self._payloads.setdefault(branch, {}).update(zip(steps, payloads, strict=True))

    def missing(self, ranges: RowRanges) -> RowRanges:
        """The part of `ranges` that has not been added."""
        result: RowRanges = {}
        for branch, spans in ranges.items():
            known = self._payloads.get(branch, {})
            lacking = [(first, last) for first, last in spans if any(s not in known for s in range(first, last + 1))]
            if lacking:
                result[branch] = lacking
        return result

    def get(self, branch: bytes, step: int) -> bytes:
        try:
            return self._payloads[branch][step]
        except KeyError:
            raise Corrupt(describe_row(branch, step), "the row is missing, but a state points at it") from None

    def between(self, branch: bytes, first: int, last: int) -> list[bytes]:
        known = self._payloads.get(branch, {})
        try:
            return [known[step] for step in range(first, last + 1)]
        except KeyError as error:
            raise Corrupt(describe_row(branch, error.args[0]), "the row is missing, but a state points at it") from None


class Assembler:
    """Builds values from nodes, payloads and blobs. An `index`, if given, records which rows hold which items."""

    def __init__(self, values: Values, rows: FetchedRows, blobs: dict[bytes, bytes]) -> None:
        self._values = values
        self._rows = rows
        self._blobs = blobs

    def page(self, page: Page) -> dict[str, Node]:
        """The children on a page whose row was added."""
        return unpack_page(
            self._slot(page.branch, page.step, page.index), page.branch, describe_row(page.branch, page.step)
        )

    def tree(self, tree: Tree) -> Tree:
        """`tree` with the children from its pages, whose rows were added. The pages of these children are not expanded:
        their rows may not have been fetched yet."""
        children = tree.children
        if children is None:
            found = {key: node for page in tree.pages for key, node in self.page(page).items()}
            return Tree(tree.type, found, tree.size, tree.pages)
        filled = {key: self.tree(node) if isinstance(node, Tree) else node for key, node in children.items()}
        return Tree(tree.type, filled, tree.size, tree.pages)

    def value(self, node: Node) -> Any:
        """The value of a node."""
        if isinstance(node, ListNode):
            return self.items(node)
        if isinstance(node, Inline):
            return self._values.decode(node.raw, "a value in the root")
        if isinstance(node, Slot):
            return self._values.decode(
                self._slot(node.branch, node.step, node.index), describe_row(node.branch, node.step)
            )
        if isinstance(node, Blob):
            return self._blob(node)
        assert node.children is not None
        fields = {key: self.value(child) for key, child in node.children.items()}
        return fields if node.type is None else self._values.build(node.type, fields)

    def items(self, listing: ListNode, index: RowIndex | None = None) -> list[Any]:
        """All items of a list."""
        items: list[Any] = []
        for piece in listing.pieces:
            items += self.piece(piece, index)
        if len(items) != listing.count:
            raise Corrupt("a list", f"it should have {listing.count} items, its pieces hold {len(items)}")
        return items

    def piece(self, piece: Piece, index: RowIndex | None = None) -> list[Any]:
        """The items of one piece."""
        rows = self._rows.between(piece.branch, piece.first, piece.last)
        items: list[Any] = []
        where = describe_row(piece.branch, piece.first)
        start, stop = -1, 0
        for first, count, parts in self._batches(piece, piece.first, rows, index):
            if start < 0:
                start = stop = first
            if first != stop or count < 0:
                raise Corrupt(where, "its items are not the ones a state points at")
            items += self._values.decode_items(parts, count, where)
            stop += count
        if start < 0 or start > piece.start or stop < piece.stop:
            raise Corrupt(where, "its items are not the ones a state points at")
        return items if (start, stop) == (piece.start, piece.stop) else items[piece.start - start : piece.stop - start]

    def held(self, piece: Piece, first: int, last: int) -> tuple[int, int] | None:
        """The range (start, stop) of items of the piece's stream that rows first..last hold; None if they hold none."""
        steps = range(first, last + 1)
        lowest = next((found for step in steps if (found := self.sections(piece, step))), None)
        if lowest is None:
            return None
        highest = next((found for step in reversed(steps) if (found := self.sections(piece, step))), lowest)
        return lowest[0].start, highest[-1].start + highest[-1].items

    def _batches(
        self, piece: Piece, first: int, rows: list[bytes], index: RowIndex | None
    ) -> Iterator[tuple[int, int, list[bytes]]]:
        """The piece's stream in the rows from `first` on, in batches of rows: first item, number of items, and their
        bytes."""
        simple = one_section_rows(rows, piece.stream)
        if simple is None:
            yield from self._sections(piece, first, rows, index)
            return
        for i in range(0, len(rows), _TOGETHER):
            upto = min(i + _TOGETHER, len(rows))
            start = simple.start(i)
            yield start, simple.start(upto) - start, simple.data(i, upto)
        if index is not None:
            for i in range(len(rows)):
                index.note(piece.branch, piece.stream, simple.start(i), simple.offset(i), first + i)

    def sections(self, piece: Piece, step: int) -> list[Section]:
        """The sections of the piece's stream in one row."""
        row = self._rows.get(piece.branch, step)
        return [s for s in unpack_payload(row, describe_row(piece.branch, step))[0] if s.stream == piece.stream]

    def _sections(
        self, piece: Piece, first: int, rows: list[bytes], index: RowIndex | None
    ) -> Iterator[tuple[int, int, list[bytes]]]:
        for step, row in enumerate(rows, first):
            for section in unpack_payload(row, describe_row(piece.branch, step))[0]:
                if section.stream == piece.stream:
                    if index is not None:
                        index.note(piece.branch, piece.stream, section.start, section.offset, step)
                    yield section.start, section.items, [section.data]

    def _slot(self, branch: bytes, step: int, index: int) -> bytes:
        _, slots = unpack_payload(self._rows.get(branch, step), describe_row(branch, step))
        if index >= len(slots):
            raise Corrupt(describe_row(branch, step), f"it has no value number {index}, but a state points at it")
        return slots[index]

    def _blob(self, blob: Blob) -> str | bytes:
        data = self._blobs.get(blob.id)
        if data is None:
            raise Corrupt(f"blob {blob.id.hex()}", "it is missing, but a state points at it")
        if len(data) != blob.size:
            raise Corrupt(f"blob {blob.id.hex()}", f"it has {len(data)} bytes, should have {blob.size}")
        return data.decode() if blob.text else data
