"""Sessions in a listing: the number of messages and user turns of each, from its head alone.

Each save leaves a caption in the head's note. It names the checkpoint it is true of: after a rewind or a fork the head
is at another one, and only then is a row read.
"""

from __future__ import annotations

from typing import Any

import msgspec

from backtrail.encode.row_format import Inline, ListNode, Node, Root
from backtrail.engines.base import Head
from backtrail.history.context import Context
from backtrail.history.records import open_note, thread_info
from backtrail.history.store_core import list_heads
from backtrail.history.thread_core import ThreadCore
from backtrail.model import ThreadInfo
from backtrail.session.message_window import MESSAGES, TURNS

KIND = "session"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_CAPTION = msgspec.msgpack.Decoder(tuple[bytes, int, int])
_NO_CAPTION = (b"", 0, 0)


class SessionInfo(ThreadInfo, frozen=True, kw_only=True):
    """A session in a listing."""

    messages: int
    user_turns: int


def caption(root: Root, id: bytes) -> bytes:
    """The caption of a session's head, so that a listing need not read the session; `id` is the checkpoint it is true
    of."""
    return _encode((id[-6:], *_counts(root)))


def _counts(root: Root) -> tuple[int, int]:
    children = root.tree.children or {}
    return _length(children.get(MESSAGES)), int(_inline(children.get(TURNS), 0))


def _length(node: Node | None) -> int:
    return node.count if isinstance(node, ListNode) else len(_inline(node, []))


def _inline(node: Node | None, default: Any) -> Any:
    return _decode(node.raw) if isinstance(node, Inline) else default


async def session_info(context: Context, head: Head) -> SessionInfo:
    """The session of a head, as a listing shows it."""
    note = open_note(context.frames, head)
    try:
        told = _CAPTION.decode(note.custom) if note.custom else _NO_CAPTION
    except msgspec.DecodeError:  # the last save was not made as a session, and left a caption of another kind
        told = _NO_CAPTION
    counts = told[1:]
    if told[0] != note.checkpoint[-6:]:
        counts = _counts((await ThreadCore[Any](context, head.thread).read_root()).root)
    info = thread_info(context.frames, head)
    common = {name: getattr(info, name) for name in ThreadInfo.__struct_fields__}
    return SessionInfo(**common, messages=counts[0], user_turns=counts[1])


async def list_sessions(
    context: Context, prefix: str = "", limit: int | None = None, after: str | None = None
) -> list[SessionInfo]:
    """Sessions whose id starts with `prefix`, newest first; `after` is the last id of the page before."""
    heads = await list_heads(context, prefix, limit, after, KIND)
    return [await session_info(context, head) for head in heads]
