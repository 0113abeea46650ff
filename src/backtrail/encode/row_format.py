"""The bytes of a row: its root, a tree of nodes that locates each part of the state, and its payload.

* `Inline`: a small value, in the root itself.
* `Slot`: a larger value, in the payload of the row that first held it.
* `Blob`: a large string or bytes, in the lineage's pool under the hash of its content.
* `ListNode`: a long list, as a table of pieces: ranges of items in append-only streams.
* `Tree`: a dict or a record. A heavy one keeps its children in pages, which are slots of payloads, so that a root stays
  small however wide the state is.

A *stream* is the sequence of all items that the rows of one branch ever added to one list, counted from 0. A payload
holds *sections* (the items that its row adds to a stream) and *slots*. Its headers have a fixed width and are
little-endian: a load of 1,600 rows finds the items of each row with one slice, and reads bare frames (see `frame`), so
that items are copied once.

In memory a node names branches by their id; in bytes by an index into the root's or page's own short table, 0 being the
branch of the row itself. Nodes, and the other records that a store keeps by the thousand, are made with `gc=False`: no
cycle can go through them, so the garbage collector need not visit them.
"""

from __future__ import annotations

import operator
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from backtrail.encode.frame import BEFORE, BEHIND
from backtrail.errors import Corrupt, UnsupportedFormat

VERSION = 1
MAX_TREE_WEIGHT = 1024  # bytes: the children of a heavier tree go into pages
_INLINE, _SLOT, _BLOB, _LIST, _TREE, _PAGED_TREE = range(6)


class Inline(msgspec.Struct, frozen=True, gc=False):
    """A small value; `raw` is its encoding."""

    raw: bytes

    @property
    def size(self) -> int:
        return len(self.raw)


class Slot(msgspec.Struct, frozen=True, gc=False):
    """Slot number `index` in the payload of (branch, step). `check` is the digest of its encoding: equal digests mean
    equal values."""

    branch: bytes
    step: int
    index: int
    size: int
    check: bytes


class Blob(msgspec.Struct, frozen=True, gc=False):
    """A large string or bytes. `text`: the blob is the UTF-8 of a str."""

    id: bytes
    size: int
    text: bool


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Items start..stop-1 of a stream. Rows first..last of the branch hold them; the part of the stream in these rows
    begins at its byte `begin` and is `span` bytes long."""

    branch: bytes
    stream: int
    start: int
    stop: int
    first: int
    last: int
    begin: int
    span: int

    def joined(self, other: Piece) -> Piece | None:
        """One piece that covers this one and `other`; None unless `other` continues this one."""
        if (
            self.stop != other.start
            or self.stream != other.stream
            or self.branch != other.branch
            or self.last > other.first
        ):
            return None
        span = other.begin + other.span - self.begin
        return Piece(self.branch, self.stream, self.start, other.stop, self.first, other.last, self.begin, span)


class Tail(msgspec.Struct, frozen=True, gc=False):
    """The end of a stream, where the next items of a list go: how many items and how many bytes it has."""

    branch: bytes
    stream: int
    items: int
    offset: int


class ListNode(msgspec.Struct, frozen=True, gc=False):
    """A list of `count` items that encode to `size` bytes."""

    pieces: tuple[Piece, ...]
    count: int
    size: int
    tail: Tail


class Page(msgspec.Struct, frozen=True, gc=False):
    """Some consecutive children of a tree, in slot `index` of the payload of (branch, step)."""

    branch: bytes
    step: int
    index: int


class Tree(msgspec.Struct, frozen=True, gc=False):
    """A dict (`type` None) or a record. A heavy tree has its children on `pages`; `children` is None until these have
    been fetched."""

    type: str | None
    children: dict[str, Node] | None
    size: int
    pages: tuple[Page, ...] = ()


Node = Inline | Slot | Blob | ListNode | Tree


class Root(msgspec.Struct, frozen=True, gc=False):
    """The state of a checkpoint. `streams`: how many streams the row's branch has so far."""

    tree: Tree
    streams: int


def node_weight(node: Node) -> int:
    """The approximate bytes of a node in a root or a page."""
    if type(node) is Inline:
        return len(node.raw) + 3
    if type(node) is ListNode:
        return 24 + 20 * len(node.pieces)
    if type(node) is Tree:
        return 12 + 6 * len(node.pages) if node.pages else 4 + children_weight(node.children or {})
    return 44 if type(node) is Blob else 32


def children_weight(children: dict[str, Node]) -> int:
    """The approximate bytes of these nodes and their keys."""
    return sum(map(node_weight, children.values())) + sum(map(len, children)) + 2 * len(children)


