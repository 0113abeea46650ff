"""Naming a checkpoint: the one rule by which `at` is read in Python, on the command line and over HTTP.

A Checkpoint and a UUID name themselves. A number is a step of the history, and a negative one counts from its end, as
in a list: -1 is the head. A text is read in this order, and the first line that fits decides:

1. `@` is the head, `@~2` or `~2` the second checkpoint before it, `12~2` the second before step 12, and `NAME~2` the
   second before any other NAME, unless `NAME~2` is itself a label;
2. a number of at most seven digits, the first of them not 0, is a step, also if a label looks like one;
3. 32 hexadecimal digits are an id; eight or more are the start of one and, if no id starts so, a label;
4. anything else is a label; fewer than eight hexadecimal digits are the start of an id if there is no such label.

A label in the history hides the same label on abandoned checkpoints. If several checkpoints are left, the name is
ambiguous, and the error lists them.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec

from backtrail.encode.frame import describe_row
from backtrail.engines.base import Head, Position
from backtrail.errors import AmbiguousCheckpoint, CheckpointNotFound, Corrupt, InvalidInput
from backtrail.history.ancestry import Ancestry, HistoryStep, labelled_steps, own_branches, step_at
from backtrail.history.checkpoint_ids import uuid_text
from backtrail.history.context import Context
from backtrail.history.records import open_note
from backtrail.model import Checkpoint

_BACK = re.compile(r"(?P<base>.*)~(?P<count>[0-9]{0,9})", re.DOTALL)
_STEP = re.compile(r"0|-?[1-9][0-9]{0,6}")
_HEX = re.compile(r"[0-9a-fA-F]+(?:-[0-9a-fA-F]+)*-?")
_SURE_PREFIX = 8  # hexadecimal digits from which on a text is rather the start of an id than a label
_WHOLE_ID = 32
_FIRST_LIMIT = 64  # rows read for a prefix, at first
_MAX_TEXT = 1024  # characters: a label has at most half as many
_LISTED = 8  # checkpoints of one label that are looked for, before it is called ambiguous


async def resolve(context: Context, head: Head, at: Any, argument: str = "at", salvage: bool = False) -> HistoryStep:
    """The checkpoint that `at` names, as the thread of `head` sees it; `argument` is what the caller calls it.
    `salvage`: also if it is damaged."""
    found = await _resolve(context, head, at, argument)
    if found.damage is not None and not salvage:
        raise found.damage
    return found


async def _resolve(context: Context, head: Head, at: Any, argument: str) -> HistoryStep:
    if isinstance(at, Checkpoint):
        there = await _in_history(context, head, whole_id(at), at.step)
        if there is not None:
            return there
        at = at.id
    if isinstance(at, uuid.UUID):
        at = str(at)
    if type(at) is int:
        return await _resolve_step(context, head, at)
    if type(at) is str:
        return await _resolve_text(context, head, at)
    kinds = "a Checkpoint, an id, a label, '@~2' or a step number"
    raise InvalidInput(f"{argument} must be {kinds}, not {type(at).__qualname__}")


def whole_id(at: Any) -> bytes | None:
    """The id that `at` spells out, for which nothing has to be read; None if it names a checkpoint in another way."""
    if isinstance(at, Checkpoint):
        at = at.id
    if isinstance(at, uuid.UUID):
        return at.bytes
    if type(at) is str and _HEX.fullmatch(at) and len(digits := at.replace("-", "")) == _WHOLE_ID:
        return bytes.fromhex(digits)
    return None


def never_means_a_label(text: str) -> bool:
    """True if a label of that text could not be used as a name: it means the head, one before the head, or a step."""
    while matched := _BACK.fullmatch(text):
        text = matched["base"]
    return text in ("", "@") or _STEP.fullmatch(text) is not None


# -- steps and positions -----------------------------------------------------------------------------------------------


async def _resolve_step(context: Context, head: Head, step: int) -> HistoryStep:
    ancestry = await Ancestry.of(context, head)
    if step < 0:
        return await _count_back(head, step, ancestry, -step - 1)
    branch = ancestry.branch_at(step)
    found = await step_at(context, head, branch, step, salvage=True) if branch is not None else None
    if found is None:
        raise CheckpointNotFound(head.thread, step, f"its steps go from 1 to {head.step}, less what was pruned")
    if not found.alive:
        raise CheckpointNotFound(head.thread, step, "it was deleted")
    return found


async def _count_back(head: Head, at: int | str, ancestry: Ancestry, count: int) -> HistoryStep:
    """The living checkpoint that many before the newest one of an ancestry."""
    left = count
    async for one in ancestry.steps_back(chunk=min(count + 1, 512), salvage=True):
        if one.alive:
            if not left:
                return one
            left -= 1
    there = count - left - 1
    hint = f"only {there} before it" if there > 0 else "nothing comes before it"
    raise CheckpointNotFound(head.thread, at, hint)


async def _resolve_text(context: Context, head: Head, text: str) -> HistoryStep:
    if not text:
        raise CheckpointNotFound(head.thread, text, "use @ for the head")
    if len(text) > _MAX_TEXT:
        return _unknown(head, text)
    if text == "@":
        return await _count_back(head, text, await Ancestry.of(context, head), 0)
    if _BACK.fullmatch(text):
        return await _resolve_before(context, head, text)
    if _STEP.fullmatch(text):
        try:
            return await _resolve_step(context, head, int(text))
        except CheckpointNotFound as error:
            if candidates := (await find_labelled(context, head, text))[text]:
                raise _only_a_label(head, text, candidates) from error
            raise
    digits = text.replace("-", "").lower() if _HEX.fullmatch(text) else ""
    if not digits or len(digits) > _WHOLE_ID:
        return await _resolve_label(context, head, text) or _unknown(head, text)
    if len(digits) >= _SURE_PREFIX:
        found = await _resolve_id(context, head, text, digits)
        if isinstance(found, HistoryStep) or len(digits) == _WHOLE_ID:
            return _required(found)
        return await _resolve_label(context, head, text) or _required(found)
    return await _resolve_label(context, head, text) or _required(await _resolve_id(context, head, text, digits))


async def _resolve_before(context: Context, head: Head, text: str) -> HistoryStep:
    """The checkpoint of `NAME~2`, or of `NAME~2~1`. Any of these may be a label too; the longest one that is counts."""
    name, back = text, 0
    names: dict[str, int] = {}
    while matched := _BACK.fullmatch(name):
        names[name] = back
        name, back = matched["base"], back + int(matched["count"] or 1)
    if name not in ("", "@") and not _STEP.fullmatch(name):
        if not _HEX.fullmatch(name):  # then it can only be a label, and is found in the same walk
            names[name] = back
        found = await find_labelled(context, head, *names)
        for label, count in names.items():
            if (one := _only_one(head, label, found[label])) is not None:
                return await _count_back(head, text, await Ancestry.of(context, head, one.position), count)
    base = await _resolve_text(context, head, name or "@")
    return await _count_back(head, text, await Ancestry.of(context, head, base.position), back)


def _required(found: HistoryStep | CheckpointNotFound) -> HistoryStep:
    if isinstance(found, CheckpointNotFound):
        raise found
    return found


def _unknown(head: Head, text: str) -> HistoryStep:
    hint = "name it by '@', '@~2', a step, a label or the start of its id"
    raise CheckpointNotFound(head.thread, text, f"{hint}; list them with thread.history(all=True)")


# -- labels ------------------------------------------------------------------------------------------------------------


async def find_labelled(context: Context, head: Head, *labels: str) -> dict[str, list[HistoryStep]]:
    """For each of these labels its checkpoints in the history, newest first; if there are none, those that were
    abandoned."""
    found: dict[str, list[HistoryStep]] = {label: [] for label in labels}
    ancestry = await Ancestry.of(context, head)
    for branch, first, last in ancestry.segments:
        for one in reversed(await labelled_steps(context, head, branch, first, last)):
            if one.facts.label in found and len(found[one.facts.label]) < _LISTED:
                found[one.facts.label].append(one)
    missing = {label for label in labels if not found[label]}
    if missing:
        ends = {segment.branch.id: segment.last for segment in ancestry.segments}
        for branch in reversed(await own_branches(context, head)):
            for one in reversed(await labelled_steps(context, head, branch, ends.get(branch.id, 0) + 1)):
                if one.facts.label in missing:
                    found[one.facts.label].append(one)
    return found


async def _resolve_label(context: Context, head: Head, text: str) -> HistoryStep | None:
    """The checkpoint of this label; None if there is none."""
    return _only_one(head, text, (await find_labelled(context, head, text))[text])


def _only_one(head: Head, text: str, found: list[HistoryStep]) -> HistoryStep | None:
    if len(found) > 1:
        hint = "several have this label, so give a step or an id"
        raise AmbiguousCheckpoint(head.thread, text, _ids(found), _steps(found), hint)
    return found[0] if found else None


def _only_a_label(head: Head, text: str, found: list[HistoryStep]) -> CheckpointNotFound:
    """A number is a step, also where there is no such step, so that it does not change its meaning with time."""
    listed = ", ".join(f"{id} (step {step})" for id, step in zip(_ids(found), _steps(found), strict=True))
    hint = f"a number names a step; the label {text!r} is that of {listed}: name it by its id"
    return CheckpointNotFound(head.thread, text, hint)


def _ids(found: Sequence[HistoryStep]) -> list[str]:
    return [uuid_text(one.step.id) for one in found]


def _steps(found: Sequence[HistoryStep]) -> list[int]:
    return [one.step.step for one in found]


# -- ids ---------------------------------------------------------------------------------------------------------------


async def _in_history(context: Context, head: Head, id: bytes | None, step: int) -> HistoryStep | None:
    """The living checkpoint of this id and step in the history, if it is there."""
    branch = (await Ancestry.of(context, head)).branch_at(step)
    found = None if branch is None else await step_at(context, head, branch, step, salvage=True)
    return found if found is not None and found.alive and found.step.id == id else None


async def _search_history(context: Context, head: Head, id: bytes) -> HistoryStep | None:
    """The living checkpoint of this id, by bisection of the history. Ids begin with the time, so they ascend with the
    steps, unless a caller chose them or clocks disagree: then it may not be found here although it is there."""
    ancestry = await Ancestry.of(context, head)
    first, last = 1, head.step
    while first <= last:
        middle = (first + last) // 2
        found = None
        async for one in ancestry.steps_back(down_to=first, chunk=1, up_to=middle, salvage=True):
            found = one
            break
        if found is None or found.step.id < id:
            first = middle + 1
        elif found.step.id > id:
            last = found.step.step - 1
        else:
            return found if found.alive else None
    return None


async def _resolve_id(context: Context, head: Head, text: str, digits: str) -> HistoryStep | CheckpointNotFound:
    """The one checkpoint whose id starts with these digits, or the error that says why there is none."""
    if digits == open_note(context.frames, head).checkpoint.hex():  # most callers got the id from the head
        branch = await context.branch(head.lineage, head.branch)
        at_head = await step_at(context, head, branch, head.step, salvage=True) if branch is not None else None
        if at_head is not None:
            return at_head
    if len(digits) == _WHOLE_ID and not context.caches.ids.complete(head) and context.engine.properties.blocking:
        there = await _search_history(context, head, bytes.fromhex(digits))  # without an index of ids, but near at hand
        if there is not None:
            return there
    low = bytes.fromhex(digits.ljust(_WHOLE_ID, "0"))
    high = bytes.fromhex(digits.ljust(_WHOLE_ID, "f"))
    limit = _FIRST_LIMIT
    while True:
        candidates = await _candidates(context, head, low, high, limit)
        if len(candidates.found) > 1 or candidates.rows < limit:
            break
        limit *= 16  # rows of other threads filled the limit
    if len(candidates.found) == 1:
        return candidates.found[0]
    if candidates.found:
        found = candidates.found
        raise AmbiguousCheckpoint(head.thread, text, _ids(found), _steps(found), "give more characters")
    if candidates.elsewhere:
        return CheckpointNotFound(head.thread, text, "a checkpoint of that id belongs to another thread")
    if candidates.deleted:
        return CheckpointNotFound(head.thread, text, "it was deleted")
    return CheckpointNotFound(head.thread, text)


class _Candidates(msgspec.Struct):
    """The rows whose ids are in a range, up to the limit of the read."""

    rows: int  #: how many were read
    found: list[HistoryStep]  #: the living ones that the thread can see
    elsewhere: bool = False  #: some belong to another thread
    deleted: bool = False  #: some were deleted


async def _candidates(context: Context, head: Head, low: bytes, high: bytes, limit: int) -> _Candidates:
    positions: Sequence[Position]
    if low == high:
        positions = await context.caches.ids.positions(context.engine, head, low)
    else:
        rows = await context.engine.locate(head.lineage, low, high, limit)
        positions = [(branch, step) for branch, step, _ in rows]
    ancestry = await Ancestry.of(context, head)
    result = _Candidates(len(positions), [])
    for branch_id, step in positions:
        branch = await context.branch(head.lineage, branch_id)
        if branch is None:
            if await context.engine.steps(head.lineage, branch_id, step, step):
                raise Corrupt(describe_row(branch_id, step), "its branch is missing")
            result.deleted = True  # freed since it was located, or never on the side of a mirror that answers now
            continue
        if branch.owner != head.owner and (branch_id, step) not in ancestry:
            result.elsewhere = True
            continue
        one = await step_at(context, head, branch, step, salvage=True)
        if one is not None and one.alive:
            result.found.append(one)
        else:
            result.deleted = True
    return result
