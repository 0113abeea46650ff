"""One pending write as it is stored: its task, its index, and its content (path, channel, value). Pure functions.

The value is a reference if the checkpoint holds the same one: the first task of a turn writes what the input was. The
content is packed, unless the saver has a serializer of its own, whose bytes are kept as it made them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from backtrail.adapters.langgraph.checkpoint_cache import CachedCheckpoint
from backtrail.adapters.langgraph.compression import pack, unpack
from backtrail.adapters.langgraph.ids import short_id
from backtrail.adapters.langgraph.message_codec import RESERVED_KEY


class Write(msgspec.Struct, frozen=True):
    """A pending write, with its value as plain data."""

    task: str
    path: str
    index: int
    channel: str
    value: Any

    @classmethod
    def from_item(cls, item: list[Any]) -> Write:
        """The write that is stored as `item`; its value may be a reference."""
        task, index, content = item
        path, channel, value = unpack(content)
        return cls(str(task), path, index, channel, value)

    def item(self, *, packed: bool) -> list[Any]:
        """What is stored of it."""
        content = [self.path, self.channel, self.value]
        return [short_id(self.task), self.index, pack(content) if packed else content]

    @property
    def order(self) -> tuple[str, str, int]:
        """LangGraph's order of writes: by the path of their task, its id, and their index."""
        return self.path, self.task, self.index

    @property
    def is_reference(self) -> bool:
        return _reference(self.value) is not None

    def with_reference(self, checkpoint: CachedCheckpoint) -> Write:
        """The same write, with a reference if a channel of the checkpoint holds its value under its channel's name.

        Messages get their ids between a graph's input and its channels, so the ids are kept with the reference.
        """
        value = self.value
        if type(value) is not list or not all(type(item) is dict for item in value):
            return self
        ids = [item.get("id") for item in value]
        wanted = [{**item, "id": id} for item, id in zip(value, ids, strict=True)]
        for channel, plain in checkpoint.plain.items():
            part = plain.get(self.channel) if type(plain) is dict else None
            if type(part) is not list or len(part) != len(value) or not all(type(item) is dict for item in part):
                continue
            if _exactly_equal([{**item, "id": id} for item, id in zip(part, ids, strict=True)], wanted):
                return msgspec.structs.replace(self, value={RESERVED_KEY: {"same": channel, "ids": ids}})
        return self

    def resolved(self, checkpoint: CachedCheckpoint) -> Write:
        """The same write, with its value if that is a reference to a part of the checkpoint."""
        reference = _reference(self.value)
        if reference is None:
            return self
        pairs = zip(checkpoint.plain[reference["same"]][self.channel], reference["ids"], strict=True)
        return msgspec.structs.replace(self, value=[item if id is None else {**item, "id": id} for item, id in pairs])


def merge(stored: list[Any], new: list[list[Any]]) -> list[Any]:
    """All items, new ones last. One with a negative index replaces; of the others the first one counts."""
    merged = {(item[0], item[1]): item for item in stored}
    for item in new:
        if item[1] < 0:
            merged[item[0], item[1]] = item
        else:
            merged.setdefault((item[0], item[1]), item)
    return list(merged.values())


def _reference(value: Any) -> dict[str, Any] | None:
    reserved = value.get(RESERVED_KEY) if type(value) is dict else None
    return reserved if type(reserved) is dict and "same" in reserved else None


def _exactly_equal(one: Any, other: Any) -> bool:
    """True if two plain values are equal, types included; the order of keys does not count."""
    kind = type(one)
    if kind is not type(other):
        return False
    if kind is dict:
        return one.keys() == other.keys() and all(_exactly_equal(item, other[key]) for key, item in one.items())
    if kind is list or kind is tuple:
        return len(one) == len(other) and all(map(_exactly_equal, one, other))
    return bool(one == other)
