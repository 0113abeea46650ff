"""The difference between a LangGraph checkpoint and the one before it. Pure functions.

LangGraph names the channels that have changed; of a list of messages only the added ones are written.
"""

from __future__ import annotations

from typing import Any

import msgspec
from langgraph.checkpoint.base import ChannelVersions
from langgraph.checkpoint.base import Checkpoint as GraphCheckpoint

from backtrail.adapters.langgraph.checkpoint_cache import CachedCheckpoint
from backtrail.adapters.langgraph.compression import compress
from backtrail.adapters.langgraph.ids import state_key
from backtrail.adapters.langgraph.message_codec import RESERVED_KEY, MessageCodec
from backtrail.adapters.langgraph.message_list import MessageList


class CheckpointDelta(msgspec.Struct):
    """The arguments of a thread's `update`, and the checkpoint that comes of it."""

    set: dict[str, Any]
    append: tuple[str, list[Any]] | None
    remove: list[str]
    result: CachedCheckpoint


def plan_delta(
    codec: MessageCodec,
    before: CachedCheckpoint,
    checkpoint: GraphCheckpoint,
    new_versions: ChannelVersions,
    *,
    check_messages: bool,
) -> CheckpointDelta:
    """The difference between `before` and `checkpoint`. `check_messages` as in `MessageCodec.encode`."""
    values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
    bookkeeping = codec.encode({k: value for k, value in checkpoint.items() if k not in ("id", "channel_values")})
    changes: dict[str, Any] = {RESERVED_KEY: bookkeeping}
    append: tuple[str, list[Any]] | None = None
    plain = {channel: value for channel, value in before.plain.items() if channel in values}
    message_lists = {channel: messages for channel, messages in before.message_lists.items() if channel in values}
    for channel, value in values.items():
        known = channel in before.channels and channel not in new_versions
        if known and versions.get(channel) == before.versions.get(channel):
            continue
        plain.pop(channel, None)
        message_lists.pop(channel, None)
        key, old = state_key(channel), before.message_lists.get(channel)
        messages = None
        if codec.readable and type(value) is list and not check_messages:
            messages = MessageList.of(value, old, immutable=codec.immutable)
        if messages is None:
            plain[channel] = codec.encode(value, check_messages=check_messages)
            changes[key] = compress(plain[channel]) if channel.startswith("__") else plain[channel]
            continue
        message_lists[channel] = messages
        if old is None or messages.continued < len(old.items) or append is not None:
            changes[key] = codec.encode(value)
        elif len(value) > len(old.items):
            append = (key, codec.encode(value[len(old.items) :]))
    removed = [state_key(channel) for channel in before.channels - values.keys()]
    result = CachedCheckpoint(checkpoint["id"], bookkeeping, plain, message_lists)
    return CheckpointDelta(changes, append, removed, result)
