"""Merges two changes of one text, line by line. Changes that overlap, or touch, cannot be merged."""

from __future__ import annotations

from collections.abc import Sequence

from backtrail.sequence_diff import Span, spans


def is_text(data: bytes) -> bool:
    """True if data can be merged by its lines."""
    return b"\0" not in data


def merge(base: bytes, one: bytes, other: bytes) -> bytes | None:
    """`base` with the changes from it to `one` and to `other`; None if they overlap, or if one of the three is not
    text."""
    if not all(map(is_text, (base, one, other))):
        return None
    lines = [text.splitlines(keepends=True) for text in (base, one, other)]
    merged = _merge(*lines)
    return None if merged is None else b"".join(merged)


def _merge(base: Sequence[bytes], one: Sequence[bytes], other: Sequence[bytes]) -> list[bytes] | None:
    left, right = _changed(base, one)[::-1], _changed(base, other)[::-1]
    merged: list[bytes] = []
    at = 0
    while left or right:
        if left and right and left[-1].a0 <= right[-1].a1 and right[-1].a0 <= left[-1].a1:
            span, same = left.pop(), right.pop()
            if span[1:3] != same[1:3] or one[span.b0 : span.b1] != other[same.b0 : same.b1]:
                return None
            source = one
        elif left and (not right or left[-1].a0 < right[-1].a0):
            span, source = left.pop(), one
        else:
            span, source = right.pop(), other
        merged += [*base[at : span.a0], *source[span.b0 : span.b1]]
        at = span.a1
    return [*merged, *base[at:]]


def _changed(base: Sequence[bytes], lines: Sequence[bytes]) -> list[Span]:
    return [span for span in spans(base, lines) if span.kind == "changed"]
