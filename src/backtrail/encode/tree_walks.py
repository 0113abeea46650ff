"""Walks over the trees of roots: the rows and blobs that a tree needs, its pages, and the values that lie together.

A load of a dict of thousands of large values walks over thousands of nodes. Most of these are slots, and follow each
other in the payload of one row: such a *run* is one object. The children of a heavy tree remember their runs, so that
the next load of the same tree visits no node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from backtrail.encode.row_format import Blob, ListNode, Node, Page, Slot, Tree

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


# -- runs of slots -----------------------------------------------------------------------------------------------------


class SlotRun(NamedTuple):
    """The keys whose values are the slots from number `first` on in the payload of (branch, step)."""

    branch: bytes
    step: int
    first: int
    keys: list[str]


class Runs(NamedTuple):
    """The children of a tree: its slots as runs, and the keys of all others."""

    slots: list[SlotRun]
    others: list[str]
    size: int  #: bytes in the slots


class WideDict(dict[str, Node]):
    """The children of a heavy tree, complete when they are first walked over. Their runs are found once."""

    __slots__ = ("runs",)
    runs: Runs | None

    def __init__(self, children: Iterable[tuple[str, Node]] | dict[str, Node] = ()) -> None:
        super().__init__(children)
        self.runs = None


def may_be_wide(tree: Tree) -> bool:
    """True if a tree may have many nodes: it, or a dict in it, is heavy."""
    return bool(tree.pages) or Tree in map(type, (tree.children or {}).values())


def runs_of(children: dict[str, Node]) -> Runs:
    """The runs of these children."""
    if not isinstance(children, WideDict):
        return _find_runs(children)
    if children.runs is None:
        children.runs = _find_runs(children)
    return children.runs


def _find_runs(children: dict[str, Node]) -> Runs:
    runs: list[SlotRun] = []
    others: list[str] = []
    keys: list[str] = []
    size = 0
    branch, step, index = b"", -1, -1  # of the slot that would continue the run
    for key, node in children.items():
        if type(node) is not Slot:
            others.append(key)
            continue
        if node.index != index or node.step != step or node.branch != branch:
            branch, step, index, keys = node.branch, node.step, node.index, []
            runs.append(SlotRun(branch, step, index, keys))
        keys.append(key)
        index += 1
        size += node.size
    return Runs(runs, others, size)


# -- what a tree needs -------------------------------------------------------------------------------------------------


class Needs:
    """What is needed to assemble some nodes, found in one walk: rows, blobs, and how much it will be."""

    __slots__ = ("blobs", "pieces", "size", "spans")

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.spans: set[tuple[bytes, int, int]] = set()  #: (branch, first, last)
        self.blobs: dict[bytes, None] = {}  #: ids, in the order of the nodes
        self.size = 0  #: bytes, as the nodes tell them; those of a root itself are not counted
        self.pieces = 0
        for node in nodes:
            self._add(node)

    def _add(self, node: Node) -> None:
        if isinstance(node, Tree):
            self._add_children(node.children or {})
        elif isinstance(node, ListNode):
            self.spans.update((piece.branch, piece.first, piece.last) for piece in node.pieces)
            self.pieces += len(node.pieces)
            self.size += node.size
        elif isinstance(node, Slot):
            self.spans.add((node.branch, node.step, node.step))
            self.size += node.size
        elif isinstance(node, Blob):
            self.blobs[node.id] = None
            self.size += node.size

    def _add_children(self, children: dict[str, Node]) -> None:
        slots, others, size = runs_of(children)
        self.size += size
        self.spans.update((run.branch, run.step, run.step) for run in slots)
        for key in others:
            self._add(children[key])


# -- pages -------------------------------------------------------------------------------------------------------------


def _trees_in(children: dict[str, Node]) -> Iterator[Tree]:
    for key in runs_of(children).others if isinstance(children, WideDict) else children:
        node = children[key]
        if isinstance(node, Tree):
            yield node


def pages_of(tree: Tree) -> Iterator[Page]:
    """All pages of a tree and of the trees in it (all pages must have been fetched)."""
    yield from tree.pages
    for below in _trees_in(tree.children or {}):
        yield from pages_of(below)


def unread_pages(tree: Tree) -> Iterator[Page]:
    """The pages in a tree that have not been fetched yet."""
    if tree.children is None:
        yield from tree.pages
    else:
        for below in _trees_in(tree.children):
            yield from unread_pages(below)


class Unread(NamedTuple):
    """A tree whose pages have not been fetched: the dict and the key that hold it, and how deep it lies."""

    holder: dict[str, Node]
    key: str
    depth: int

    @property
    def tree(self) -> Tree:
        tree = self.holder[self.key]
        assert isinstance(tree, Tree)
        return tree


def unread_trees(holder: dict[str, Node], depth: int = 0) -> Iterator[Unread]:
    """The trees under `holder` whose pages have not been fetched. Trees on the way to them are copied, so that the
    children can be put in their place."""
    for key, node in holder.items():
        if type(node) is Tree:
            if node.children is None:
                yield Unread(holder, key, depth)
            elif Tree in set(map(type, node.children.values())):
                holder[key] = copy = Tree(node.type, dict(node.children), node.size, node.pages)
                assert copy.children is not None
                yield from unread_trees(copy.children, depth + 1)
