"""Sessions in a listing: how many messages each has, told by its head alone.

Each save leaves a caption in the head's note. It names the checkpoint it is true of, so that a head which a rewind or a
fork put elsewhere is noticed, and only then is a row read.
"""

from __future__ import annotations

from typing import Any

import msgspec

from backtrail.encode.row_format import Inline, ListNode, Node, Root
from backtrail.engines.base import Head
from backtrail.history.context import Context
from backtrail.history.records import open_note, thread_info
from backtrail.history.store import list_heads
from backtrail.history.thread import Thread
from backtrail.model import ThreadInfo
from backtrail.session.message_window import MESSAGES, TURNS

KIND = "session"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_CAPTION = msgspec.msgpack.Decoder(tuple[bytes, int, int])


class SessionInfo(ThreadInfo, frozen=True, kw_only=True):
    """What a listing tells about a session."""

    messages: int
    user_turns: int


def caption(root: Root, id: bytes) -> bytes:
    """What a listing tells of a session, so that it need not be read; `id` says of which checkpoint it is true."""
    return _encode((id[-6:], *_counts(root)))


def _counts(root: Root) -> tuple[int, int]:
    children = root.tree.children or {}
    return _length(children.get(MESSAGES)), int(_small(children.get(TURNS), 0))


def _length(node: Node | None) -> int:
    return node.count if isinstance(node, ListNode) else len(_small(node, []))


def _small(node: Node | None, default: Any) -> Any:
    return _decode(node.raw) if isinstance(node, Inline) else default


async def session_info(context: Context, head: Head) -> SessionInfo:
    """The line of a listing. Only a head that was put elsewhere by a rewind or a fork has its row read."""
    note = open_note(context.frames, head)
    try:
        told = _CAPTION.decode(note.custom) if note.custom else (b"", 0, 0)
    except msgspec.DecodeError:  # another view saved last, and said what it says of its own kind
        told = (b"", 0, 0)
    counts = told[1:]
    if told[0] != note.checkpoint[-6:]:
        counts = _counts((await Thread[Any](context, head.thread).read_root()).root)
    line = thread_info(context.frames, head)
    facts = {name: getattr(line, name) for name in ThreadInfo.__struct_fields__}
    return SessionInfo(**facts, messages=counts[0], user_turns=counts[1])


async def list_sessions(
    context: Context, prefix: str = "", limit: int | None = None, after: str | None = None
) -> list[SessionInfo]:
    """Sessions whose id starts with `prefix`, newest first; `after` is the last id of the page before."""
    heads = await list_heads(context, prefix, limit, after, KIND)
    return [await session_info(context, head) for head in heads]
