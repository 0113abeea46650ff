"""Runs in a listing: task, iteration and token counts of each."""

from __future__ import annotations

import msgspec

from backtrail.encode.row_format import Inline, Root
from backtrail.history.captions import CaptionedListing
from backtrail.model import ThreadInfo

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
    task = str(small.get("task", ""))
    return task, small.get("iteration", 0), small.get("input_tokens", 0), small.get("output_tokens", 0)


RUNS = CaptionedListing(KIND, RunInfo, tuple[str, int, int, int], _facts, ("", 0, 0, 0))
