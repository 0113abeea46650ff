"""Checkpoints by the names people use: `@` the head, `@~2` two before it, a step, a label, the start of an id.

@   @~2   12   12~1   before-deploy   before-deploy~3   01a1e113-7d4c
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from backtrail import Checkpoint, CheckpointNotFound, NotFound, Thread, ThreadNotFound

_BACK = re.compile(r"(?P<base>.*?)~(?P<back>\d{0,9})", re.DOTALL)
_ID = re.compile(r"[0-9a-fA-F-]{8,36}")
_SHORTEST = 8


def resolve(thread: Thread[object], text: str | None) -> Checkpoint:
    """The checkpoint that `text` names; without it, the head."""
    base, back = "@" if text is None else text, 0
    if not base:
        raise CheckpointNotFound(thread.id, text, "use @ for the head")
    matched = _BACK.fullmatch(base)
    if matched is not None and (matched["base"] in ("", "@") or _label(thread, base) is None):
        base, back = matched["base"] or "@", int(matched["back"] or 1)
    found = _base(thread, base)
    if not back:
        return found
    if base == "@":
        before = thread.history(limit=back + 1, newest_first=True)
        if len(before) <= back:
            raise CheckpointNotFound(thread.id, text, f"there are only {len(before) - 1} before the head")
        return before[back]
    known = {c.id: c for c in thread.history(all=True)}
    for _ in range(back):
        parent = known.get(found.parent_id or "")
        if parent is None:
            raise CheckpointNotFound(thread.id, text, f"nothing comes before step {found.step}")
        found = parent
    return found


def _base(thread: Thread[object], text: str) -> Checkpoint:
    if text == "@":
        head = thread.head
        if head is None:
            raise ThreadNotFound(thread.id)
        return head
    if text.isdigit() and len(text) < _SHORTEST:
        return thread.get(int(text))
    if _ID.fullmatch(text):
        try:
            return thread.get(text)
        except NotFound as error:
            if labelled := _label(thread, text):
                return labelled
            raise error
    labelled = _label(thread, text)
    if labelled is None:
        if not thread.exists():
            raise ThreadNotFound(thread.id)
        raise CheckpointNotFound(
            thread.id, text, "use @, @~2, a step, a label or the start of an id; `backtrail log` lists them"
        )
    return labelled


def _label(thread: Thread[object], text: str) -> Checkpoint | None:
    """The newest checkpoint of that label."""
    found = thread.find(label=text) if thread.exists() else []
    return max(found, key=lambda c: c.created_at, default=None)


def means_a_place(text: str) -> bool:
    """Whether a label of that name would never be found, because it means the head, one before it or a step."""
    matched = _BACK.fullmatch(text)
    base = text if matched is None else matched["base"]
    return base in ("", "@") or (matched is None and text.isdigit() and len(text) < _SHORTEST)


def shorten(ids: Iterable[str]) -> dict[str, str]:
    """For each id the shortest start that no other of them shares, eight characters at least."""
    ordered = sorted(set(ids))
    short = {}
    for i, id in enumerate(ordered):
        near = [*ordered[max(0, i - 1) : i], *ordered[i + 1 : i + 2]]
        length = max([_SHORTEST, *(_shared(id, other) + 1 for other in near)])
        short[id] = id[:length].rstrip("-")
    return short


def _shared(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
