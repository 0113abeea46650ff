"""Runs in a listing: task, iteration and token counts of each, from its head alone.

Each save leaves a caption in the head's note. It names the checkpoint it is true of: after a rewind or a fork the head
is at another one, and only then is a row read.
"""

from __future__ import annotations

from typing import Any

import msgspec

from backtrail.encode.row_format import Inline, Root
from backtrail.engines.base import Head
from backtrail.history.context import Context
from backtrail.history.records import open_note, thread_info
from backtrail.history.store_core import list_heads
from backtrail.history.thread_core import ThreadCore
from backtrail.model import ThreadInfo

KIND = "run"
NUMBERS = ("iteration", "input_tokens", "output_tokens")  # keys of the state
_encode = msgspec.msgpack.Encoder().encode
_CAPTION = msgspec.msgpack.Decoder(tuple[bytes, str, int, int, int])
_NO_CAPTION = (b"", "", 0, 0, 0)


class RunInfo(ThreadInfo, frozen=True, kw_only=True):
    """A run in a listing."""

    task: str
    iteration: int
    input_tokens: int
    output_tokens: int


def caption(root: Root, id: bytes) -> bytes:
    """The caption of a run's head, so that a listing need not read the run; `id` is the checkpoint it is true of."""
    return _encode((id[-6:], *_facts(root)))


def _facts(root: Root) -> tuple[str, int, int, int]:
    children = root.tree.children or {}
    small = {}
    for name in ("task", *NUMBERS):
        node = children.get(name)
        if isinstance(node, Inline):
            small[name] = msgspec.msgpack.decode(node.raw)
    task = str(small.get("task", ""))
    return task, small.get("iteration", 0), small.get("input_tokens", 0), small.get("output_tokens", 0)


async def run_info(context: Context, head: Head) -> RunInfo:
    """The run of a head, as a listing shows it."""
    note = open_note(context.frames, head)
    try:
        told = _CAPTION.decode(note.custom) if note.custom else _NO_CAPTION
    except msgspec.DecodeError:  # the last save was not made as a run, and left a caption of another kind
        told = _NO_CAPTION
    facts = told[1:]
    if told[0] != note.checkpoint[-6:]:
        facts = _facts((await ThreadCore[Any](context, head.thread).read_root()).root)
    info = thread_info(context.frames, head)
    common = {name: getattr(info, name) for name in ThreadInfo.__struct_fields__}
    return RunInfo(**common, task=facts[0], iteration=facts[1], input_tokens=facts[2], output_tokens=facts[3])


async def list_runs(
    context: Context, prefix: str = "", limit: int | None = None, after: str | None = None
) -> list[RunInfo]:
    """Runs whose id starts with `prefix`, newest first; `after` is the last id of the page before."""
    heads = await list_heads(context, prefix, limit, after, KIND)
    return [await run_info(context, head) for head in heads]
