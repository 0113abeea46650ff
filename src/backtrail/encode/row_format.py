"""The root of a row: a tree of nodes that locates each part of the state, and its bytes.

* `Inline`: a small value, in the root itself.
* `Slot`: a larger value, in the payload of the row that first held it.
* `Blob`: a large string or bytes, in the lineage's pool under the hash of its content.
* `ListNode`: a long list, as a table of pieces: ranges of items in append-only streams.
* `Tree`: a dict or a record. A heavy one keeps its children in pages, which are slots of payloads, so that a root stays
  small however wide the state is.

A *stream* is the sequence of all items that the rows of one branch ever added to one list, counted from 0; see
`payload_format` for where they lie.

In memory a node names branches by their id; in bytes by an index into the root's or page's own short table, 0 being the
branch of the row itself. Nodes, and the other records that a store keeps by the thousand, are made with `gc=False`: no
cycle can go through them, so the garbage collector need not visit them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from backtrail.encode.checksum import crc32
from backtrail.encode.values import MAX_DEPTH, bytes_text, is_clean, text_bytes
from backtrail.errors import Corrupt, UnsupportedFormat

VERSION = 1
MAX_TREE_WEIGHT = 1024  # bytes: the children of a heavier tree go into pages
_MOST_PIECES = 1024  # of one list; a planner begins to fold at a few dozen
MAX_TREE_DEPTH = MAX_DEPTH + 2  # no planned tree is deeper
_INLINE, _SLOT, _BLOB, _LIST, _TREE, _PAGED_TREE, _GROWN_LIST = range(7)
Count = Annotated[int, msgspec.Meta(ge=0)]


class Inline(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=_INLINE):
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


class Blob(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=_BLOB):
    """A large string or bytes. `text`: the blob is the UTF-8 of a str."""

    id: bytes
    size: Count
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
        if not pages or crc32(text_bytes(key)) & 31 == 0:
            pages.append({})
        pages[-1][key] = node
    return pages


# -- roots and pages --------------------------------------------------------------------------------------------------
# In bytes, a node is an array that begins with the number of its kind. Nodes are decoded as structs: that checks every
# field, and is twice as fast as going through lists.


class _Slot(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=_SLOT):
    branch: Count
    step: Count
    index: Count
    size: Count
    check: bytes


class _Piece(msgspec.Struct, frozen=True, array_like=True, gc=False):
    branch: Count
    stream: Count
    start: Count
    items: Count
    first: Count
    more: Count
    begin: Count
    span: Count


class _List(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=_LIST):
    count: Count
    size: Count
    tail: tuple[Count, Count, Count, Count]
    pieces: list[_Piece]


class _GrownList(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=_GROWN_LIST):
    """A list that is one stream of the row's own branch, from its beginning to its end: one that has only grown."""

    stream: Count
    count: Count
    first: Count
    more: Count
    size: Count


class _Tree(msgspec.Struct, frozen=True, array_like=True, tag=_TREE):
    name: str | None
    size: Count
    children: dict[str, _Node]


class _PagedTree(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=_PAGED_TREE):
    name: str | None
    size: Count
    pages: list[tuple[Count, Count, Count]]


_Node = Inline | _Slot | Blob | _List | _GrownList | _Tree | _PagedTree
_SAME = frozenset({Inline, Blob})  # in bytes as in memory: these name no branch
_ENCODER = msgspec.msgpack.Encoder()
_ANYTHING = msgspec.msgpack.Decoder()
_ROOT = msgspec.msgpack.Decoder(tuple[int, Count, _Tree | _PagedTree, list[bytes]])
_PAGE = msgspec.msgpack.Decoder(tuple[dict[str, _Node], list[bytes]])


def pack_root(root: Root, here: bytes) -> bytes:
    """The bytes of a root in a row of branch `here`."""
    table: list[bytes] = []
    tree = _pack(root.tree, here, table)
    return _ENCODER.encode([VERSION, root.streams, tree, table])


def unpack_root(data: bytes, here: bytes, where: str) -> Root:
    """The root that `pack_root` packed, or `Corrupt`."""
    try:
        version, streams, tree, table = _ROOT.decode(data)
        if version != VERSION:
            raise UnsupportedFormat(_newer(where, version))
        if _MARK_BYTES in data:
            _restore_keys({"": tree})
        node = _unpack(tree, [here, *table], 0)
        assert type(node) is Tree
        return Root(node, streams)
    except (ValueError, IndexError, RecursionError) as error:  # msgspec's own are ValueErrors
        raise _misfit(data, where, "root", error) from error


def pack_page(children: dict[str, Node], here: bytes) -> bytes:
    """The bytes of a page in a row of branch `here`."""
    table: list[bytes] = []
    packed = {key if key.isascii() else _key_text(key): _pack(node, here, table) for key, node in children.items()}
    return _ENCODER.encode([packed, table])


def unpack_page(data: bytes, here: bytes, where: str) -> dict[str, Node]:
    """The children that `pack_page` packed, or `Corrupt`."""
    try:
        packed, table = _PAGE.decode(data)
        branches = [here, *table]
        if _MARK_BYTES in data:
            packed = _restore_keys(packed)
        return {
            key: node
            if isinstance(node, Inline | Blob)  # as most nodes of a wide dict are, or slots
            else Slot(branches[node.branch], node.step, node.index, node.size, node.check)
            if type(node) is _Slot
            else _unpack(node, branches, 0)
            for key, node in packed.items()
        }
    except (ValueError, IndexError, RecursionError) as error:
        raise _misfit(data, where, "page", error) from error


