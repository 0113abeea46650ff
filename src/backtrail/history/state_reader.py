"""Reading states: from the root of a row to its values, with as few round trips as the root allows."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from itertools import islice
from typing import Any, TypeVar

from backtrail.encode.assemble import Assembler, FetchedRows
from backtrail.encode.budget import Meter, Where
from backtrail.encode.change_detection import KnownList, KnownLists, ListSnapshot, RowIndex
from backtrail.encode.frame import describe_row
from backtrail.encode.payload_format import Section
from backtrail.encode.piece_table import join_adjacent, pieces_between, reads_too_much
from backtrail.encode.row_format import Inline, ListNode, Node, Page, Piece, Root, Tree, unpack_root
from backtrail.encode.tree_walks import Needs, RowRanges, merge_spans, unread_pages, unread_trees
from backtrail.encode.values import Values
from backtrail.errors import Corrupt, InvalidInput
from backtrail.history.context import Context
from backtrail.history.row_cache import RowCache
from backtrail.history.zstd_dictionary import with_dictionaries

R = TypeVar("R")
_TIMES = 4  # reads of one page while two states are compared; more is a tree that names its pages again and again
_TWICE = "a page is named more often than a tree does it"


class StateReader:
    """Reads states of one lineage. Fetched rows are kept until the reader is discarded."""

    def __init__(
        self,
        context: Context,
        lineage: str,
        values: Values | None = None,
        subject: Where | None = None,
        cache: RowCache | None = None,
    ) -> None:
        self._context = context
        self._lineage = lineage
        self._subject = subject  # what is read, for messages
        self._cache = cache  # where rows are looked for first; None for whoever checks what is stored
        self._meter = Meter(context.budget, time.monotonic)
        self._values = (values or context.values).metered(self._meter)
        self._pages_read: dict[Page, int] = {}
        self._rows = FetchedRows()
        self._blobs: dict[bytes, bytes] = {}
        self.assembler = Assembler(self._values, self._rows, self._blobs)

    async def root(self, branch: bytes, step: int, data: bytes, deep: bool = True) -> Root:
        """The root in these bytes; `deep`: with every page of its tree, else `children` reads them one by one."""
        where = describe_row(branch, step)
        self.begin(where)
        content = self._context.frames.unwrap(data, f"{where}: root", self._meter.unpack)
        self._meter.decode(content)
        root = unpack_root(content, branch, where)
        return Root(await self.with_pages(root.tree), root.streams) if deep else root

    def begin(self, where: str) -> None:
        """Begin with another state: it has the whole budget."""
        self._meter.restart(self._subject or where)
        self._pages_read.clear()

    def expect(self, nodes: Iterable[Node]) -> None:
        """The values of these nodes are about to be read, one after the other."""
        self._meter.expect(Needs(nodes).size)

    def charge(self, size: int) -> None:
        """So many bytes of text are about to be made from what was read."""
        self._meter.take_bytes(size)

    async def children(self, tree: Tree, without: Container[Page] = ()) -> dict[str, Node]:
        """The children of a tree, without reading the pages of those; the children on some of its own pages can be left
        out."""
        if tree.children is not None:
            return tree.children
        pages = [page for page in tree.pages if page not in without]
        await self._fetch_pages(pages)
        return {key: node for page in pages for key, node in self.assembler.page(page).items()}

    async def some_children(self, tree: Tree, start: int, stop: int | None) -> tuple[int, dict[str, Node]]:
        """The number of children of a tree, and those from `start` up to `stop`. Only the pages that have these are
        unpacked: a wide dict is shown page by page."""
        if tree.children is not None:
            return len(tree.children), dict(islice(tree.children.items(), start, stop))
        await self._fetch_pages(tree.pages)
        count = 0
        found: dict[str, Node] = {}
        for page in tree.pages:
            here = self.assembler.count_on(page)
            if start < count + here and (stop is None or count < stop):
                last = None if stop is None else stop - count
                found.update(islice(self.assembler.page(page).items(), max(0, start - count), last))
            count += here
        return count, found

    async def _fetch_pages(self, pages: Sequence[Page]) -> None:
        for page in pages:
            self._pages_read[page] = times = self._pages_read.get(page, 0) + 1
            if times > _TIMES:
                raise Corrupt(describe_row(page.branch, page.step), _TWICE)
        await self.fetch((page.branch, page.step, page.step) for page in pages)

    async def with_pages(self, tree: Tree) -> Tree:
        """The tree with the children from all of its pages, at any depth."""
        if next(unread_pages(tree), None) is None:
            return tree
        top: dict[str, Node] = {"": tree}
        waiting = list(unread_trees(top))
        known: set[Page] = set()
        count = 0
        while waiting:
            pages = [page for unread in waiting for page in unread.tree.pages]
            known.update(pages)
            count += len(pages)
            if len(known) < count:
                raise Corrupt(describe_row(pages[0].branch, pages[0].step), _TWICE)
            await self.fetch((page.branch, page.step, page.step) for page in pages)
            waiting = [below for unread in waiting for below in self.assembler.fill(unread)]
        filled = top[""]
        assert isinstance(filled, Tree)
        return filled

    async def value(self, node: Node) -> Any:
        """The value of a node."""
        if isinstance(node, Tree):
            node = await self.with_pages(node)
        needs = Needs([node])
        self._meter.expect(needs.size)
        self._meter.take_pieces(needs.pieces)
        await self.fetch(needs.spans)
        await self.fetch_blobs(needs.blobs)
        return self.assembler.value(node)

    async def known_lists(self, tree: Tree) -> KnownLists:
        """The long lists in `tree`, read for a planner to compare with."""
        lists = list(_lists_in(tree, ()))
        needs = Needs(listing for _, listing in lists)
        self._meter.expect(needs.size)
        self._meter.take_pieces(needs.pieces)
        await self.fetch(needs.spans)
        known: KnownLists = {}
        for path, listing in lists:
            row_index = RowIndex()
            items = self.assembler.items(listing, row_index)
            snapshot = ListSnapshot(items, self._values.encode, False, self._values.types.lookalikes, owned=True)
            known[path] = KnownList(snapshot, row_index)
        return known

    async def items(self, node: Node, start: int, stop: int) -> list[Any]:
        """Items start..stop-1 of a list, reading little more than the rows that hold them."""
        if isinstance(node, Inline):
            value = self._values.decode(node.raw, "a value in the root")
            if type(value) is list:
                return value[start:stop]
        if not isinstance(node, ListNode):
            raise InvalidInput("that part of the state is not a list")
        self._meter.take_pieces(len(node.pieces))
        result: list[Any] = []
        for piece, low, high in pieces_between(node, start, stop):
            result += await self._read_items(piece, low, high)
        return result

    async def sublist(self, node: Node | None, start: int, stop: int) -> ListNode | list[Any]:
        """Items start..stop-1 of a list as a list node that shares its rows. Reads only the rows at the cuts. Returns
        the items themselves if sharing would keep much more alive than they are worth."""
        if node is None or start >= stop:
            return []
        if not isinstance(node, ListNode):
            return await self.items(node, start, stop)
        pieces: list[Piece] = []
        live = 0
        for piece, low, high in pieces_between(node, start, stop):
            part, size = await self._narrow(piece, low, high)
            pieces.append(part)
            live += size
        if reads_too_much(pieces, live):
            return await self.items(node, start, stop)
        return ListNode(join_adjacent(pieces), stop - start, live, node.tail)

    async def _narrow(self, piece: Piece, start: int, stop: int) -> tuple[Piece, int]:
        """Items start..stop-1 of the piece's stream as a piece of exactly the rows they need, and their size in
        bytes."""
        first, begin, before = piece.first, piece.begin, 0
        last, end, after = piece.last, piece.begin + piece.span, 0
        if start > piece.start:
            first, sections = await self._find_row(piece, start)
            begin = sections[0].offset
            before = self._weight(sections, sections[0].start, start)
        if stop < piece.stop:
            last, sections = await self._find_row(piece, stop - 1)
            end = sections[-1].offset + len(sections[-1].data)
            after = self._weight(sections, stop, sections[-1].start + sections[-1].items)
        span = end - begin
        return Piece(piece.branch, piece.stream, start, stop, first, last, begin, span), span - before - after

    async def _find_row(self, piece: Piece, item: int) -> tuple[int, list[Section]]:
        """The row that holds an item of the piece's stream, and its sections of the stream."""
        first, last = await self._fetch_items(piece, item, item + 1)
        for step in range(first, last + 1):
            sections = self.assembler.sections(piece, step)
            if sections and sections[0].start <= item < sections[-1].start + sections[-1].items:
                return step, sections
        raise Corrupt(describe_row(piece.branch, first), "its items are not the ones a state points at")

    def _weight(self, sections: list[Section], start: int, stop: int) -> int:
        """Encoded bytes of items start..stop-1 of these sections."""
        total = 0
        for section in sections:
            low, high = max(start - section.start, 0), min(stop - section.start, section.items)
            if low < high:
                items = self._values.decode_items([section.data], section.items, "a row at a cut")
                total += sum(len(self._values.encode(item)) for item in items[low:high])
        return total

    async def _read_items(self, piece: Piece, start: int, stop: int) -> list[Any]:
        first, last = await self._fetch_items(piece, start, stop)
        return self.assembler.piece(
            Piece(piece.branch, piece.stream, start, stop, first, last, piece.begin, piece.span)
        )

    async def _fetch_items(self, piece: Piece, start: int, stop: int) -> tuple[int, int]:
        """Fetch the rows that hold the items. Estimates them from the number of rows of the piece, and fetches more if
        the estimate was wrong."""
        rows = piece.last - piece.first + 1
        per_row = (piece.stop - piece.start) / rows
        first = piece.first + max(0, int((start - piece.start) / per_row))
        last = min(piece.last, piece.first + int((stop - 1 - piece.start) / per_row))
        first = min(first, last)
        while True:
            await self.fetch([(piece.branch, first, last)])
            held = self.assembler.held(piece, first, last)
            if held is not None and held[0] <= start and held[1] >= stop:
                return first, last
            width, before = last - first + 1, (first, last)
            if held is None or held[0] > start:
                first = max(piece.first, first - width)
            if held is None or held[1] < stop:
                last = min(piece.last, last + width)
            if (first, last) == before:  # no more rows on the side where items are lacking
                raise Corrupt(describe_row(piece.branch, first), "its items are not the ones a state points at")

    # -- fetching ---------------------------------------------------------------------------------------------------

    async def fetch(self, spans: Iterable[tuple[bytes, int, int]]) -> None:
        """Fetch the payloads of these rows that have not been fetched."""
        ranges: RowRanges = self._rows.missing(merge_spans(spans))
        for branch, pairs in ranges.items():
            for first, last in pairs:
                if self._cache is None:
                    await self._fetch_rows(branch, first, last)
                else:
                    await self._fetch_through(self._cache, branch, first, last)

    async def _fetch_through(self, cache: RowCache, branch: bytes, first: int, last: int) -> None:
        """Take the rows from the cache, and fetch those behind them."""
        known = cache.find(branch, first, last)
        rest = first + len(known)
        if known:
            self._rows.add(branch, range(first, rest), known)
        if rest <= last:
            frames = await self._fetch_rows(branch, rest, last)
            if len(frames) == last + 1 - rest:  # else rows are missing, which the assembler reports
                cache.add(branch, rest, frames)

    async def _fetch_rows(self, branch: bytes, first: int, last: int) -> Sequence[bytes]:
        rows = await self._context.engine.payloads(self._lineage, branch, first, last)
        steps, frames = [step for step, _ in rows], [frame for _, frame in rows]
        bare = await self._bare(branch, steps, frames)
        self._rows.add(branch, steps, bare)
        return bare

    async def _bare(self, branch: bytes, steps: list[int], frames: list[bytes]) -> Sequence[bytes]:
        """The frames of payloads, checked and opened."""

        def unwrap() -> Sequence[bytes]:
            records = (f"{describe_row(branch, step)}: payload" for step in steps)
            return self._context.frames.bare(frames, records, self._meter.unpack)

        return await with_dictionaries(self._context, self._lineage, unwrap)

    async def fetch_blobs(self, ids: Iterable[bytes]) -> None:
        """Fetch the blobs that have not been fetched, each checked against its name."""
        lacking = [id for id in dict.fromkeys(ids) if id not in self._blobs]
        if not lacking:
            return
        found = await self._context.engine.blobs(self._lineage, lacking)
        self._meter.expect_unpacked(self._context.frames.expected(list(found.values())))
        for id, frame in found.items():
            data = self._context.frames.unwrap(frame, f"blob {id.hex()}", self._meter.unpack)
            if not self._context.frames.is_named(data, id):
                raise Corrupt(f"blob {id.hex()}", "its content does not match its name")
            self._blobs[id] = data


async def through_cache(context: Context, read: Callable[[RowCache], Awaitable[R]]) -> R:
    """Read with the cached rows. If what they hold makes no sense, they are forgotten and it is read again: a row that
    a sweep had emptied when it was cached may be whole again, by a repair or from a replica."""
    rows = context.caches.rows
    try:
        return await read(rows)
    except Corrupt:
        if not len(rows):
            raise
        rows.clear()
        return await read(rows)


def _lists_in(tree: Tree, path: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], ListNode]]:
    for key, node in (tree.children or {}).items():
        if isinstance(node, Tree):
            yield from _lists_in(node, (*path, key))
        elif isinstance(node, ListNode):
            yield (*path, key), node