def split_pages(children: dict[str, Node]) -> list[dict[str, Node]]:
    """The children of a tree in order, as pages. A page begins at each key whose hash has a certain form, about every
    32nd. That depends on keys alone, so changing one child leaves all other pages unchanged."""
    pages: list[dict[str, Node]] = []
    for key, node in children.items():
        if not pages or zlib.crc32(key.encode()) & 31 == 0:
            pages.append({})
        pages[-1][key] = node
    return pages


# -- roots and pages --------------------------------------------------------------------------------------------------

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder()


def pack_root(root: Root, here: bytes) -> bytes:
    """The bytes of a root in a row of branch `here`."""
    table: list[bytes] = []
    tree = _pack(root.tree, here, table)
    return _ENCODER.encode([VERSION, root.streams, tree, table])


def unpack_root(data: bytes, here: bytes, where: str) -> Root:
    """The root that `pack_root` packed, or `Corrupt`."""
    parts = _decode(data, where)
    try:
        version, streams, tree, table = parts
        if version != VERSION:
            raise UnsupportedFormat(
                f"{where} has format {version}, this backtrail reads {VERSION}: use a newer backtrail"
            )
        node = _unpack(tree, [here, *table])
        if type(node) is not Tree or type(streams) is not int:
            raise TypeError("a root is a tree")
        return Root(node, streams)
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise Corrupt(where, f"its root makes no sense: {error}") from error


def pack_page(children: dict[str, Node], here: bytes) -> bytes:
    """The bytes of a page in a row of branch `here`."""
    table: list[bytes] = []
    packed = {key: _pack(node, here, table) for key, node in children.items()}
    return _ENCODER.encode([packed, table])


def unpack_page(data: bytes, here: bytes, where: str) -> dict[str, Node]:
    """The children that `pack_page` packed, or `Corrupt`."""
    parts = _decode(data, where)
    try:
        packed, table = parts
        branches = [here, *table]
        return {key: _unpack(node, branches) for key, node in packed.items()}
    except (ValueError, TypeError, IndexError, KeyError, AttributeError) as error:
        raise Corrupt(where, f"its page makes no sense: {error}") from error


def _decode(data: bytes, where: str) -> Any:
    try:
        return _DECODER.decode(data)
    except (ValueError, RecursionError) as error:
        raise Corrupt(where, str(error)) from error


def _index(branch: bytes, here: bytes, table: list[bytes]) -> int:
    if branch == here:
        return 0
    if branch not in table:
        table.append(branch)
    return table.index(branch) + 1


def _pack(node: Node, here: bytes, table: list[bytes]) -> list[Any]:
    if isinstance(node, ListNode):
        tail = node.tail
        pieces = [
            [
                _index(p.branch, here, table),
                p.stream,
                p.start,
                p.stop - p.start,
                p.first,
                p.last - p.first,
                p.begin,
                p.span,
            ]
            for p in node.pieces
        ]
        at = [_index(tail.branch, here, table), tail.stream, tail.items, tail.offset]
        return [_LIST, node.count, node.size, at, pieces]
    if isinstance(node, Inline):
        return [_INLINE, node.raw]
    if isinstance(node, Slot):
        return [_SLOT, _index(node.branch, here, table), node.step, node.index, node.size, node.check]
    if isinstance(node, Blob):
        return [_BLOB, node.id, node.size, node.text]
    if node.pages:
        pages = [[_index(page.branch, here, table), page.step, page.index] for page in node.pages]
        return [_PAGED_TREE, node.type, node.size, pages]
    assert node.children is not None
    children = {key: _pack(child, here, table) for key, child in node.children.items()}
    return [_TREE, node.type, node.size, children]


def _unpack(parts: list[Any], branches: list[bytes]) -> Node:
    kind = parts[0]
    if kind == _LIST:
        _, count, size, (at, stream, items, offset), rows = parts
        pieces = tuple(
            Piece(branches[b], stream_, start, start + length, first, first + more, begin, span)
            for b, stream_, start, length, first, more, begin, span in rows
        )
        return ListNode(pieces, count, size, Tail(branches[at], stream, items, offset))
    if kind == _INLINE:
        return Inline(parts[1])
    if kind == _SLOT:
        _, b, step, index, size, check = parts
        return Slot(branches[b], step, index, size, check)
    if kind == _BLOB:
        return Blob(*parts[1:])
    if kind == _PAGED_TREE:
        _, name, size, pages = parts
        return Tree(name, None, size, tuple(Page(branches[b], step, index) for b, step, index in pages))
    if kind == _TREE:
        _, name, size, children = parts
        return Tree(name, {key: _unpack(child, branches) for key, child in children.items()}, size)
    raise UnsupportedFormat(f"a node of kind {kind!r} was written by a newer backtrail")


def leaves(tree: Tree) -> Iterator[Node]:
    """Every node of a tree that is not itself a tree (all pages must have been fetched)."""
    for node in (tree.children or {}).values():
        if isinstance(node, Tree):
            yield from leaves(node)
        else:
            yield node