def count_on_page(data: bytes, where: str) -> int:
    """How many children `pack_page` packed, from the head of the map that begins a page, or `Corrupt`."""
    kind = data[1] if len(data) > 1 and data[0] == 0x92 else 0
    if 0x80 <= kind <= 0x8F:
        return kind & 0x0F
    width = {0xDE: 2, 0xDF: 4}.get(kind)
    if width is None or len(data) < 2 + width:
        raise Corrupt(where, "a page of it has no children")
    return int.from_bytes(data[2 : 2 + width])


_MARK = "\U0010ffff"
_MARK_BYTES = _MARK.encode()


def _key_text(key: str) -> str:
    """A key as it is written: one that holds half of a surrogate pair, or that could be mistaken for such a one, as a
    mark and the hex digits of its bytes."""
    if key[0] != _MARK and is_clean(key):
        return key
    return _MARK + text_bytes(key).hex()


def _restore_keys(children: dict[str, Any]) -> dict[str, Any]:
    """The children with the keys that `_key_text` wrote, at any depth. Called only if the mark is in the bytes."""
    restored: dict[str, Any] = {}
    for key, node in children.items():
        if isinstance(node, _Tree):
            below = _restore_keys(node.children)
            node.children.clear()
            node.children.update(below)
        restored[_key_of(key) if key.startswith(_MARK) else key] = node
    return restored


def _key_of(text: str) -> str:
    return bytes_text(bytes.fromhex(text[1:]))


def _newer(where: str, version: object) -> str:
    return f"{where} has format {version!r:.20}, this backtrail reads {VERSION}: use a newer backtrail"


def _misfit(data: bytes, where: str, what: str, error: Exception) -> Corrupt | UnsupportedFormat:
    """The error for a root or a page that is not one of ours."""
    try:
        found = _ANYTHING.decode(data)
    except (ValueError, RecursionError):
        found = None
    if what == "root" and type(found) is list and found and type(found[0]) is int and found[0] != VERSION:
        return UnsupportedFormat(_newer(where, found[0]))
    return Corrupt(where, f"its {what} makes no sense: {error}")


def _index(branch: bytes, here: bytes, table: list[bytes]) -> int:
    if branch == here:
        return 0
    if branch not in table:
        table.append(branch)
    return table.index(branch) + 1


def _has_only_grown(node: ListNode, here: bytes) -> bool:
    """True if the list is all of one stream of the branch `here`."""
    if len(node.pieces) != 1:
        return False
    piece, tail = node.pieces[0], node.tail
    return (
        piece.branch == here == tail.branch
        and piece.stream == tail.stream
        and 0 == piece.start == piece.begin
        and piece.stop == node.count == tail.items
        and piece.span == node.size == tail.offset
    )


def _pack(node: Node, here: bytes, table: list[bytes]) -> Any:
    if isinstance(node, ListNode):
        tail = node.tail
        if _has_only_grown(node, here):
            piece = node.pieces[0]
            return [_GROWN_LIST, piece.stream, node.count, piece.first, piece.last - piece.first, node.size]
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
    if isinstance(node, Slot):
        return [_SLOT, _index(node.branch, here, table), node.step, node.index, node.size, node.check]
    if not isinstance(node, Tree):
        return node
    if node.pages:
        pages = [[_index(page.branch, here, table), page.step, page.index] for page in node.pages]
        return [_PAGED_TREE, node.type, node.size, pages]
    assert node.children is not None
    children = {
        key if key.isascii() else _key_text(key): child if type(child) is Inline else _pack(child, here, table)
        for key, child in node.children.items()
    }
    return [_TREE, node.type, node.size, children]


def _unpack(node: _Node, branches: list[bytes], depth: int) -> Node:
    if isinstance(node, _Tree):
        if depth > MAX_TREE_DEPTH:
            raise ValueError(f"its tree is more than {MAX_TREE_DEPTH} levels deep")
        children: dict[str, Any] = node.children
        for key, child in children.items():
            if type(child) is _Slot:
                children[key] = Slot(branches[child.branch], child.step, child.index, child.size, child.check)
            elif type(child) not in _SAME:
                children[key] = _unpack(child, branches, depth + 1)
        return Tree(node.name, children, node.size)
    if isinstance(node, _List):
        if len(node.pieces) > _MOST_PIECES:
            raise ValueError(f"a list has {len(node.pieces):,} pieces")
        pieces = tuple(
            Piece(
                *(branches[p.branch], p.stream, p.start, p.start + p.items, p.first, p.first + p.more, p.begin, p.span)
            )
            for p in node.pieces
        )
        at, stream, items, offset = node.tail
        return ListNode(pieces, node.count, node.size, Tail(branches[at], stream, items, offset))
    if isinstance(node, _GrownList):
        here, stream, count, size = branches[0], node.stream, node.count, node.size
        piece = Piece(here, stream, 0, count, node.first, node.first + node.more, 0, size)
        return ListNode((piece,), count, size, Tail(here, stream, count, size))
    if isinstance(node, _Slot):
        return Slot(branches[node.branch], node.step, node.index, node.size, node.check)
    if isinstance(node, Inline | Blob):
        return node
    return Tree(node.name, None, node.size, tuple(Page(branches[b], step, index) for b, step, index in node.pages))


def leaves(tree: Tree) -> Iterator[Node]:
    """Every node of a tree that is not itself a tree (all pages must have been fetched)."""
    for node in (tree.children or {}).values():
        if isinstance(node, Tree):
            yield from leaves(node)
        else:
            yield node
