"""Runs in a listing: task, iteration and token counts of each."""

from __future__ import annotations

from typing import Any

import msgspec

from backtrail.encode.row_format import Inline, Root
from backtrail.history.captions import CaptionedListing
from backtrail.model import MAX_NUMBER, ThreadInfo

KIND = "run"
NUMBERS = ("iteration", "input_tokens", "output_tokens")  # keys of the state


class RunInfo(ThreadInfo, frozen=True, kw_only=True):
    """A run in a listing."""

    task: str
    iteration: int
    input_tokens: int
    output_tokens: int


def _facts(root: Root) -> tuple[str, int, int, int]:
    children = root.tree.children or {}
    small = {}
    for name in ("task", *NUMBERS):
        node = children.get(name)
        if isinstance(node, Inline):
            small[name] = msgspec.msgpack.decode(node.raw)
    task = small.get("task")
    iteration, sent, received = (_number(small.get(name)) for name in NUMBERS)
    return task if type(task) is str else "", iteration, sent, received


def _number(value: Any) -> int:
    """A number of the state; 0 if a caller saved something else under its key."""
    return value if type(value) is int and 0 <= value < MAX_NUMBER else 0


RUNS = CaptionedListing(KIND, RunInfo, tuple[str, int, int, int], _facts, ("", 0, 0, 0))
