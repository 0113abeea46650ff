"""Plans a save: from a state and the previous root, it makes a new root and a payload with only what is new.

The planner is pure. It is given the position of the new row, walks the state beside the old tree, keeps every node
whose value is unchanged, and collects the rest: items for streams, values for slots, large strings for the pool. A list
that only grew costs its new items; any other edit reuses each run of unchanged items as a piece.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from blake3 import blake3

from backtrail.encode.change_detection import KnownList, KnownLists, ListSnapshot, RowIndex
from backtrail.encode.payload_format import ENOUGH_STREAMS, MAX_STREAMS, Section, pack_payload
from backtrail.encode.piece_table import MAX_PIECES, join_adjacent, reuse_pieces
from backtrail.encode.record_types import Kind, Unreadable, Unregistered, is_name, is_record
from backtrail.encode.row_format import (
    MAX_TREE_WEIGHT,
    Blob,
    Inline,
    ListNode,
    Node,
    Page,
    Piece,
    Root,
    Slot,
    Tail,
    Tree,
    children_weight,
    pack_page,
    split_pages,
)
from backtrail.encode.tree_walks import WideDict
from backtrail.encode.values import MAX_DEPTH, MAX_VALUE, Values, text_bytes
from backtrail.errors import EncodeError, InvalidInput

MAX_INLINE = 96  # encoded bytes of a value that stays in the root
LONG = 256  # encoded bytes from which a list becomes a piece table
LARGE = MAX_TREE_WEIGHT  # encoded bytes from which a dict becomes a tree: the tree of a smaller one would fill the root
BLOB = 4 * 1024  # bytes from which a string goes into the pool: as long as a list needs a row, the whole row is kept

Path = tuple[str, ...]


class PlannedRow(msgspec.Struct, frozen=True, gc=False):
    """The root, payload and blobs that a save will write."""

    root: Root
    payload: bytes
    blobs: dict[bytes, bytes]
    framed: dict[bytes, bytes] = {}  #: blobs that a view has wrapped already


class NeedsItems(Exception):
    """The plan has to compare the items of a list: it must be made again, with the known lists."""


ITEM_DEPTH = 2  #: of an item in a list at a top-level key; who encodes one in advance says so to `Values.encode`


class Planner:
    """Plans one row. `lists` belongs to the caller and is changed by the plan: it must be discarded if the row is not
    committed."""

    __slots__ = (
        *("_blobs", "_branch", "_identity", "_lists", "_name_blob", "_old", "_sections", "_slots", "_step"),
        *("_streams", "_values"),
    )

    def __init__(
        self,
        values: Values,
        branch: bytes,
        step: int,
        old: Root | None,
        lists: KnownLists | None,
        name_blob: Callable[[bytes], bytes],
        identity: bool = False,
    ) -> None:
        self._values = values
        self._name_blob = name_blob
        self._branch = branch
        self._step = step
        self._old = old
        self._lists = lists
        self._identity = identity
        self._streams = old.streams if old is not None else 0
        self._sections: list[Section] = []
        self._slots: list[bytes] = []
        self._blobs: dict[bytes, bytes] = {}

    # -- the ways to change a state -----------------------------------------------------------------------------------

    def replace(self, state: Any) -> PlannedRow:
        """The state becomes `state`; unchanged parts are not written again."""
        name, fields = self._top_level(state)
        old = self._old.tree if self._old is not None else None
        return self._finish(self._tree(name, fields, old, (), 1))

    def rewrite_all(self, state: Any) -> PlannedRow:
        """The state becomes `state`, and all of it is written, because the previous state cannot be read."""
        self._old, self._lists = None, {}
        return self.replace(state)

    def append(self, key: str, items: list[Any], encoded: list[bytes] | None = None) -> PlannedRow:
        """The list at a top-level key gets more items. Those before them are not read. `encoded` are the bytes of the
        items, if the caller has them."""
        tree = self._old.tree if self._old is not None else Tree(None, {}, 0)
        children = dict(_children(tree))
        old = children.get(key)
        children[key] = new = self._appended(key, old, items, encoded)
        if type(old) is ListNode and type(new) is ListNode and len(new.pieces) == len(old.pieces) and not tree.pages:
            # Only a few numbers of one list node changed: the tree has the same weight, and no page has to be written.
            return self._finish(Tree(tree.type, children, tree.size - old.size + new.size))
        return self._finish(self._make_tree(tree.type, children, tree))

    # -- for views: small values of the state before, and several changes in one row ---------------------------------

    def peek(self, key: str, default: Any = None) -> Any:
        """The small value at a top-level key of the previous state."""
        node = _children(self._old.tree).get(key) if self._old is not None else None
        return self._values.decode(node.raw) if isinstance(node, Inline) else default

    def count(self, key: str) -> int:
        """The number of items in the list at a top-level key of the previous state."""
        node = _children(self._old.tree).get(key) if self._old is not None else None
        if isinstance(node, ListNode):
            return node.count
        value = self.peek(key, [])
        return len(value) if type(value) is list else 0

    def change(
        self,
        changes: dict[str, Any],
        *,
        append: tuple[str, list[Any]] | tuple[str, list[Any], list[bytes]] | None = None,
        lists: dict[str, ListNode] | None = None,
        drop: tuple[str, ...] = (),
    ) -> PlannedRow:
        """Some keys are set, one list gets more items, `lists` are inserted as nodes, and some keys are deleted."""
        if append is not None and not (changes or lists or drop):
            return self.append(*append)
        tree = self._old.tree if self._old is not None else Tree(None, {}, 0)
        children = dict(_children(tree))
        for key in drop:
            children.pop(key, None)
        if append is not None:
            children[append[0]] = self._appended(append[0], children.get(append[0]), *append[1:])
        for key, listing in (lists or {}).items():
            children[key] = listing
            if self._lists is not None:
                self._lists.pop((key,), None)
        for key, value in changes.items():
            _check_key(key, ())
            children[key] = self._node(value, children.get(key), (key,), 1)
        return self._finish(self._make_tree(tree.type, children, tree))

    # -- the walk -----------------------------------------------------------------------------------------------------

    def _top_level(self, state: Any) -> tuple[str | None, dict[str, Any]]:
        if type(state) is dict:
            return None, state
        if type(state) is Unregistered and type(state.value) is dict and is_name(state.type):
            return state.type, state.value
        known = self._values.types.by_class.get(type(state))
        if known is None or not is_record(known.cls):
            name = type(state).__qualname__
            hint = f"register it with types=[{name}]" if is_record(type(state)) else "put it in a dict"
            raise EncodeError("state", f"is a {name}, not a dict or a registered record type: {hint}")
        return known.name, self._fields(known, state, ())

    def _fields(self, known: Kind, value: Any, path: Path) -> dict[str, Any]:
        try:
            return known.take_apart(value)
        except Unreadable as error:
            raise EncodeError(_path_text(path), str(error)) from error

    def _tree(self, name: str | None, fields: dict[str, Any], old: Node | None, path: Path, depth: int) -> Tree:
        before = old if isinstance(old, Tree) else None
        known = _children(before) if before is not None else {}
        children: dict[str, Node] = {}
        for key, value in fields.items():
            _check_key(key, path)
            children[key] = self._node(value, known.get(key), (*path, key), depth)
        return self._make_tree(name, children, before)

    def _node(self, value: Any, old: Node | None, path: Path, depth: int) -> Node:
        kind = type(value)
        if kind is list:
            return self._list(value, old, path, depth)
        if kind is dict:
            if isinstance(old, Tree) and old.type is None and all(type(key) is str for key in value):
                return self._dict(value, old, path, depth)
        elif kind is str or kind is bytes:
            return self._string(value, old, path, depth)
        elif isinstance(old, Tree) and old.type is not None:
            known = self._values.types.by_class.get(kind)
            if known is not None and known.name == old.type:
                return self._tree(known.name, self._fields(known, value, path), old, path, depth + 1)
        raw = self._encode(value, path, depth)
        if len(raw) >= LARGE:
            if kind is dict and all(type(key) is str for key in value):
                return self._tree(None, value, old, path, depth + 1)
            known = self._values.types.by_class.get(kind)
            if known is not None and is_record(kind):
                return self._tree(known.name, self._fields(known, value, path), old, path, depth + 1)
        return self._value(raw, old)

    def _dict(self, value: dict[str, Any], old: Tree, path: Path, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise EncodeError(_path_text(path), f"is nested more than {MAX_DEPTH} levels deep, or contains itself")
        return self._tree(None, value, old, path, depth + 1)

    def _string(self, value: str | bytes, old: Node | None, path: Path, depth: int) -> Node:
        if len(value) < BLOB // 4:
            return self._value(self._encode(value, path, depth), old)
        data = text_bytes(value) if isinstance(value, str) else value
        if len(data) > MAX_VALUE:
            raise EncodeError(
                _path_text(path), f"is {len(data):,} bytes long, more than {MAX_VALUE >> 20} MiB: keep it in a file"
            )
        if len(data) < BLOB:
            return self._value(self._encode(value, path, depth), old)
        node = Blob(self._name_blob(data), len(data), isinstance(value, str))
        if node != old:
            self._blobs[node.id] = data
        return node

    def _value(self, raw: bytes, old: Node | None) -> Node:
        if len(raw) <= MAX_INLINE:
            return Inline(raw)
        check = blake3(raw).digest(16)
        if isinstance(old, Slot) and old.check == check and old.size == len(raw):
            return old
        self._slots.append(raw)
        return Slot(self._branch, self._step, len(self._slots) - 1, len(raw), check)

    # -- lists --------------------------------------------------------------------------------------------------------

    def _list(self, value: list[Any], old: Node | None, path: Path, depth: int) -> Node:
        if not isinstance(old, ListNode):
            if len(value) < LONG:  # shorter in bytes is possible only for a shorter list
                raw = self._encode(value, path, depth)
                if len(raw) < LONG:
                    return Inline(raw)  # never a slot: append() needs only the root
            return self._new_list(value, path, depth)
        known = self._lists.get(path) if self._lists is not None else None
        if known is None:
            return self._new_list(value, path, depth)
        if known.snapshot.is_prefix_of(value) and len(old.pieces) < MAX_PIECES:
            new = value[len(known.snapshot) :]
            longer = self._extend(old, new, path, depth + 1) if new else old
            if self._identity and not known.snapshot.identity:  # from a load, without the caller's objects
                known.snapshot = self._snapshot(value)
            return longer
        return self._edit(value, old, known, path, depth)

    def _appended(self, key: str, old: Node | None, items: list[Any], encoded: list[bytes] | None = None) -> Node:
        if isinstance(old, ListNode):
            if len(old.pieces) < MAX_PIECES:
                return self._extend(old, items, (key,), ITEM_DEPTH, encoded)
            return self._extend_full(old, items, (key,))
        known = self._values.decode(old.raw) if isinstance(old, Inline) else [] if old is None else None
        if type(known) is not list:
            raise InvalidInput(f"state[{key!r}] is not a list: append() extends lists, update() sets values")
        return self._node(known + items, old, (key,), 1)

    def _encode(self, value: Any, path: Path, depth: int) -> bytes:
        try:
            return self._values.encode(value, "", depth)
        except EncodeError as error:  # the text of the path is made only here: it is rarely needed
            raise EncodeError(_path_text(path) + error.path, error.reason) from error.__cause__

    def _encode_items(self, items: list[Any], first: int, path: Path, depth: int) -> list[bytes]:
        encode = self._values.encode
        data: list[bytes] = []
        try:
            for item in items:
                data.append(encode(item, "", depth))  # noqa: PERF401  # on an error, the path needs the number of items done
        except EncodeError as error:
            raise EncodeError(f"{_path_text(path)}[{first + len(data)}]{error.path}", error.reason) from error.__cause__
        return data

    def _snapshot(self, items: list[Any]) -> ListSnapshot:
        return ListSnapshot(items, self._values.encode, self._identity, self._values.types.lookalikes)

    def _tail(self, old: ListNode | None) -> Tail:
        """The end of the stream for new items: the list's own, if that belongs to this branch, else a new one."""
        if old is not None and old.tail.branch == self._branch:
            return old.tail
        if self._streams >= MAX_STREAMS:
            raise InvalidInput(f"one save begins more than {ENOUGH_STREAMS:,} long lists: split it")
        self._streams += 1
        return Tail(self._branch, self._streams - 1, 0, 0)

    def _write(self, data: list[bytes], tail: Tail) -> tuple[Piece, Tail]:
        joined = b"".join(data)
        self._sections.append(Section(tail.stream, tail.items, len(data), tail.offset, joined))
        stop = tail.items + len(data)
        piece = Piece(tail.branch, tail.stream, tail.items, stop, self._step, self._step, tail.offset, len(joined))
        return piece, Tail(tail.branch, tail.stream, stop, tail.offset + len(joined))

    def _new_list(self, items: list[Any], path: Path, depth: int) -> ListNode:
        """A list without a known previous version: all of its items go into a new stream."""
        data = self._encode_items(items, 0, path, depth + 1)
        tail = self._tail(None)
        row_index = RowIndex()
        pieces: tuple[Piece, ...] = ()
        if data:
            row_index.add(tail, self._step)
            piece, tail = self._write(data, tail)
            pieces = (piece,)
        if self._lists is not None:
            self._lists[path] = KnownList(self._snapshot(items), row_index)
        return ListNode(pieces, len(items), sum(map(len, data)), tail)

    def _extend(
        self, old: ListNode, items: list[Any], path: Path, depth: int, encoded: list[bytes] | None = None
    ) -> ListNode:
        """The list has only grown at its end."""
        if not items:
            return old
        data = self._encode_items(items, old.count, path, depth) if encoded is None else encoded
        tail = self._tail(old)
        piece, new_tail = self._write(data, tail)
        known = self._lists.get(path) if self._lists is not None else None
        if known is not None:
            known.extend(items, tail, self._step)
        joined = old.pieces[-1].joined(piece) if old.pieces else None
        pieces = (*old.pieces, piece) if joined is None else (*old.pieces[:-1], joined)
        return ListNode(pieces, old.count + len(items), old.size + piece.span, new_tail)

    def _extend_full(self, old: ListNode, items: list[Any], path: Path) -> Node:
        """The list got longer, and its table is full: it is planned like an edit, which makes the table short again."""
        known = self._lists.get(path) if self._lists is not None else None
        if known is None:
            raise NeedsItems
        return self._edit(known.snapshot.items_with(self._values.decode) + items, old, known, path, 1)

    def _edit(self, value: list[Any], old: ListNode, known: KnownList, path: Path, depth: int) -> Node:
        """Any other change: unchanged runs of items become pieces of the old streams, the rest is written."""
        data = self._encode_items(value, 0, path, depth + 1)
        if len(value) < LONG and sum(map(len, data)) < LONG - 3:
            return Inline(self._encode(value, path, depth))
        tail = self._tail(old)
        pieces: list[Piece] = []
        for run in reuse_pieces(value, data, old, known):
            if isinstance(run, Piece):
                pieces.append(run)
            else:
                known.row_index.add(tail, self._step)
                piece, tail = self._write(run, tail)
                pieces.append(piece)
        known.snapshot = self._snapshot(value)
        return ListNode(join_adjacent(pieces), len(value), sum(map(len, data)), tail)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _make_tree(self, name: str | None, children: dict[str, Node], old: Tree | None) -> Tree:
        """The tree of these children. A heavy one is split into pages, and unchanged pages are reused."""
        size = 0
        for key, node in children.items():
            size += len(key) + node.size
        if old is not None and old.type == name and old.children == children and list(old.children) == list(children):
            return old
        if children_weight(children) <= MAX_TREE_WEIGHT:
            return Tree(name, children, size)
        known: dict[str, tuple[dict[str, Node], Page]] = {}
        if old is not None and old.pages:
            before = split_pages(_children(old))
            known = {next(iter(page)): (page, at) for page, at in zip(before, old.pages, strict=True)}
        pages = []
        for page in split_pages(children):
            there = known.get(next(iter(page)))
            if there is not None and there[0] == page and list(there[0]) == list(page):
                pages.append(there[1])
            else:
                self._slots.append(pack_page(page, self._branch))
                pages.append(Page(self._branch, self._step, len(self._slots) - 1))
        return Tree(name, WideDict(children), size, tuple(pages))

    def _finish(self, tree: Tree) -> PlannedRow:
        if len(self._slots) > 0xFFFF or len(self._sections) > 0xFFFF:
            raise InvalidInput("one save writes more than 65,535 large values: split it")
        data = pack_payload(self._sections, self._slots) if self._sections or self._slots else b""
        return PlannedRow(Root(tree, self._streams), data, self._blobs)


def _children(tree: Tree) -> dict[str, Node]:
    assert tree.children is not None, "pages are fetched before a tree is planned on"
    return tree.children


def _check_key(key: Any, path: Path) -> None:
    if type(key) is not str:
        raise EncodeError(_path_text(path), f"has the key {key!r}, which is not a string")


def _path_text(path: Path) -> str:
    return "state" + "".join(f'["{key}"]' for key in path)
