"""Change detection: an exact and cheap check if the beginning of a list has changed.

A `KnownList` is a saved list in memory: a snapshot of its items, to find out which are new, and an index of the rows
that hold them, to point at the others.

Python's own `==` compares a list of 3,200 messages with a copy of it in a tenth of a millisecond, because the copy
shares every string with the original; but to it 1, 1.0 and True are equal. So if a list has numbers, its encoding is
compared as well, which distinguishes them. That leaves look-alikes: values of a subclass that are equal to a plain
value and encode like it, such as a member of a str Enum. If such a type is registered, and so could be saved, a
*census* of all types in the list decides. A list that holds anything more exotic is kept and compared as the encodings
of its items. As with `==`, a dict whose keys only changed their order is the same dict.

A snapshot shares only immutable values with the caller, so a later change in place is noticed, and does not change the
snapshot.
"""

from __future__ import annotations

import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec

from backtrail.encode.row_format import Piece, Tail

_PLAIN = frozenset({str, type(None), bytes, dict, list, tuple})  # `==` distinguishes these from all other plain types
_NUMBERS = frozenset({int, float, bool})
_COPYABLE = _PLAIN | _NUMBERS
_CONTAINERS = frozenset({dict, list, tuple})
_ODD = frozenset({object})  # stands for a key that is not exactly a str
_DEEP = 128
_ENCODER = msgspec.msgpack.Encoder()
Encode = Callable[[Any], bytes]


def census(items: Sequence[Any]) -> frozenset[type]:
    """The types of all values in `items`, at any depth of exact dicts, lists and tuples; keys not counted."""
    seen = set(map(type, items))
    level: Sequence[Any] = items
    for _ in range(_DEEP):
        # Usually this is a flat list of messages: values that are visited only once need not be collected first.
        kinds = {type(value) for item in level for value in item.values()} if seen == {dict} else set()
        if not kinds or kinds & _CONTAINERS:
            level = list(chain.from_iterable(_inside(level)))
            kinds = set(map(type, level))
        seen |= kinds
        if not kinds & _CONTAINERS:
            return frozenset(seen)
    return frozenset({object})  # deeper than anything that can be saved: the encoder refuses it


def _inside(level: Sequence[Any]) -> Iterator[Iterable[Any]]:
    """The contents of all containers of a level."""
    for item in level:
        kind = type(item)
        if kind is dict:
            yield item.values()
        elif kind is list or kind is tuple:
            yield item


def has_odd_keys(value: Any) -> bool:
    """True if any dict in a value has a key that is not exactly a str (`==` would confuse 1 and True as keys)."""
    inside: Iterable[Any] = ()
    if type(value) is dict:
        for key in value:
            if type(key) is not str:
                return True
        inside = value.values()
    elif type(value) is list or type(value) is tuple:
        inside = value
    for item in inside:  # noqa: SIM110  # called for each message of each save: a generator would cost twice as much
        if type(item) in _CONTAINERS and has_odd_keys(item):
            return True
    return False


def private(value: Any, kinds: set[type]) -> Any:
    """A copy of a value's containers that shares its leaves. The types in it are added to `kinds`: if these are all
    copyable, the leaves are immutable."""
    kind = type(value)
    kinds.add(kind)
    if kind is dict:
        copy = {}
        for key, item in value.items():
            if type(key) is not str:
                kinds |= _ODD
            copy[key] = item if type(item) is str else private(item, kinds)
        return copy
    if kind is list or kind is tuple:
        return kind([item if type(item) is str else private(item, kinds) for item in value])
    return value


def _copied(items: Sequence[Any]) -> tuple[list[Any], set[type]]:
    """Private copies of items, and the types in them: a walk over each, as there are few."""
    kinds: set[type] = {str}  # equal to no other plain value, so it does no harm where there is none
    return [private(item, kinds) for item in items], kinds


def _kinds_in(items: Sequence[Any]) -> frozenset[type]:
    """The same types, of many items."""
    return census(items) | _ODD if any(map(has_odd_keys, items)) else census(items)


def same(one: Any, other: Any) -> bool:
    """Exact equality of two values made of copyable types."""
    if one is other and type(one) not in (dict, list, tuple):
        return True
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is dict:
        if len(one) != len(other):
            return False
        return all(
            key is twin or (type(key) is type(twin) and key == twin) for key, twin in zip(one, other, strict=True)
        ) and all(map(same, one.values(), other.values()))
    if kind is list or kind is tuple:
        return len(one) == len(other) and all(map(same, one, other))
    if kind is float:
        return bool(one.hex() == other.hex())  # distinguishes -0.0 from 0.0; NaN equals itself
    return bool(one == other)


