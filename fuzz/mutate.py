"""Changes to bytes and to trees of plain values, chosen by a random number generator."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

INTEGERS = (0, 1, -1, 127, 128, 255, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, -(2**63))
TEXTS = ("", "\0", "a" * 5000, "../../x", "/etc/passwd", "\u202e", "\x1b[2J", "U+10FFFF \U0010ffff", "$type", "nul\0l")
BYTES = (b"", b"\0", b"\xff" * 16, bytes(16), b"\xc7\x03\x05abc", b"\x93" * 300, b"x" * 5000)
SCALARS: tuple[Any, ...] = (None, True, False, 1.5, float("inf"), *INTEGERS, *TEXTS, *BYTES)
JSON_SCALARS: tuple[Any, ...] = (None, True, False, 1.5, 2**70, *INTEGERS, *TEXTS)


def damage(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, removed, repeated or added."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        rng.choice(_DAMAGES)(changed, rng)
    return bytes(changed)


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _overwrite(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    fresh = rng.choice((rng.randbytes(rng.choice((1, 2, 4, 8))), bytes(8), b"\xff" * 8))
    data[at : at + len(fresh)] = fresh


def _cut(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.choice((1, 4, 64, len(data)))]


def _insert(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.randbytes(rng.choice((1, 4, 32)))


def _repeat(data: bytearray, rng: random.Random) -> None:
    if data:
        size = rng.choice((1, 8, 64, 512))
        start, at = rng.randrange(len(data)), rng.randrange(len(data))
        data[at:at] = data[start : start + size]


_DAMAGES: tuple[Callable[[bytearray, random.Random], None], ...] = (_flip, _flip, _overwrite, _cut, _insert, _repeat)


def change(value: Any, rng: random.Random, scalars: tuple[Any, ...] = SCALARS) -> Any:
    """A copy of a tree of lists and dicts with a few parts replaced, removed, repeated, swapped or nested."""
    tree = [copy.deepcopy(value)]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if tree:
            holder, key = rng.choice(list(_parts(tree)))
            _change_part(holder, key, rng, scalars)
    return tree[0] if tree else rng.choice(scalars)


def _parts(tree: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every part of a tree."""
    waiting = [tree]
    while waiting:
        holder = waiting.pop()
        for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
            yield holder, key
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])


def _change_part(holder: Any, key: Any, rng: random.Random, scalars: tuple[Any, ...]) -> None:
    old = holder[key]
    match rng.randrange(8):
        case 0:
            del holder[key]
        case 1:
            holder[key] = [copy.deepcopy(old) for _ in range(rng.choice((0, 1, 2, 50)))]
        case 2:
            holder[key] = {"a": old}
        case 3:
            for _ in range(rng.choice((5, 60, 150))):
                old = [old]
            holder[key] = old
        case 4 if isinstance(old, bytes):
            holder[key] = damage(old, rng)
        case 5 if isinstance(old, int) and not isinstance(old, bool):
            holder[key] = old + rng.choice((1, -1, 2, 1000, -old, 2**31))
        case 6:
            other, name = rng.choice(list(_parts([holder])))
            holder[key] = copy.deepcopy(other[name])
        case _:
            holder[key] = copy.deepcopy(rng.choice(scalars))
