"""Sessions in a listing: the number of messages and user turns of each."""

from __future__ import annotations

from typing import Any

import msgspec

from backtrail.encode.row_format import Inline, ListNode, Node, Root
from backtrail.history.captions import CaptionedListing
from backtrail.model import ThreadInfo
from backtrail.session.message_window import MESSAGES, TURNS

KIND = "session"
_decode = msgspec.msgpack.Decoder().decode


class SessionInfo(ThreadInfo, frozen=True, kw_only=True):
    """A session in a listing."""

    messages: int
    user_turns: int


def _counts(root: Root) -> tuple[int, int]:
    children = root.tree.children or {}
    turns = _inline(children.get(TURNS), 0)
    return _length(children.get(MESSAGES)), turns if type(turns) is int else 0


def _length(node: Node | None) -> int:
    """The number of messages; 0 if a caller saved something other than a list under that key."""
    if isinstance(node, ListNode):
        return node.count
    messages = _inline(node, [])
    return len(messages) if type(messages) is list else 0


def _inline(node: Node | None, default: Any) -> Any:
    return _decode(node.raw) if isinstance(node, Inline) else default


SESSIONS = CaptionedListing(KIND, SessionInfo, tuple[int, int], _counts, (0, 0))
