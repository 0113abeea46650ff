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
    return _length(children.get(MESSAGES)), int(_inline(children.get(TURNS), 0))


def _length(node: Node | None) -> int:
    return node.count if isinstance(node, ListNode) else len(_inline(node, []))


def _inline(node: Node | None, default: Any) -> Any:
    return _decode(node.raw) if isinstance(node, Inline) else default


SESSIONS = CaptionedListing(KIND, SessionInfo, tuple[int, int], _counts)
