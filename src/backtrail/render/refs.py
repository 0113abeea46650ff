"""Resolves checkpoint refs: `@` the head, `@~2` two before it, a step, a label, the start of an id.

@   @~2   12   12~1   before-deploy   before-deploy~3   01a1e113-7d4c
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

from backtrail import Checkpoint, CheckpointNotFound, NotFound, Thread, ThreadNotFound
from backtrail.render.graph import ancestry

_BACK_SUFFIX = re.compile(r"(?P<base>.*?)~(?P<back>\d{0,9})", re.DOTALL)
_ID_PREFIX = re.compile(r"[0-9a-fA-F-]{8,36}")
_MIN_ID_PREFIX = 8
_STEP = re.compile(r"[0-9]{1,7}")


def resolve(thread: Thread[object], ref: str | None) -> Checkpoint:
    """The checkpoint that `ref` names; without one, the head."""
    base, back = "@" if ref is None else ref, 0
    if not base:
        raise CheckpointNotFound(thread.id, ref, "use @ for the head")
    matched = _BACK_SUFFIX.fullmatch(base)
    if matched is not None and (matched["base"] in ("", "@") or _find_label(thread, base) is None):
        base, back = matched["base"] or "@", int(matched["back"] or 1)
    found = _resolve_base(thread, base)
    if not back:
        return found
    if base == "@":
        before = thread.history(limit=back + 1, newest_first=True)
        if len(before) <= back:
            raise CheckpointNotFound(thread.id, ref, f"there are only {len(before) - 1} before the head")
        return before[back]
    known = {c.id: c for c in (found, *thread.history(all=True))}
    before = list(islice(ancestry(known, found.id), back + 1))
    if len(before) <= back:
        raise CheckpointNotFound(thread.id, ref, f"nothing comes before step {before[-1].step}")
    return before[back]


def _resolve_base(thread: Thread[object], text: str) -> Checkpoint:
    if text == "@":
        head = thread.head
        if head is None:
            raise ThreadNotFound(thread.id)
        return head
    if _STEP.fullmatch(text):
        return thread.get(int(text))
    if _ID_PREFIX.fullmatch(text):
        try:
            return thread.get(text)
        except NotFound as error:
            if labelled := _find_label(thread, text):
                return labelled
            raise error
    labelled = _find_label(thread, text)
    if labelled is None:
        if not thread.exists():
            raise ThreadNotFound(thread.id)
        raise CheckpointNotFound(
            thread.id, text, "use @, @~2, a step, a label or the start of an id; `backtrail log` lists them"
        )
    return labelled


def _find_label(thread: Thread[object], text: str) -> Checkpoint | None:
    """The newest checkpoint with that label."""
    found = thread.find(label=text) if thread.exists() else []
    return max(found, key=lambda c: c.created_at, default=None)


def is_reserved_ref(text: str) -> bool:
    """True if a label of that name could never be found, because it means the head, one before it or a step."""
    matched = _BACK_SUFFIX.fullmatch(text)
    base = text if matched is None else matched["base"]
    return base in ("", "@") or (matched is None and _STEP.fullmatch(text) is not None)


def shorten_ids(ids: Iterable[str]) -> dict[str, str]:
    """For each id its shortest unique prefix of at least eight characters."""
    ordered = sorted(set(ids))
    short = {}
    for i, id in enumerate(ordered):
        near = [*ordered[max(0, i - 1) : i], *ordered[i + 1 : i + 2]]
        length = max([_MIN_ID_PREFIX, *(_common_prefix_length(id, other) + 1 for other in near)])
        short[id] = id[:length].rstrip("-")
    return short


def _common_prefix_length(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
