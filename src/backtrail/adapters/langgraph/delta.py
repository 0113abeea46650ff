"""What a LangGraph checkpoint changes in the one before it, and a checkpoint from a state: pure.

LangGraph names the channels that are new; of a list of messages only those are written that were added. A pending write
that passes a part of its checkpoint on, as the first task of a turn does with the input, says where that part stands.
"""

from __future__ import annotations

from typing import Any

import msgspec
from langgraph.checkpoint.base import ChannelVersions
from langgraph.checkpoint.base import Checkpoint as GraphCheckpoint

from backtrail.adapters.langgraph.cache import MessageList, Remembered, same
from backtrail.adapters.langgraph.compression import pack, unpack
from backtrail.adapters.langgraph.ids import channel_of, key_for
from backtrail.adapters.langgraph.message_codec import MARK, MessageCodec


class CheckpointDelta(msgspec.Struct):
    """What to write, and what is known of the checkpoint once it is written."""

    set: dict[str, Any]
    longer: tuple[str, list[Any]] | None
    remove: list[str]
    made: Remembered


def plan(
    plain: MessageCodec, before: Remembered, checkpoint: GraphCheckpoint, new: ChannelVersions, *, careful: bool
) -> CheckpointDelta:
    """What `checkpoint` changes in `before`. `careful`: nothing but the serializer is trusted with messages."""
    id, values, versions = checkpoint["id"], checkpoint["channel_values"], checkpoint["channel_versions"]
    book = plain.channel({key: value for key, value in checkpoint.items() if key not in ("id", "channel_values")})
    changes: dict[str, Any] = {MARK: book}
    kept = {channel: value for channel, value in before.plain.items() if channel in values}
    talks = {channel: talk for channel, talk in before.talks.items() if channel in values}
    longer: tuple[str, list[Any]] | None = None
    for channel, value in values.items():
        settled = channel in before.channels and channel not in new
        if settled and versions.get(channel) == before.versions.get(channel):
            continue
        kept.pop(channel, None)
        talks.pop(channel, None)
        stored = before.talks.get(channel)
        talk = None
        if plain.readable and type(value) is list and not careful:
            talk = MessageList.of(value, stored, trusted=plain.trusted)
        if talk is None:
            kept[channel] = plain.channel(value, careful=careful)
            changes[key_for(channel)] = pack(kept[channel]) if channel.startswith("__") else kept[channel]
            continue
        talks[channel] = talk
        if stored is None or talk.shared < len(stored.items) or longer is not None:
            changes[key_for(channel)] = plain.channel(value)
        elif len(value) > len(stored.items):
            longer = (key_for(channel), plain.channel(value[len(stored.items) :]))
    made = Remembered(id, book, kept, talks)
    gone = [key_for(channel) for channel in before.channels - values.keys()]
    return CheckpointDelta(changes, longer, gone, made)


def remember(id: str, state: dict[str, Any]) -> Remembered:
    """The checkpoint that a state holds."""
    channels = {channel_of(key): unpack(value) for key, value in state.items() if key != MARK}
    return Remembered(id, state.get(MARK) or {}, channels)


def recognise(known: Remembered, values: dict[str, Any], *, trusted: bool) -> Remembered:
    """The same checkpoint, with its lists of messages as such."""
    talks = dict(known.talks)
    for channel, value in values.items():
        talk = MessageList.of(value, trusted=trusted) if type(value) is list else None
        if talk is not None:
            talks[channel] = talk
    plain = {channel: value for channel, value in known.plain.items() if channel not in talks}
    return Remembered(known.id, known.book, plain, talks)


def refer(value: Any, key: str, known: Remembered) -> Any:
    """What to store of a pending write: where in the checkpoint its value stands, or the value. Messages get their ids
    on the way from a graph's input to its channels: those are kept with the reference."""
    if type(value) is not list or not all(type(item) is dict for item in value):
        return pack(value)
    ids = [item.get("id") for item in value]
    named = [{**item, "id": id} for item, id in zip(value, ids, strict=True)]
    for channel, part in known.plain.items():
        there = part.get(key) if type(part) is dict else None
        if type(there) is not list or len(there) != len(value) or not all(type(item) is dict for item in there):
            continue
        if same([{**item, "id": id} for item, id in zip(there, ids, strict=True)], named):
            return {MARK: {"same": [channel, key], "ids": ids}}
    return pack(value)


def resolve(value: Any, known: Remembered) -> Any:
    """What `refer` was given."""
    mark = value.get(MARK) if type(value) is dict else None
    if type(mark) is not dict or "same" not in mark:
        return unpack(value)
    channel, key = mark["same"]
    pairs = zip(known.plain[channel][key], mark["ids"], strict=True)
    return [item if id is None else {**item, "id": id} for item, id in pairs]
