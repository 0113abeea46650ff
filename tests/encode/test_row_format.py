"""Roots in bytes: every list comes back as it was, and one that has only grown takes few bytes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backtrail.encode.row_format import (
    Inline,
    ListNode,
    Piece,
    Root,
    Tail,
    Tree,
    count_on_page,
    pack_page,
    pack_root,
    unpack_page,
    unpack_root,
)
from backtrail.errors import Corrupt

HERE, THERE = b"h" * 16, b"t" * 16
GROWN = ListNode((Piece(HERE, 3, 0, 800, 2, 1200, 0, 889600),), 800, 889600, Tail(HERE, 3, 800, 889600))

numbers = st.integers(0, 3)
branches = st.sampled_from([HERE, THERE])
pieces = st.builds(
    lambda branch, stream, start, items, first, more, begin, span: Piece(
        branch, stream, start, start + items, first, first + more, begin, span
    ),
    branches, *[numbers] * 7,
)  # fmt: skip
tails = st.builds(Tail, branches, numbers, numbers, numbers)
lists = st.builds(ListNode, st.lists(pieces, max_size=2).map(tuple), numbers, numbers, tails)


def root_of(node: ListNode) -> Root:
    return Root(Tree(None, {"messages": node}, node.size), 4)


@given(lists)
@example(GROWN)
@example(ListNode((Piece(HERE, 0, 0, 0, 0, 0, 0, 0),), 0, 0, Tail(HERE, 0, 0, 0)))
def test_a_list_comes_back_as_it_was(node: ListNode) -> None:
    assert unpack_root(pack_root(root_of(node), HERE), HERE, "here") == root_of(node)


def test_a_list_that_has_only_grown_is_five_numbers() -> None:
    tree = msgspec.msgpack.decode(pack_root(root_of(GROWN), HERE))[2]
    assert tree[3]["messages"] == [6, 3, 800, 2, 1198, 889600]


@pytest.mark.parametrize(
    "other",
    [
        ListNode(GROWN.pieces, 799, GROWN.size, GROWN.tail),
        ListNode(GROWN.pieces, GROWN.count, 1, GROWN.tail),
        ListNode(GROWN.pieces * 2, GROWN.count, GROWN.size, GROWN.tail),
        ListNode(GROWN.pieces, GROWN.count, GROWN.size, Tail(HERE, 3, 801, 889600)),
        ListNode(GROWN.pieces, GROWN.count, GROWN.size, Tail(THERE, 3, 800, 889600)),
        ListNode(GROWN.pieces, GROWN.count, GROWN.size, Tail(HERE, 2, 800, 889600)),
        ListNode((Piece(HERE, 3, 1, 800, 2, 1200, 0, 889600),), GROWN.count, GROWN.size, GROWN.tail),
    ],
)
def test_any_other_list_keeps_its_pieces_and_its_tail(other: ListNode) -> None:
    tree = msgspec.msgpack.decode(pack_root(root_of(other), HERE))[2]
    assert tree[3]["messages"][0] == 3
    assert unpack_root(pack_root(root_of(other), HERE), HERE, "here") == root_of(other)


@pytest.mark.parametrize("node", [[6], [6, 3, 800, 2, 1198], [6, 3, -1, 2, 1198, 1], [6, 3, "800", 2, 1, 1]])
def test_a_grown_list_that_makes_no_sense_is_damage(node: list[object]) -> None:
    data = msgspec.msgpack.encode([1, 4, [4, None, 0, {"messages": node}], []])
    with pytest.raises(Corrupt, match="root makes no sense"):
        unpack_root(data, HERE, "here")


@pytest.mark.parametrize("count", [0, 1, 15, 16, 70_000])
def test_the_children_on_a_page_are_counted_without_unpacking_it(count: int) -> None:
    page = pack_page({f"key {i}": Inline(b"\x01") for i in range(count)}, bytes(16))
    assert count_on_page(page, "a row") == count == len(unpack_page(page, bytes(16), "a row"))


@pytest.mark.parametrize("data", [b"", b"\x92", b"\x92\xdf\x00", b"\x92\xc0\x90", b"\x81\xa1a\x01"])
def test_a_page_that_is_none_is_not_counted(data: bytes) -> None:
    with pytest.raises(Corrupt):
        count_on_page(data, "a row")
