"""Outlines: one level of a state at a time, to inspect a large one without loading it.

The children of a dict are described from the root alone; of a list, a range of items is read; only a value that `path`
names is read completely.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backtrail.encode.record_types import Unregistered
from backtrail.encode.row_format import Blob, Inline, ListNode, Node, Slot, Tree
from backtrail.errors import Corrupt, InvalidInput, NotFound
from backtrail.history.reads import read_root
from backtrail.history.salvage import hole
from backtrail.history.state_reader import StateReader
from backtrail.history.thread_handle import S, ThreadHandle
from backtrail.history.validation import check_limit
from backtrail.model import Hole, Outline, Part, text_of

_SMALL = 256  # encoded bytes up to which a value in the root is shown


async def outline(
    thread: ThreadHandle[S],
    path: Sequence[str | int] = (),
    at: Any = None,
    start: int = 0,
    stop: int | None = None,
    salvage: bool = False,
) -> Outline:
    """The part of the state at `path`, one level deep; of a list, the items from `start` up to `stop`.

        thread.outline()                                  # the top-level keys, with kinds, counts and sizes
        thread.outline(["messages"], start=100, stop=150)

    `salvage`: if it is damaged, everything of it but the holes, with a `Hole` in the place of each of them.
    """
    try:
        return await _outline(thread, path, at, start, stop, salvage=False)
    except Corrupt as damage:
        if not salvage:
            raise
        try:
            return await _outline(thread, path, at, start, stop, salvage=True)
        except Corrupt:
            return Outline("value", 0, None, 0, (), value=hole(damage))


async def _outline(
    thread: ThreadHandle[S], path: Sequence[str | int], at: Any, start: int, stop: int | None, salvage: bool
) -> Outline:
    first = check_limit(start, "start") or 0
    last = check_limit(stop, "stop")
    if isinstance(path, str) or not isinstance(path, Sequence):
        raise InvalidInput(f"path must be a sequence of keys, not {path!r}")
    _, _, root, reader = await read_root(thread, at, deep=False, salvage=salvage)
    node: Node | Hole | None = root.tree
    walked: list[str | int] = []
    for key in path:
        walked.append(key)
        if isinstance(node, Hole):
            break
        if isinstance(node, Tree):
            node = (await reader.children(node)).get(key) if isinstance(key, str) else None
            if node is None:
                raise NotFound(f"thread {thread.id!r} has nothing at {_path(walked)}")
            continue
        assert node is not None
        rest = list(path)[len(walked) :]
        if isinstance(node, ListNode) and type(key) is int and 0 <= key < node.count:
            value = (await reader.items(node, key, key + 1))[0]
        else:
            value = _step(await reader.value(node), key, walked, thread.id)
        for key in rest:
            walked.append(key)
            value = _step(value, key, walked, thread.id)
        return _describe(value, first, last, 0 if salvage else len(thread.values.encode(value)))
    assert node is not None
    return await _node(reader, node, first, last)


async def _node(reader: StateReader, node: Node | Hole, start: int, stop: int | None) -> Outline:
    if isinstance(node, Hole):
        return Outline("value", 0, None, 0, (), value=node)
    if isinstance(node, Tree):
        count, children = await reader.some_children(node, start, stop)
        parts = tuple([await _part(reader, name, child) for name, child in children.items()])
        return Outline("dict", node.size, count, start, parts, type=node.type)
    if isinstance(node, ListNode):
        end = node.count if stop is None else min(stop, node.count)
        items = await reader.items(node, start, end) if start < end else []
        return Outline("list", node.size, node.count, start, _items(items, start))
    if isinstance(node, Blob):
        return Outline("text" if node.text else "bytes", node.size, None, 0, (), value=await reader.value(node))
    return _describe(await reader.value(node), start, stop, node.size)


async def _part(reader: StateReader, name: str, node: Node | Hole) -> Part:
    if isinstance(node, Hole):
        return Part(name, "value", 0, None, node, True)
    if isinstance(node, Tree):
        count = None if node.children is None else len(node.children)  # a heavy dict is not read just to count its keys
        return Part(name, "dict", node.size, count, type=node.type)
    if isinstance(node, ListNode):
        return Part(name, "list", node.size, node.count)
    if isinstance(node, Blob):
        return Part(name, "text" if node.text else "bytes", node.size)
    if isinstance(node, Slot) or node.size > _SMALL:
        return Part(name, "value", node.size)
    assert isinstance(node, Inline)
    value = await reader.value(node)
    return Part(name, kind_of(value), node.size, len(value) if isinstance(value, dict | list) else None, value, True)


def _describe(value: Any, start: int, stop: int | None, size: int) -> Outline:
    name = value.type if isinstance(value, Unregistered) else None
    inner = value.value if isinstance(value, Unregistered) else value
    if isinstance(inner, dict):
        pairs = list(inner.items())[start:stop]
        parts = tuple(Part(text_of(k), kind_of(v), 0, _count(v), v, True) for k, v in pairs)
        return Outline("dict", size, len(inner), start, parts, type=name)
    if isinstance(inner, list | tuple):
        return Outline("list", size, len(inner), start, _items(list(inner[start:stop]), start), type=name)
    return Outline(kind_of(inner), size, None, 0, (), value=inner, type=name)


def _items(items: list[Any], start: int) -> tuple[Part, ...]:
    return tuple(Part(start + i, kind_of(item), 0, _count(item), item, True) for i, item in enumerate(items))


def kind_of(value: Any) -> Any:
    """The name of a value's kind."""
    if isinstance(value, dict):
        return "dict"
    if isinstance(value, list | tuple):
        return "list"
    if isinstance(value, str):
        return "text"
    return "bytes" if isinstance(value, bytes | bytearray) else "value"


def _count(value: Any) -> int | None:
    return len(value) if isinstance(value, dict | list | tuple) else None


def _step(value: Any, key: str | int, walked: list[str | int], thread: str) -> Any:
    if isinstance(value, Unregistered):
        value = value.value
    try:
        if isinstance(value, dict):
            named = {text_of(name): item for name, item in value.items()}
            return value[key] if key in value else named[text_of(key)]
        if isinstance(value, list | tuple) and type(key) is int and key >= 0:
            return value[key]
    except (KeyError, IndexError):
        raise NotFound(f"thread {thread!r} has nothing at {_path(walked)}") from None
    raise NotFound(f"thread {thread!r} has nothing at {_path(walked)}")


def _path(keys: list[str | int]) -> str:
    return "state" + "".join(f"[{key!r}]" for key in keys)
