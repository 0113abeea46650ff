"""Budgets: how much one load may take, so that no stored bytes, however they were made, exhaust a machine.

The sizes in a store are claims: 200 KB may unpack to gigabytes, one value may be pointed at thousands of times, a byte
may stand for a dict of 64. So whatever reads stored bytes asks a `Meter` first, and the first limit that is passed ends
the load with `OverBudget`, before the memory is taken.

Dicts, lists and extensions are not counted while they are few: each takes at least a byte, so a load of fewer bytes
than the limit cannot pass it. Beyond that, the bytes that may begin one are counted, which is quick; and if these are
too many (they occur in text of many languages, too), the values themselves are counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from backtrail.errors import InvalidInput, OverBudget
from backtrail.model import Budget

COLLISIONS = 1 << 16  # comparisons of members with equal hashes that one set or dict may take to build
_FEW = 64  # members that cannot collide often enough to matter
_CONTAINERS = bytes((*range(0x80, 0xA0), *range(0xC7, 0xCA), *range(0xD4, 0xD9), *range(0xDC, 0xE0)))
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_AMOUNT = r"([0-9]{1,15})([A-Za-z]{0,3})"
_EVERY = 1 << 20  # bytes between two looks at the clock


def check_budget(value: Any) -> Budget:
    """The budget of an argument: a Budget, a text such as `bytes=4GiB,seconds=60`, or None."""
    if value is None:
        return Budget()
    if isinstance(value, Budget):
        return value
    if not isinstance(value, str):
        raise InvalidInput(f"budget must be a backtrail.Budget, not {type(value).__qualname__}")
    fields: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in value.split(","))):
        name, _, amount = part.partition("=")
        found = re.fullmatch(_AMOUNT, amount)
        if name not in Budget.__struct_fields__ or found is None or found[2] not in _UNITS:
            raise InvalidInput(
                f"budget: {part[:60]!r} is not understood; write for example bytes=4GiB,values=50000000,seconds=60"
            )
        fields[name] = int(found[1]) * _UNITS[found[2]]
    return Budget(**fields)


def collisions(members: Sequence[Any]) -> int:
    """How many comparisons of members with equal hashes it takes to put all of these in a set. Each member is then
    compared with all others of its hash: 60,000 chosen integers keep a processor busy for minutes."""
    if len(members) < _FEW:
        return 0
    hashes = list(map(hash, members))
    if len(set(hashes)) == len(members):
        return 0
    return sum(count * (count - 1) // 2 for count in Counter(hashes).values())


Where = str | Callable[[], str]  # a text, or what makes it if it is needed


class Meter:
    """What one load has taken so far. `where` names the checkpoint in the error."""

    __slots__ = (
        "_budget",
        "_clock",
        "_deadline",
        "_free",
        "_look",
        "_unpacked",
        "decoded",
        "pieces",
        "values",
        "where",
    )

    def __init__(self, budget: Budget, clock: Callable[[], float]) -> None:
        self._budget = budget
        self._clock = clock
        self._free = budget.values // 4
        self._unpacked = self.decoded = self.pieces = self.values = 0
        self._look, self._deadline = self._free, clock() + budget.seconds
        self.where: Where = "a state"

    def restart(self, where: Where) -> None:
        """Begin another load."""
        self.where = where
        self._deadline = self._clock() + self._budget.seconds
        self._look = min(_EVERY, self._free)
        self._unpacked = self.decoded = self.pieces = self.values = 0

    def expect(self, size: int) -> None:
        """So many bytes are about to be read."""
        if self.decoded + size > self._budget.bytes:
            self._refuse("bytes", self.decoded + size)

    def expect_unpacked(self, size: int) -> None:
        """Frames that unpack to so many bytes were read."""
        if self._unpacked + size > self._budget.bytes:
            self._refuse("bytes", self._unpacked + size)

    def unpack(self, size: int) -> None:
        """A frame is about to be unpacked to so many bytes."""
        self.expect_unpacked(size)
        self._unpacked += size
        self.look_at_the_clock()

    def decode(self, data: bytes) -> None:
        """These bytes are about to be decoded."""
        self.decoded += len(data)
        if self.decoded > self._look:
            self._look_closer(data)

    def _look_closer(self, data: bytes) -> None:
        self.expect(0)
        self.look_at_the_clock()
        if self.decoded <= self._free:
            self._look = min(self.decoded + _EVERY, self._free)
            return
        self._look = self.decoded  # from here on, everything is counted
        found = len(data) - len(data.translate(None, _CONTAINERS))
        if found > len(data) * self._budget.values // self._budget.bytes:  # more than this part's share
            found = count_containers(data, self._budget.values - self.values)
        self.values += found
        if self.values > self._budget.values:
            self._refuse("values", self.values)

    def take_bytes(self, size: int) -> None:
        """So many bytes are about to be made."""
        self.expect(size)
        self.decoded += size

    def take_pieces(self, count: int) -> None:
        """A list of so many pieces is about to be read."""
        self.pieces += count
        if self.pieces > self._budget.pieces:
            self._refuse("pieces", self.pieces)

    def look_at_the_clock(self) -> None:
        """End the load if it has taken too long."""
        if self._clock() > self._deadline:
            self._refuse("seconds", self._budget.seconds)

    def _refuse(self, limit: str, needed: float) -> None:
        where = self.where if isinstance(self.where, str) else self.where()
        raise OverBudget(where, limit, getattr(self._budget, limit), needed)


# -- walking over msgpack ---------------------------------------------------------------------------------------------

_SKIP = {0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}  # numbers
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}  # bytes and strings: the width of their length
_EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD4: 0, 0xD5: 0, 0xD6: 0, 0xD7: 0, 0xD8: 0}
_FIXED = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}  # extensions of these sizes
_ARRAYS, _MAPS = {0xDC: 2, 0xDD: 4}, {0xDE: 2, 0xDF: 4}
_NESTED = frozenset({1, 2, 3, 11, 12})  # codes of extensions that hold msgpack


_NUMBERS = (
    rb"(?s)(?:\xcb.{8}|[\x00-\x7f\xc0-\xc3\xe0-\xff]|[\xcc\xd0].|[\xcd\xd1]..|[\xca\xce\xd2].{4}|[\xcf\xd3].{8}){1,256}"
)


def count_containers(data: bytes, enough: int) -> int:
    """How many dicts, lists and extensions these encoded values hold; stops counting beyond `enough`."""
    at, end, count = 0, len(data), 0
    numbers_at = re.compile(_NUMBERS).match
    while at < end and count <= enough:
        head = data[at]
        numbers = numbers_at(data, at) if head < 0x80 or head >= 0xC0 else None
        if numbers is not None:
            at = numbers.end()
            continue
        at += 1
        if 0x80 <= head < 0xA0:
            count += 1
        elif 0xA0 <= head < 0xC0:
            at += head - 0xA0
        elif head in _SIZED:
            at += _SIZED[head] + _number(data, at, _SIZED[head])
        elif head in _SKIP:
            at += _SKIP[head]
        elif head in _EXTENSIONS:
            at, nested, size = _extension(data, at, head)
            at += 0 if nested else size
            count += 1
        elif 0xDC <= head < 0xE0:
            at += _ARRAYS.get(head) or _MAPS[head]
            count += 1
    return count


def check_keys(data: bytes) -> None:
    """ValueError if a msgpack map in these encoded values has a key that is not a string: backtrail writes none, and a
    decoder would put them in a dict without looking at their hashes."""
    at, end = 0, len(data)
    open_maps: list[int] = []  # for each map or array around: what is still to come; of a map twice as much, below zero
    while at < end:
        head = data[at]
        at += 1
        text = 0xA0 <= head < 0xC0 or 0xD9 <= head <= 0xDB
        if open_maps:
            if open_maps[-1] < 0:
                if open_maps[-1] % 2 == 0 and not text:
                    raise ValueError("a dict has a key that is not a string")
                open_maps[-1] += 1
            else:
                open_maps[-1] -= 1
        if 0xA0 <= head < 0xC0:
            at += head - 0xA0
        elif 0x80 <= head < 0x90:
            open_maps.append(-2 * (head - 0x80))
        elif 0x90 <= head < 0xA0:
            open_maps.append(head - 0x90)
        elif head in _SIZED:
            at += _SIZED[head] + _number(data, at, _SIZED[head])
        elif head in _SKIP:
            at += _SKIP[head]
        elif head in _ARRAYS:
            open_maps.append(_number(data, at, _ARRAYS[head]))
            at += _ARRAYS[head]
        elif head in _MAPS:
            open_maps.append(-2 * _number(data, at, _MAPS[head]))
            at += _MAPS[head]
        elif head in _EXTENSIONS:
            at, nested, size = _extension(data, at, head)
            if nested:
                check_keys(data[at : at + size])
            at += size
        while open_maps and not open_maps[-1]:
            open_maps.pop()


def _number(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at : at + width], "big")


def _extension(data: bytes, at: int, head: int) -> tuple[int, bool, int]:
    """Where the data of an extension begin, if they are msgpack, and how long they are."""
    width = _EXTENSIONS[head]
    size = _number(data, at, width) if width else _FIXED[head]
    return at + width + 1, at + width < len(data) and data[at + width] in _NESTED, size
