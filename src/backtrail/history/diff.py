"""The changes between two states: a walk of both trees that descends only where their nodes differ.

Two nodes that point at the same row hold the same value, so nothing is read for them. Two lists that begin with the
same pieces are compared only from the first different piece on. Rows have the same names only in one lineage; so for
states of two lineages, each with its own reader, all of both is read and compared.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from backtrail.encode.row_format import ListNode, Tree
from backtrail.encode.values import Values
from backtrail.history.state_reader import StateReader
from backtrail.model import Change
from backtrail.sequence_diff import spans

#: The path of a change of the state's own type. No key has this path: `step_into` would put it in quotes.
TYPE = "(type)"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


Readers: TypeAlias = tuple[StateReader, StateReader]
"""The reader of the old state and that of the new one; the same, if both are in one lineage."""


async def compare(readers: Readers, values: Values, a: Tree, b: Tree, path: str = "") -> list[Change]:
    """All changes from tree `a` to tree `b`, including a change of type if these are whole states."""
    before, after = readers
    changes: list[Change] = []
    if a.type != b.type:
        changes.append(Change(TYPE, "changed", a.type or "dict", b.type or "dict"))
    same = set(a.pages).intersection(b.pages)  # a page that both have is the same in both
    one, other = await before.children(a, same), await after.children(b, same)
    for key in [*one, *(key for key in other if key not in one)]:
        old, new = one.get(key), other.get(key)
        if old == new:
            continue
        at = step_into(path, key)
        if old is None and new is not None:
            changes.append(Change(at, "added", new=await after.value(new)))
        elif new is None and old is not None:
            changes.append(Change(at, "removed", old=await before.value(old)))
        elif isinstance(old, Tree) and isinstance(new, Tree) and old.type == new.type:
            changes += await compare(readers, values, old, new, at)
        elif isinstance(old, ListNode) and isinstance(new, ListNode):
            changes += await _compare_lists(readers, values, old, new, at)
        elif old is not None and new is not None:
            changes += _compare_values(values, await before.value(old), await after.value(new), at)
    return changes


def step_into(path: str, key: str) -> str:
    """`path.key`, or `path["odd key"]`."""
    if _NAME.match(key):
        return f"{path}.{key}" if path else key
    quoted = key.replace("\\", "\\\\").replace('"', '\\"')
    return f'{path}["{quoted}"]'


async def _compare_lists(readers: Readers, values: Values, old: ListNode, new: ListNode, path: str) -> list[Change]:
    front = _common_items(old, new)
    a = await readers[0].items(old, front, old.count)
    b = await readers[1].items(new, front, new.count)
    return _compare_items(values, a, b, front, path)


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


def _compare_items(values: Values, a: list[Any], b: list[Any], base: int, path: str) -> list[Change]:
    """Changes of a list: runs of equal items are matched, and the items between them are compared one by one."""
    keys_a, keys_b = [values.encode(x) for x in a], [values.encode(x) for x in b]
    changes: list[Change] = []
    for kind, a0, a1, b0, b1 in spans(keys_a, keys_b):
        if kind == "equal":
            continue
        pairs = min(a1 - a0, b1 - b0)
        for i in range(pairs):
            changes += _compare_values(values, a[a0 + i], b[b0 + i], f"{path}[{base + b0 + i}]")
        for i in range(a0 + pairs, a1):
            changes.append(Change(f"{path}[{base + i}]", "removed", old=a[i]))
        for i in range(b0 + pairs, b1):
            changes.append(Change(f"{path}[{base + i}]", "added", new=b[i]))
    return changes


def _compare_values(values: Values, old: Any, new: Any, path: str) -> list[Change]:
    if values.encode(old) == values.encode(new):
        return []
    if type(old) is dict and type(new) is dict and all(type(key) is str for key in [*old, *new]):
        changes: list[Change] = []
        for key in [*old, *(key for key in new if key not in old)]:
            at = step_into(path, key)
            if key not in new:
                changes.append(Change(at, "removed", old=old[key]))
            elif key not in old:
                changes.append(Change(at, "added", new=new[key]))
            else:
                changes += _compare_values(values, old[key], new[key], at)
        return changes
    if type(old) is list and type(new) is list:
        return _compare_items(values, old, new, 0, path)
    return [Change(path, "changed", old=old, new=new)]
