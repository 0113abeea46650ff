"""Batches: items in groups of limited size, so that work on them needs limited memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def batches(
    items: Iterable[T], size: Callable[[T], int], max_bytes: int, max_items: int | None = None
) -> Iterator[list[T]]:
    """The items in order, in lists of at most so many bytes and items. An item that is larger comes alone."""
    batch: list[T] = []
    room = max_bytes
    for item in items:
        needed = size(item)
        if batch and (needed > room or len(batch) == max_items):
            yield batch
            batch, room = [], max_bytes
        batch.append(item)
        room -= needed
    if batch:
        yield batch
