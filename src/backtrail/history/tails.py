"""The ends of long lists, as they were read or written last: whoever appends and reads the end finds it in memory.

An item of a stream is written once and never changes, so what is remembered of a stream stays true. Which items a list
is made of is not remembered here: the root says so, and that is read from the engine every time.

A message without anything nested in it is kept as it is and copied for each reader; any other item is kept encoded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any

import msgspec

from backtrail.encode.row_format import ListNode, Piece, only_section
from backtrail.encode.values import Values, is_plain
from backtrail.engines.fork_safety import ForkSafe

MAX_ITEMS = 256  # of one stream
MAX_BYTES = 1024 * 1024  # of one stream, encoded
MAX_ALL_BYTES = 32 * 1024 * 1024
MAX_TAILS = 4096  # streams
_TEXT = frozenset({str})
_NEVER_CHANGE = frozenset({str, int, float, bool, NoneType, bytes})
_encode = msgspec.msgpack.Encoder().encode
_copy: Callable[[Any], dict[str, Any]] = dict.copy

Item = dict[str, Any] | bytes  #: a flat dict, or the encoding of anything else


class _Tail:
    """Items of one stream, from number `start` on."""

    __slots__ = ("bytes", "items", "sizes", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.items: list[Item] = []
        self.sizes: list[int] = []
        self.bytes = 0

    @property
    def stop(self) -> int:
        return self.start + len(self.items)

    def add(self, items: list[Item], size: int) -> None:
        """More items, which encode to `size` bytes together; the oldest ones make room."""
        each = size // max(1, len(items)) + 1
        self.items += items
        self.sizes += [each] * len(items)
        self.bytes += each * len(items)
        gone, left = 0, self.bytes
        while left > MAX_BYTES or len(self.items) - gone > MAX_ITEMS:
            left -= self.sizes[gone]
            gone += 1
        if gone:
            self.start += gone
            self.bytes = left
            del self.items[:gone], self.sizes[:gone]


class TailCache(ForkSafe):
    """The tails of the streams used last. Safe to share between threads."""

    def __init__(self) -> None:
        super().__init__()
        self._tails: OrderedDict[tuple[bytes, int], _Tail] = OrderedDict()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._tails)

    def items(self, listing: ListNode, start: int, stop: int, values: Values) -> list[Any] | None:
        """Items start..stop-1 of a list, new ones for each caller; None if not all of them are remembered."""
        parts = []
        with self._lock:
            for piece, low, high in _parts(listing, start, stop):
                key = piece.branch, piece.stream
                tail = self._tails.get(key)
                if tail is None or low < tail.start or high > tail.stop:
                    return None
                self._tails.move_to_end(key)
                parts.append((tail, low, tail.items[low - tail.start : high - tail.start]))
        # Items that are kept never change, so all the rest is done without the lock: decoding may be the user's code.
        found: list[Any] = []
        for tail, low, part in parts:
            if type(part[-1]) is bytes:  # as it was written; when it is settled, in most chats all are flat
                self._settle(tail, low, part, len(part) - 1, values)
            try:
                found += list(map(_copy, part))
            except TypeError:
                found += [
                    item.copy() if isinstance(item, dict) else self._settle(tail, low, part, at, values)
                    for at, item in enumerate(part)
                ]
        return found

    def _settle(self, tail: _Tail, low: int, part: list[Item], at: int, values: Values) -> Any:
        """The value of an encoded item in a part of a tail that begins at item `low`. If it may as well be kept as it
        is, it is from now on, and in this part too."""
        item = part[at]
        value = values.decode(item) if isinstance(item, bytes) else item.copy()
        if _is_flat(value):
            part[at] = value.copy()
            with self._lock:
                place = low + at - tail.start
                if 0 <= place < len(tail.items) and tail.items[place] is item:
                    tail.items[place] = part[at]
        return value

    def reach(self, listing: ListNode, start: int) -> int:
        """Up to which item of a list those from `start` on are remembered without a gap."""
        with self._lock:
            for piece, low, high in _parts(listing, start, listing.count):
                tail = self._tails.get((piece.branch, piece.stream))
                if tail is None or not tail.start <= low < tail.stop:
                    return start
                start += min(high, tail.stop) - low
                if tail.stop < high:
                    return start
        return start

    def read(self, listing: ListNode, start: int, items: list[Any]) -> None:
        """Remember the items of a list from `start` to its end, which were just read and now are the caller's."""
        if len(items) > MAX_ITEMS:
            return
        for piece, low, high in _parts(listing, start, start + len(items)):
            kept = _kept(items[: high - low])
            items = items[high - low :]
            with self._lock:
                self._extend((piece.branch, piece.stream), low, high, kept)

    def written(self, listing: ListNode, data: bytes, values: Values) -> None:
        """A list may have grown by what is in the payload of the row that was just committed. If nothing else is in it,
        and the items before are remembered, these are too; else they are left to the next who reads."""
        key = listing.tail.branch, listing.tail.stream
        section = only_section(data) if key in self._tails else None  # most ends are never read
        if section is None or section.stream != key[1]:
            return
        items: list[Item] = [section.data]
        if section.items != 1:
            items = _kept(values.decode_items([section.data], section.items, "the row that was just written"))
        with self._lock:
            tail = self._tails.get(key)
            if tail is not None and tail.stop == section.start and len(items) == section.items:
                self._grow(tail, items, len(section.data))

    def _extend(self, key: tuple[bytes, int], start: int, stop: int, items: list[Item]) -> None:
        """Items of a stream, of start..stop-1 those that are to be remembered, which are the last ones."""
        tail = self._tails.get(key)
        if tail is not None and tail.start <= start <= stop <= tail.stop:
            return  # another thread was faster
        if tail is None or tail.stop != start or len(items) != stop - start:
            self.bytes -= 0 if tail is None else tail.bytes
            tail = self._tails[key] = _Tail(stop - len(items))
        self._tails.move_to_end(key)
        self._grow(tail, items, len(_encode(items)))

    def _grow(self, tail: _Tail, items: list[Item], size: int) -> None:
        self.bytes -= tail.bytes
        tail.add(items, size)
        self.bytes += tail.bytes
        while self.bytes > MAX_ALL_BYTES or len(self._tails) > MAX_TAILS:
            self.bytes -= self._tails.popitem(last=False)[1].bytes


def _kept(items: list[Any]) -> list[Item]:
    """The items as they are remembered, those after the last one that only a registered type can put together again:
    types change while a program runs, bytes that were stored do not."""
    kept: list[Item] = []
    for item in items:
        if _is_flat(item):
            kept.append(item.copy())
        elif is_plain(item):
            kept.append(_encode(item))
        else:
            kept.clear()
    return kept


def _is_flat(item: Any) -> bool:
    """Whether a copy of the dict alone is as good as a copy of everything in it."""
    return (
        type(item) is dict and _NEVER_CHANGE.issuperset(map(type, item.values())) and _TEXT.issuperset(map(type, item))
    )


def _parts(listing: ListNode, start: int, stop: int) -> Iterator[tuple[Piece, int, int]]:
    """The pieces that items start..stop-1 of a list lie in, each with the range of its stream's items."""
    base = 0
    for piece in listing.pieces:
        count = piece.stop - piece.start
        low, high = max(start - base, 0), min(stop - base, count)
        if low < high:
            yield piece, piece.start + low, piece.start + high
        base += count
