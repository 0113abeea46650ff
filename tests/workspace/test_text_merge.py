"""Two changes of one text, merged line by line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtrail.workspace.text_merge import merge

BASE = b"a\nb\nc\nd\ne\nf\n"


@pytest.mark.parametrize(
    ("one", "other", "merged"),
    [
        (b"A\nb\nc\nd\ne\nf\n", b"a\nb\nc\nd\ne\nF\n", b"A\nb\nc\nd\ne\nF\n"),
        (b"a\nb\nx\nc\nd\ne\nf\n", b"a\nb\nc\nd\ne\n", b"a\nb\nx\nc\nd\ne\n"),
        (BASE, b"", b""),
        (b"A\nb\nc\nd\ne\nf\n", b"A\nb\nc\nd\ne\nf\n", b"A\nb\nc\nd\ne\nf\n"),
        (b"a\nb\nc\nd\ne\nf", b"A\nb\nc\nd\ne\nf\n", b"A\nb\nc\nd\ne\nf"),
        (b"A\nb\nc\nd\ne\nf\n", b"B\nb\nc\nd\ne\nf\n", None),
        (b"A\nb\nc\nd\ne\nf\n", b"a\nB\nc\nd\ne\nf\n", None),
        (b"x\na\nb\nc\nd\ne\nf\n", b"y\na\nb\nc\nd\ne\nf\n", None),
        (b"", b"a\nb\nC\nd\ne\nf\n", None),
        (b"\0\n", BASE, None),
    ],
)
def test_changes_in_different_lines_are_merged_and_overlapping_ones_are_not(
    one: bytes, other: bytes, merged: bytes | None
) -> None:
    assert merge(BASE, one, other) == merged
    assert merge(BASE, other, one) == merged


texts = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"d\n"]), max_size=12).map(b"".join)


@given(texts, texts)
def test_a_text_that_only_one_side_changed_becomes_that_side(base: bytes, changed: bytes) -> None:
    assert merge(base, changed, base) == changed
    assert merge(base, base, changed) == changed
    assert merge(base, changed, changed) == changed
