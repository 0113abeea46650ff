"""The difference between a LangGraph checkpoint and the one before it. Pure functions.

LangGraph names the channels that have changed; of a list of messages only the added ones are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from langgraph.checkpoint.base import ChannelVersions
from langgraph.checkpoint.base import Checkpoint as GraphCheckpoint

from backtrail.adapters.langgraph.bookkeeping import pack_bookkeeping
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
    encoded: Mapping[str, Any],
    *,
    check_messages: bool,
    trust_versions: bool = True,
) -> CheckpointDelta:
    """The difference between `before` and `checkpoint`. `encoded` are channels that have been encoded already;
    `check_messages` as in `MessageCodec.encode`.

    `trust_versions`: a channel of the same version has the same value, which is so unless somebody edited it.
    """
    values, versions = checkpoint["channel_values"], checkpoint["channel_versions"]
    bookkeeping = codec.encode({k: value for k, value in checkpoint.items() if k not in ("id", "channel_values")})
    changes: dict[str, Any] = {RESERVED_KEY: pack_bookkeeping(bookkeeping)}
    append: tuple[str, list[Any]] | None = None
    # A channel that keeps its version keeps its value, even if LangGraph leaves that out, as it does for the last
    # snapshot of a delta channel that no step has written since.
    unchanged = {
        channel
        for channel in before.channels
        if channel in versions and channel not in new_versions and versions[channel] == before.versions.get(channel)
        if trust_versions or channel not in values
    }
    plain = {channel: value for channel, value in before.plain.items() if channel in unchanged}
    message_lists = {channel: messages for channel, messages in before.message_lists.items() if channel in unchanged}
    for channel, value in values.items():
        if channel in unchanged:
            continue
        key, old = state_key(channel), before.message_lists.get(channel)
        messages = None
        if codec.readable and type(value) is list and not check_messages:
            messages = MessageList.of(value, old, immutable=codec.immutable)
        if messages is None:
            known = channel in encoded
            plain[channel] = encoded[channel] if known else codec.encode(value, check_messages=check_messages)
            changes[key] = compress(plain[channel]) if channel.startswith("__") else plain[channel]
            continue
        message_lists[channel] = messages
        if old is None or messages.continued < len(old.items) or append is not None:
            changes[key] = codec.encode(value)
        elif len(value) > len(old.items):
            append = (key, codec.encode(value[len(old.items) :]))
    removed = [state_key(channel) for channel in before.channels - values.keys() - unchanged]
    result = CachedCheckpoint(checkpoint["id"], bookkeeping, plain, message_lists)
    return CheckpointDelta(changes, append, removed, result)
