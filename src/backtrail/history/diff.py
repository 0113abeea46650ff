"""The changes between two states: a walk of both trees that descends only where their nodes differ.

Two nodes that point at the same row hold the same value, so nothing is read for them. Two lists that begin with the
same pieces are compared only from the first different piece on. Rows have the same names only in one lineage; so for
states of two lineages, each with its own reader, all of both is read and compared.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Any, TypeAlias

from blake3 import blake3

from backtrail.encode.row_format import MAX_TREE_DEPTH, ListNode, Tree
from backtrail.encode.values import Values
from backtrail.errors import Corrupt
from backtrail.history.state_reader import StateReader
from backtrail.model import Change
from backtrail.sequence_diff import spans

#: The path of a change of the state's own type. No key has this path: `step_into` would put it in quotes.
TYPE = "(type)"
_CONTAINERS = frozenset({dict, list})
_ENCODED_LEVELS = 6  # of nested dicts and lists
_NO_VALUE = b"\xc1"  # no encoded value begins with it
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


Readers: TypeAlias = tuple[StateReader, StateReader]
"""The reader of the old state and that of the new one; the same, if both are in one lineage."""


async def compare(readers: Readers, values: Values, a: Tree, b: Tree) -> list[Change]:
    """All changes from tree `a` to tree `b`, including a change of type if these are whole states."""
    return await _Comparison(readers, values).trees(a, b, "", 0)


class _Comparison:
    """One comparison. The text of each path is charged to the budget of the new state: paths repeat the names on the
    way to a change, so that few names can make much text."""

    def __init__(self, readers: Readers, values: Values) -> None:
        self._before, self._after = readers
        self._values = values
        self._digests: dict[int, tuple[Any, bytes]] = {}

    async def trees(self, a: Tree, b: Tree, path: str, depth: int) -> list[Change]:
        changes: list[Change] = []
        if depth > MAX_TREE_DEPTH:
            raise Corrupt("a state", f"its tree is more than {MAX_TREE_DEPTH} levels deep")
        if a.type != b.type:
            changes.append(Change(TYPE, "changed", a.type or "dict", b.type or "dict"))
        same = set(a.pages).intersection(b.pages)  # a page that both have is the same in both
        one, other = await self._before.children(a, same), await self._after.children(b, same)
        differing = [key for key in dict.fromkeys([*one, *other]) if one.get(key) != other.get(key)]
        self._before.expect(one[key] for key in differing if key in one)
        self._after.expect(other[key] for key in differing if key in other)
        for key in differing:
            old, new = one.get(key), other.get(key)
            at = self._step(path, key)
            if old is None and new is not None:
                changes.append(Change(at, "added", new=await self._after.value(new)))
            elif new is None and old is not None:
                changes.append(Change(at, "removed", old=await self._before.value(old)))
            elif isinstance(old, Tree) and isinstance(new, Tree) and old.type == new.type:
                changes += await self.trees(old, new, at, depth + 1)
            elif isinstance(old, ListNode) and isinstance(new, ListNode):
                changes += await self._lists(old, new, at)
            elif old is not None and new is not None:
                self._digests.clear()
                changes += self._two_values(await self._before.value(old), await self._after.value(new), at)
        return changes

    def _step(self, path: str, key: str) -> str:
        self._after.charge(len(path) + len(key))
        return step_into(path, key)

    async def _lists(self, old: ListNode, new: ListNode, path: str) -> list[Change]:
        self._digests.clear()
        front = _common_items(old, new)
        a = await self._before.items(old, front, old.count)
        b = await self._after.items(new, front, new.count)
        return self._items(a, b, front, path, 0)

    def _items(self, a: list[Any], b: list[Any], base: int, path: str, depth: int) -> list[Change]:
        """Changes of a list: runs of equal items are matched, and the items between them are compared one by one."""
        changes: list[Change] = []
        for kind, a0, a1, b0, b1 in spans([self._name(x, depth) for x in a], [self._name(x, depth) for x in b]):
            if kind == "equal":
                continue
            self._after.charge((len(path) + 8) * max(a1 - a0, b1 - b0))
            pairs = min(a1 - a0, b1 - b0)
            for i in range(pairs):
                changes += self._two_values(a[a0 + i], b[b0 + i], f"{path}[{base + b0 + i}]", depth + 1)
            for i in range(a0 + pairs, a1):
                changes.append(Change(f"{path}[{base + i}]", "removed", old=a[i]))
            for i in range(b0 + pairs, b1):
                changes.append(Change(f"{path}[{base + i}]", "added", new=b[i]))
        return changes

    def _two_values(self, old: Any, new: Any, path: str, depth: int = 0) -> list[Change]:
        if self._name(old, depth) == self._name(new, depth):
            return []
        if type(old) is dict and type(new) is dict and all(type(key) is str for key in [*old, *new]):
            changes: list[Change] = []
            for key in [*old, *(key for key in new if key not in old)]:
                at = self._step(path, key)
                if key not in new:
                    changes.append(Change(at, "removed", old=old[key]))
                elif key not in old:
                    changes.append(Change(at, "added", new=new[key]))
                else:
                    changes += self._two_values(old[key], new[key], at, depth + 1)
            return changes
        if type(old) is list and type(new) is list:
            return self._items(old, new, 0, path, depth + 1)
        return [Change(path, "changed", old=old, new=new)]

    def _name(self, value: Any, depth: int) -> bytes:
        """The same bytes for the same value, at one depth of the comparison. To encode it is quick; but what lies deep
        would be encoded again for each level around it."""
        return self._values.encode(value) if depth < _ENCODED_LEVELS else self._digest(value)

    def _digest(self, value: Any) -> bytes:
        """The bytes of a dict or list that holds others are made from theirs, and are kept."""
        if type(value) not in _CONTAINERS:
            return self._values.encode(value)
        known = self._digests.get(id(value))
        if known is not None:
            return known[1]
        items = list(chain.from_iterable(value.items())) if type(value) is dict else value
        if _CONTAINERS.isdisjoint(map(type, items)):
            return self._values.encode(value)
        parts = [self._digest(item) for item in items]
        hashed = blake3(type(value).__name__.encode())
        for part in parts:
            hashed.update(len(part).to_bytes(8, "big") + part)
        digest = _NO_VALUE + hashed.digest()
        self._digests[id(value)] = value, digest  # with the value, so that its id is not given to another one
        return digest


def step_into(path: str, key: str) -> str:
    """`path.key`, or `path["odd key"]`."""
    if _NAME.match(key):
        return f"{path}.{key}" if path else key
    quoted = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'{path}["{quoted}"]'


def _common_items(a: ListNode, b: ListNode) -> int:
    """The number of leading items that are the same, because they are in the same pieces."""
    count = 0
    for one, other in zip(a.pieces, b.pieces, strict=False):
        if (one.branch, one.stream, one.start) != (other.branch, other.stream, other.start):
            break
        count += min(one.stop, other.stop) - one.start
        if one.stop != other.stop:
            break
    return count