class ListSnapshot:
    """The items of a list at its last save, to find the new ones at the next. Grows by `extend`."""

    __slots__ = ("_encode", "_lookalikes", "encoded", "identity", "items", "kinds", "packed")

    def __init__(
        self, items: Sequence[Any], encode: Encode, identity: bool, lookalikes: bool, owned: bool = False
    ) -> None:
        """`owned`: nobody else has the items, so they need not be copied."""
        self._encode = encode
        self._lookalikes = lookalikes
        self.identity = identity
        self.items: list[Any] = []
        self.kinds: frozenset[type] = frozenset()
        self.encoded: list[bytes] | None = None  # one per item, instead of `items`, if a type is exotic
        self.packed: bytearray | None = None  # all items, if numbers occur
        self.extend(items, owned)

    def __len__(self) -> int:
        return len(self.items) if self.encoded is None else len(self.encoded)

    def extend(self, items: Sequence[Any], owned: bool = False) -> None:
        """Add items at the end, which can be encoded; `owned` as above."""
        if self.identity:
            self.items.extend(items)
            return
        copies, kinds = (items, _kinds_in(items)) if owned else _copied(items)
        self.kinds |= kinds
        if self.encoded is None and not self.kinds <= _COPYABLE:
            self._switch_to_encodings()
        if self.encoded is not None:
            self.encoded.extend(map(self._encode, items))
            return
        self.items.extend(copies)
        if self.kinds & _NUMBERS:
            try:
                if self.packed is None:
                    self.packed = bytearray(_packed(self.items))
                else:
                    self.packed += _packed(items)
            except (OverflowError, UnicodeEncodeError):  # only the store's own codec can encode it
                self._switch_to_encodings()

    def _switch_to_encodings(self) -> None:
        self.encoded = [self._encode(item) for item in self.items]
        self.items, self.packed = [], None

    def is_prefix_of(self, value: list[Any]) -> bool:
        """True if `value` begins with exactly these items."""
        count = len(self)
        if len(value) < count:
            return False
        front = value[:count]
        if self.identity:
            return all(map(operator.is_, self.items, front))
        if self.encoded is not None:
            return all(known == self._encode(item) for known, item in zip(self.encoded, front, strict=True))
        if self.items != front:
            return False
        if (self._lookalikes or bytes in self.kinds) and census(front) - self.kinds:  # bytes: a bytearray is equal
            return False
        try:
            return self.packed is None or _packed(front) == self.packed
        except (OverflowError, UnicodeEncodeError):
            return False

    def items_with(self, decode: Callable[[bytes], Any]) -> list[Any]:
        """The items themselves; `decode` decodes those that are kept encoded."""
        return list(self.items) if self.encoded is None else list(map(decode, self.encoded))

    def key(self, index: int) -> Any:
        """A hashable key of item `index`, equal only for the same items: for matching the items of an edited list."""
        if self.encoded is not None:
            return self.encoded[index]
        return id(self.items[index]) if self.identity else self._encode(self.items[index])

    def key_of(self, item: Any, encoded: bytes) -> Any:
        """The key that `item`, which encodes to `encoded`, would have."""
        return id(item) if self.identity else encoded

    def matches(self, index: int, item: Any) -> bool:
        """True if item `index` is exactly `item`."""
        if self.identity:
            return self.items[index] is item
        if self.encoded is not None:
            return self.encoded[index] == self._encode(item)
        return same(self.items[index], item)


class RowIndex:
    """For each stream, the first item and byte of each row. The planner uses it to find exactly the rows of a run."""

    __slots__ = ("_streams",)

    def __init__(self) -> None:
        self._streams: dict[tuple[bytes, int], tuple[list[int], list[int], list[int]]] = {}

    def add(self, tail: Tail, step: int) -> None:
        """Row `step` continues a stream at `tail`."""
        self.note(tail.branch, tail.stream, tail.items, tail.offset, step)

    def note(self, branch: bytes, stream: int, start: int, offset: int, step: int) -> None:
        """Record where a row begins. If it has several sections of a stream, only the first, recorded first, counts."""
        starts, offsets, steps = self._streams.setdefault((branch, stream), ([], [], []))
        at = bisect_left(steps, step) if steps and step <= steps[-1] else len(steps)
        if at == len(steps) or steps[at] != step:
            starts.insert(at, start)
            offsets.insert(at, offset)
            steps.insert(at, step)

    def narrow(self, piece: Piece, start: int, stop: int) -> Piece:
        """The part of `piece` that holds items start..stop-1 of its stream, with exactly the rows that part needs."""
        starts, offsets, steps = self._streams[piece.branch, piece.stream]
        low = bisect_right(starts, start) - 1
        high = bisect_right(starts, stop - 1) - 1
        end = piece.begin + piece.span if steps[high] == piece.last else offsets[high + 1]
        begin = offsets[low]
        return Piece(piece.branch, piece.stream, start, stop, steps[low], steps[high], begin, end - begin)


class KnownList(msgspec.Struct):
    """One long list of the state at a thread's head: its items, and the row that holds each."""

    snapshot: ListSnapshot
    row_index: RowIndex

    def extend(self, items: Sequence[Any], tail: Tail, step: int) -> None:
        """Row `step` adds these items at `tail`."""
        self.snapshot.extend(items)
        self.row_index.add(tail, step)


KnownLists = dict[tuple[str, ...], KnownList]  #: by the path of the list in the state


def _packed(items: Sequence[Any]) -> bytes:
    """The items' own bytes, one after the other: an encoded list without its header, which holds only the length."""
    data = _ENCODER.encode(list(items))
    return data[1 if len(items) < 16 else 3 if len(items) < 65536 else 5 :]
