"""Assembles a value from a root and the payloads it points at.

`Needs` has the rows that a tree needs (see `tree_walks`); the caller fetches them into `FetchedRows`; then `Assembler`
builds. A list is decoded a few dozen rows at a time: joining everything first would move the text through the CPU cache
twice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeGuard

from backtrail.encode.change_detection import RowIndex
from backtrail.encode.frame import describe_row
from backtrail.encode.payload_format import Payload, Section, one_section_rows
from backtrail.encode.row_format import (
    MAX_TREE_DEPTH,
    Blob,
    Inline,
    ListNode,
    Node,
    Page,
    Piece,
    Slot,
    Tree,
    count_on_page,
    unpack_page,
)
from backtrail.encode.tree_walks import RowRanges, SlotRun, Unread, WideDict, runs_of, unread_trees
from backtrail.encode.values import Values, bytes_text
from backtrail.errors import Corrupt

_TOGETHER = 32  # rows decoded at once
_SMALL = 128 * 1024  # bytes of dicts that are decoded at once
_ENCODED = frozenset({Inline, Slot})


def _is_small(node: Node) -> TypeGuard[Tree]:
    """True for a dict that is decoded together with others."""
    return type(node) is Tree and node.type is None and node.size < _SMALL


class FetchedRows:
    """Payloads, in bare frames, by branch and step. Headers of a payload are read at most once."""

    def __init__(self) -> None:
        self._frames: dict[bytes, dict[int, bytes]] = {}
        self._payloads: dict[tuple[bytes, int], Payload] = {}
        self._streams: dict[bytes, dict[int, list[int]]] = {}  # of branches that were searched: steps, ascending
        self._unsearched: dict[bytes, list[int]] = {}  # rows that were added later

    def add(self, branch: bytes, steps: Sequence[int], frames: Iterable[bytes]) -> None:
        known = self._frames.setdefault(branch, {})
        if branch in self._streams:  # a row may be added twice
            self._unsearched.setdefault(branch, []).extend(step for step in steps if step not in known)
        known.update(zip(steps, frames, strict=True))

    def missing(self, ranges: RowRanges) -> RowRanges:
        """The part of `ranges` that has not been added."""
        result: RowRanges = {}
        for branch, spans in ranges.items():
            known = self._frames.get(branch, {})
            lacking = [(first, last) for first, last in spans if any(s not in known for s in range(first, last + 1))]
            if lacking:
                result[branch] = lacking
        return result

    def payload(self, branch: bytes, step: int) -> Payload:
        """The payload of a row."""
        known = self._payloads.get((branch, step))
        if known is None:
            where = describe_row(branch, step)
            try:
                frame = self._frames[branch][step]
            except KeyError:
                raise Corrupt(where, "the row is missing, but a state points at it") from None
            known = self._payloads[branch, step] = Payload(frame, where)
        return known

    def between(self, branch: bytes, first: int, last: int) -> list[bytes]:
        known = self._frames.get(branch, {})
        try:
            return [known[step] for step in range(first, last + 1)]
        except KeyError as error:
            raise Corrupt(describe_row(branch, error.args[0]), "the row is missing, but a state points at it") from None

    def searched(self, branch: bytes) -> bool:
        """True if `steps` was called for this branch before."""
        return branch in self._streams

    def steps(self, branch: bytes, stream: int, first: int, last: int) -> Sequence[int]:
        """Those of the rows first..last that add to a stream. Many lists may have grown in turns: each is then found
        without visiting the rows of all others."""
        if branch not in self._streams:
            self._streams[branch] = {}
            self._unsearched[branch] = list(self._frames.get(branch, ()))
        streams = self._streams[branch]
        for step in sorted(self._unsearched.pop(branch, ())):
            for found in self.payload(branch, step).streams:
                insort(streams.setdefault(found, []), step)
        steps = streams.get(stream, [])
        return steps[bisect_left(steps, first) : bisect_right(steps, last)]


class Assembler:
    """Builds values from nodes, payloads and blobs. An `index`, if given, records which rows hold which items."""

    def __init__(self, values: Values, rows: FetchedRows, blobs: dict[bytes, bytes]) -> None:
        self._values = values
        self._rows = rows
        self._blobs = blobs
        self._texts: dict[bytes, str] = {}  # a text that a state has in many places is one str, as when it was saved

    def page(self, page: Page) -> dict[str, Node]:
        """The children on a page whose row was added."""
        data = self.slot(page)
        if self._values.meter is not None:
            self._values.meter.decode(data)
        return unpack_page(data, page.branch, describe_row(page.branch, page.step))

    def count_on(self, page: Page) -> int:
        """The number of children on a page whose row was added; they are not unpacked."""
        return count_on_page(self.slot(page), describe_row(page.branch, page.step))

    def fill(self, unread: Unread) -> Iterator[Unread]:
        """Put the children of a tree in their place, from its pages, whose rows were added; the trees below it that are
        still unread."""
        tree = unread.tree
        if unread.depth > MAX_TREE_DEPTH:
            raise Corrupt("a state", f"its tree is more than {MAX_TREE_DEPTH} levels deep")
        children = WideDict()
        for page in tree.pages:
            children.update(self.page(page))
        unread.holder[unread.key] = Tree(tree.type, children, tree.size, tree.pages)
        yield from unread_trees(children, unread.depth + 1)

    def value(self, node: Node) -> Any:
        """The value of a node."""
        if isinstance(node, ListNode):
            return self.items(node)
        if isinstance(node, Inline):
            return self._values.decode(node.raw, "a value in the root")
        if isinstance(node, Slot):
            return self._values.decode(self.slot(node), describe_row(node.branch, node.step))
        if isinstance(node, Blob):
            return self._blob(node)
        fields = self._fields(node.children or {})
        return fields if node.type is None else self._values.build(node.type, fields)

    def _fields(self, children: dict[str, Node]) -> dict[str, Any]:
        """The values of a tree's children. Slots that follow each other in a row are decoded together, and so are small
        dicts, so that a wide dict costs little more than a list of its values."""
        runs, others, _ = runs_of(children)
        fields: dict[str, Any] = dict.fromkeys(children) if others else {}  # in the order of the children
        for run in runs:
            self._slots(fields, run)
        small: dict[str, Node] = {}
        weight = 0
        for key in others:
            node = children[key]
            if _is_small(node):
                small[key] = node
                weight += node.size
                if weight > _SMALL:
                    fields.update(self._small(small))
                    small, weight = {}, 0
            else:
                fields[key] = self.value(node)
        fields.update(self._small(small))
        return fields

    def _small(self, children: dict[str, Node]) -> dict[str, Any]:
        """The values of these nodes, all of which are small: what is encoded in them is decoded at once."""
        parts: list[bytes] = []
        self._gather(children, parts)
        return self._place(children, iter(self._values.decode_items(parts, len(parts), "a state")))

    def _gather(self, children: dict[str, Node], parts: list[bytes]) -> None:
        """The encodings of all values and slots in a small dict."""
        for node in children.values():
            if type(node) is Inline:
                parts.append(node.raw)
            elif type(node) is Slot:
                parts.append(self.slot(node))
            elif _is_small(node):
                self._gather(node.children or {}, parts)

    def _place(self, children: dict[str, Node], values: Iterator[Any]) -> dict[str, Any]:
        """A dict from the values that `_gather` gathered."""
        if set(map(type, children.values())) <= _ENCODED:
            return dict(zip(children, values))  # noqa: B905  # `values` goes on
        return {
            key: next(values)
            if type(node) in _ENCODED
            else self._place(node.children or {}, values)
            if _is_small(node)
            else self.value(node)
            for key, node in children.items()
        }

    def _slots(self, fields: dict[str, Any], run: SlotRun) -> None:
        """The values of a run."""
        branch, step, first, keys = run
        where = describe_row(branch, step)
        payload = self._rows.payload(branch, step)
        if first + len(keys) > payload.slots:
            raise Corrupt(where, f"it has no value number {payload.slots}, but a state points at it")
        for at in range(0, len(keys), _TOGETHER):
            some = keys[at : at + _TOGETHER]
            data = payload.slots_between(first + at, first + at + len(some))
            fields.update(zip(some, self._values.decode_items([data], len(some), where), strict=True))

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
        items: list[Any] = []
        where = describe_row(piece.branch, piece.first)
        start, stop = -1, 0
        for first, count, parts in self._batches(piece, index):
            if start < 0:
                start = stop = first
            if first != stop or count < 0:
                break
            items += self._values.decode_items(parts, count, where)
            stop += count
        if start < 0 or start > piece.start or stop < piece.stop:
            self._rows.between(piece.branch, piece.first, piece.last)  # names a row that is missing
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

    def sections(self, piece: Piece, step: int) -> list[Section]:
        """The sections of the piece's stream in one row."""
        return self._rows.payload(piece.branch, step).sections(piece.stream)

    def _batches(self, piece: Piece, index: RowIndex | None) -> Iterator[tuple[int, int, Sequence[bytes | memoryview]]]:
        """The piece's stream in its rows, in batches of rows: first item, number of items, and their bytes."""
        branch, stream, first, last = piece.branch, piece.stream, piece.first, piece.last
        if self._rows.searched(branch) and len(self._rows.steps(branch, stream, first, last)) <= last - first:
            yield from self._scattered(piece, index)
            return
        rows = self._rows.between(branch, first, last)
        simple = one_section_rows(rows, stream)
        if simple is None:
            yield from self._scattered(piece, index)
            return
        for i in range(0, len(rows), _TOGETHER):
            upto = min(i + _TOGETHER, len(rows))
            start = simple.start(i)
            yield start, simple.start(upto) - start, simple.data(i, upto)
        if index is not None:
            for i in range(len(rows)):
                index.note(branch, stream, simple.start(i), simple.offset(i), first + i)

    def _scattered(
        self, piece: Piece, index: RowIndex | None
    ) -> Iterator[tuple[int, int, Sequence[bytes | memoryview]]]:
        """The same, from rows that hold other things as well, or nothing of this stream."""
        start, stop = 0, 0
        parts: list[bytes] = []
        for step in self._rows.steps(piece.branch, piece.stream, piece.first, piece.last):
            for section in self.sections(piece, step):
                if index is not None:
                    index.note(piece.branch, piece.stream, section.start, section.offset, step)
                if parts and (section.start != stop or len(parts) >= _TOGETHER):
                    yield start, stop - start, parts
                    parts = []
                if not parts:
                    start = stop = section.start
                parts.append(section.data)
                stop += section.items
        if parts:
            yield start, stop - start, parts

    def slot(self, at: Slot | Page) -> bytes:
        """The bytes of a slot."""
        try:
            return self._rows.payload(at.branch, at.step).slot(at.index)
        except IndexError:
            where = describe_row(at.branch, at.step)
            raise Corrupt(where, f"it has no value number {at.index}, but a state points at it") from None

    def _blob(self, blob: Blob) -> str | bytes:
        data = self._blobs.get(blob.id)
        if data is None:
            raise Corrupt(f"blob {blob.id.hex()}", "it is missing, but a state points at it")
        if len(data) != blob.size:
            raise Corrupt(f"blob {blob.id.hex()}", f"it has {len(data)} bytes, should have {blob.size}")
        if not blob.text:
            return data
        text = self._texts.get(blob.id)
        if text is None:
            text = self._texts[blob.id] = bytes_text(data)
        return text
