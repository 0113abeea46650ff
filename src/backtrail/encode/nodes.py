"""The root of a checkpoint: a tree of nodes that says where each part of the state lies.

* `Inline`: a small value, right here.
* `Slot`: a larger value, in the payload of the row that first held it.
* `Blob`: a large string or bytes, in the lineage's pool under the hash of its content.
* `ListNode`: a long list, as a table of pieces: ranges of items in append-only streams.
* `Tree`: a dict or a record. A heavy one keeps its children in pages, which lie in payloads like slots do, so that
  a root stays small however wide the state is.

A *stream* is the sequence of all items that rows of one branch ever added to one list; items are counted from 0. In
memory a node names branches by their id; in bytes by an index into the unit's own short table, 0 being the branch of
the row that holds the unit.

Nodes and the other records that a store keeps by the thousand are made with `gc=False`: no cycle can go through them,
so the collector need not visit each of them again and again.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from backtrail.errors import Corrupt, UnsupportedFormat

VERSION = 1
HEAVY = 1024  # a tree whose nodes weigh more than this goes into pages
_INLINE, _SLOT, _BLOB, _LISTING, _TREE, _PAGED = range(6)


class Inline(msgspec.Struct, frozen=True, gc=False):
    """`raw` is the encoded value."""

    raw: bytes

    @property
    def size(self) -> int:
        return len(self.raw)


class Slot(msgspec.Struct, frozen=True, gc=False):
    """Value number `index` in the payload of (branch, step). `check` is a digest of its encoding: equal means same."""

    branch: bytes
    step: int
    index: int
    size: int
    check: bytes


class Blob(msgspec.Struct, frozen=True, gc=False):
    """`text`: the blob is the UTF-8 of a str, else it is bytes."""

    id: bytes
    size: int
    text: bool


class Piece(msgspec.Struct, frozen=True, gc=False):
    """Items start..stop-1 of a stream. Rows first..last of the branch hold them; what these rows have of the stream
    begins at its byte `begin` and is `span` bytes long."""

    branch: bytes
    stream: int
    start: int
    stop: int
    first: int
    last: int
    begin: int
    span: int


class Tail(msgspec.Struct, frozen=True, gc=False):
    """Where the next items of a list go: the stream, how many items it has and how many bytes."""

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
    """A unit in slot `index` of a payload that holds some consecutive children of a tree."""

    branch: bytes
    step: int
    index: int


class Tree(msgspec.Struct, frozen=True, gc=False):
    """A dict (`type` None) or a record. `pages` name where the children lie, if not here; see `paged`.

    `children` is None while the pages of a tree that was just read have not been fetched."""

    type: str | None
    children: dict[str, Node] | None
    size: int
    pages: tuple[Page, ...] = ()


Node = Inline | Slot | Blob | ListNode | Tree


class Root(msgspec.Struct, frozen=True, gc=False):
    """`streams`: how many streams the row's branch has so far."""

    tree: Tree
    streams: int


def weight(node: Node) -> int:
    """About how many bytes a node takes in a unit."""
    if type(node) is Inline:
        return len(node.raw) + 3
    if type(node) is ListNode:
        return 24 + 20 * len(node.pieces)
    if type(node) is Tree:
        return 12 + 6 * len(node.pages) if node.pages else 4 + children_weight(node.children or {})
    return 44 if type(node) is Blob else 32


def children_weight(children: dict[str, Node]) -> int:
    return sum(map(weight, children.values())) + sum(map(len, children)) + 2 * len(children)


def cut(children: dict[str, Node]) -> list[dict[str, Node]]:
    """The pages of a tree: its children in order, cut where a key's own hash says so, about every 32nd.

    The cuts depend on keys alone, so a change in one place leaves all other pages as they were."""
    pages: list[dict[str, Node]] = []
    for key, node in children.items():
        if not pages or zlib.crc32(key.encode()) & 31 == 0:
            pages.append({})
        pages[-1][key] = node
    return pages


# -- bytes ------------------------------------------------------------------------------------------------------------

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder()


def pack_root(root: Root, here: bytes) -> bytes:
    """The bytes of a root in a row of branch `here`."""
    table: list[bytes] = []
    tree = _pack(root.tree, here, table)
    return _ENCODER.encode([VERSION, root.streams, tree, table])


def unpack_root(data: bytes, here: bytes, where: str) -> Root:
    """The root of these bytes; `Corrupt` if they are none."""
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
    """The children on a page."""
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
        return [_LISTING, node.count, node.size, at, pieces]
    if isinstance(node, Inline):
        return [_INLINE, node.raw]
    if isinstance(node, Slot):
        return [_SLOT, _index(node.branch, here, table), node.step, node.index, node.size, node.check]
    if isinstance(node, Blob):
        return [_BLOB, node.id, node.size, node.text]
    if node.pages:
        pages = [[_index(page.branch, here, table), page.step, page.index] for page in node.pages]
        return [_PAGED, node.type, node.size, pages]
    assert node.children is not None
    children = {key: _pack(child, here, table) for key, child in node.children.items()}
    return [_TREE, node.type, node.size, children]


def _unpack(parts: list[Any], branches: list[bytes]) -> Node:
    kind = parts[0]
    if kind == _LISTING:
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
    if kind == _PAGED:
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