# -- payloads ---------------------------------------------------------------------------------------------------------

_COUNTS = struct.Struct("<HH")  # number of sections, number of slots
_SECTION = struct.Struct("<HIIQI")  # stream, first item, items, bytes of the stream before, bytes
_LENGTH = struct.Struct("<I")
_ONE_SECTION = struct.Struct("<HHHIIQI")  # both headers of a payload with one section and nothing else
_ONE_COUNT = struct.pack("<HH", 1, 0)
_STREAM = struct.Struct("<H")
_ONE_HEAD = len(BEFORE) + _COUNTS.size
_ONE_DATA = _ONE_HEAD + _SECTION.size
_FRONT = operator.itemgetter(slice(_ONE_HEAD + _STREAM.size))  # the same in all such rows of one stream
_DATA = operator.itemgetter(slice(_ONE_DATA, -len(BEHIND)))
MAX_STREAMS = 0xFFFF
ENOUGH_STREAMS = MAX_STREAMS // 2  # a branch that has begun more of them is not continued


class Section(NamedTuple):
    """Items start..start+items-1 of a stream. `data`: their encodings, one after the other; `offset`: bytes of the
    stream before them, so that a range of items is found without reading the rows before it."""

    stream: int
    start: int
    items: int
    offset: int
    data: bytes


def pack_payload(sections: list[Section], slots: list[bytes]) -> bytes:
    """The bytes of a payload."""
    if len(sections) == 1 and not slots:
        stream, start, items, offset, data = sections[0]
        return _ONE_SECTION.pack(1, 0, stream, start, items, offset, len(data)) + data
    parts = [_COUNTS.pack(len(sections), len(slots))]
    for stream, start, items, offset, data in sections:
        parts.append(_SECTION.pack(stream, start, items, offset, len(data)))
    parts.extend(_LENGTH.pack(len(slot)) for slot in slots)
    parts.extend(section.data for section in sections)
    parts.extend(slots)
    return b"".join(parts)


def unpack_payload(frame: bytes, where: str) -> tuple[list[Section], list[bytes]]:
    """Sections and slots of the payload in a bare frame."""
    stop = len(frame) - len(BEHIND)
    at = len(BEFORE)
    if at == stop:
        return [], []
    try:
        sections, slots = _COUNTS.unpack_from(frame, at)
        at += _COUNTS.size
        heads = [_SECTION.unpack_from(frame, at + i * _SECTION.size) for i in range(sections)]
        at += sections * _SECTION.size
        lengths = [_LENGTH.unpack_from(frame, at + i * 4)[0] for i in range(slots)]
    except struct.error as error:
        raise Corrupt(where, f"its payload is cut short: {error}") from error
    at += slots * 4
    found = []
    for stream, start, items, offset, length in heads:
        found.append(Section(stream, start, items, offset, frame[at : at + length]))
        at += length
    values = []
    for length in lengths:
        values.append(frame[at : at + length])
        at += length
    if at != stop:
        raise Corrupt(where, "its payload has the wrong length")
    return found, values


def only_section(data: bytes) -> Section | None:
    """The section of a payload (without its frame) that holds one section and nothing else; None for any other."""
    if not data.startswith(_ONE_COUNT):
        return None
    stream, start, items, offset, _ = _SECTION.unpack_from(data, _COUNTS.size)
    return Section(stream, start, items, offset, data[_COUNTS.size + _SECTION.size :])


def one_section_rows(frames: Sequence[bytes], stream: int) -> OneSectionRows | None:
    """Rows that each hold just one section of this stream, as nearly all rows do; None if one is different."""
    front = BEFORE + _ONE_COUNT + _STREAM.pack(stream)
    return OneSectionRows(frames) if set(map(_FRONT, frames)) <= {front} else None


class OneSectionRows:
    """A run of rows with one section each. Items are found by arithmetic; no header is unpacked for every row."""

    def __init__(self, frames: Sequence[bytes]) -> None:
        self.frames = frames

    def start(self, row: int) -> int:
        """The number of the first item in a row; after the last row, the number of the next item."""
        if row < len(self.frames):
            return int(_SECTION.unpack_from(self.frames[row], _ONE_HEAD)[1])
        _, start, count, _, _ = _SECTION.unpack_from(self.frames[row - 1], _ONE_HEAD)
        return int(start + count)

    def offset(self, row: int) -> int:
        """Bytes of the stream before a row."""
        return int(_SECTION.unpack_from(self.frames[row], _ONE_HEAD)[3])

    def data(self, first: int, last: int) -> list[bytes]:
        """The items of rows first..last-1."""
        return list(map(_DATA, self.frames[first:last]))
