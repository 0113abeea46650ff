"""Retention: which checkpoints of a thread may be deleted; and a thread's own policy.

Nothing is deleted here: `retention_on_save` and `sweep` apply a policy.

A checkpoint is deleted when no thread that can see it keeps it: a fork keeps what it needs of its inherited history,
whatever the policy of the thread it was forked from. A head is never deleted.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from backtrail.engines.base import LAST_STEP, Head
from backtrail.errors import DECODE_ERRORS, Corrupt, InvalidInput
from backtrail.history import run_status
from backtrail.history.ancestry import HistoryStep
from backtrail.history.lineage_view import LineageView
from backtrail.history.records import MarkBody, Meta, move_head, open_note
from backtrail.history.save_arguments import Facts
from backtrail.history.thread_handle import S, ThreadHandle
from backtrail.model import Retention

KEEP_ALL = Retention()
_FINISHED = run_status.KINDS["finished"]
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_NUMBER = r"[0-9]{1,15}"
_SPAN = r"(\d+(?:\.\d+)?)([smhdw])"
_ENCODER = msgspec.msgpack.Encoder()
_DEFAULT_FINISHED = 30 * 86_400 * 1_000_000  # of a policy that was stored without it


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """A policy in the form that a head's note stores; times in microseconds."""

    keep_last: int | None
    max_age: int | None
    ttl: int | None
    keep_labelled: bool
    keep_tags: tuple[str, ...]
    undo_window: int
    finished_runs: int | None = _DEFAULT_FINISHED


_STORED = msgspec.msgpack.Decoder(_Stored)


def check_retention(value: Any) -> Retention:
    """The policy of an argument: a Retention, a text such as `keep_last=10,max_age=24h`, or None."""
    if value is None:
        return KEEP_ALL
    if isinstance(value, Retention):
        return value
    if isinstance(value, str):
        return parse(value)
    raise InvalidInput(f"retention must be a backtrail.Retention, not {type(value).__qualname__}")


def parse(text: str) -> Retention:
    """Parse the text of a policy, such as `keep_last=10,max_age=24h,keep_tags=a+b`."""
    fields: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if name == "keep_last" and re.fullmatch(_NUMBER, value):
            fields[name] = int(value)
        elif name == "finished_runs" and value == "keep":
            fields[name] = None
        elif name in ("max_age", "ttl", "undo_window", "finished_runs") and (span := re.fullmatch(_SPAN, value)):
            fields[name] = dt.timedelta(seconds=float(span[1]) * _UNITS[span[2]])
        elif name == "keep_labelled" and value in ("true", "false"):
            fields[name] = value == "true"
        elif name == "keep_tags" and value:
            fields[name] = tuple(value.split("+"))
        else:
            raise InvalidInput(
                f"retention: {part!r} is not understood; write for example "
                "keep_last=10,max_age=24h,ttl=30d,undo_window=7d,finished_runs=30d,keep_labelled=true,keep_tags=a+b"
            )
    return Retention(**fields)


def pack_retention(policy: Retention) -> bytes:
    """The bytes of a policy."""
    return _ENCODER.encode(
        _Stored(
            policy.keep_last,
            None if policy.max_age is None else micros(policy.max_age),
            None if policy.ttl is None else micros(policy.ttl),
            policy.keep_labelled,
            policy.keep_tags,
            micros(policy.undo_window),
            None if policy.finished_runs is None else micros(policy.finished_runs),
        )
    )


def unpack_retention(data: bytes, where: str) -> Retention:
    """The policy that `pack_retention` packed, or `Corrupt`."""
    try:
        stored = _STORED.decode(data)
    except (*DECODE_ERRORS, ValueError) as error:
        raise Corrupt(where, f"its retention makes no sense: {error}") from error
    return Retention(
        keep_last=stored.keep_last,
        max_age=None if stored.max_age is None else dt.timedelta(microseconds=stored.max_age),
        ttl=None if stored.ttl is None else dt.timedelta(microseconds=stored.ttl),
        keep_labelled=stored.keep_labelled,
        keep_tags=stored.keep_tags,
        undo_window=dt.timedelta(microseconds=stored.undo_window),
        finished_runs=None if stored.finished_runs is None else dt.timedelta(microseconds=stored.finished_runs),
    )


def micros(span: dt.timedelta) -> int:
    """The microseconds of a time span."""
    return span // dt.timedelta(microseconds=1)


def protected(policy: Retention, facts: Facts | Meta | MarkBody) -> bool:
    """True if a checkpoint stays because of its label or tags."""
    if policy.keep_labelled and facts.label is not None:
        return True
    return bool(policy.keep_tags) and not set(policy.keep_tags).isdisjoint(facts.tags)


def kept(policy: Retention, now: int, view: LineageView, heads: Sequence[Head]) -> Iterator[HistoryStep]:
    """The checkpoints that threads of this policy keep, all or some of them."""
    oldest = 0 if policy.max_age is None else now - micros(policy.max_age)
    yield from view.newest(heads, 1)
    recent = view.newest(heads, policy.keep_last or LAST_STEP)
    yield from (one for one in recent if one.meta.created >= oldest)
    if policy.keep_labelled or policy.keep_tags:
        yield from (one for one in view.newest(heads, LAST_STEP) if protected(policy, one.facts))
    window = now - micros(policy.undo_window)
    for one, since in (pair for head in heads for pair in view.abandoned(head)):
        if policy == KEEP_ALL or since > window or protected(policy, one.facts):
            yield one


def expired(policy: Retention, now: int, head: Head) -> bool:
    """True if a thread has been idle for longer than its ttl, or a run has been finished for long enough."""
    if (
        head.kind == _FINISHED
        and policy.finished_runs is not None
        and head.updated < now - micros(policy.finished_runs)
    ):
        return True
    return policy.ttl is not None and head.updated < now - micros(policy.ttl)


def keeps_all(policy: Retention, now: int, head: Head) -> bool:
    """True if a thread that has never moved but by saves keeps itself and every checkpoint: known from its head."""
    few = policy.keep_last is None or head.count <= policy.keep_last
    young = policy.max_age is None or head.created >= now - micros(policy.max_age)
    return few and young and not expired(policy, now, head)


# -- the policy of one thread ------------------------------------------------------------------------------------------


async def own_retention(thread: ThreadHandle[S]) -> Retention | None:
    """The thread's own policy, if it has one."""
    own = open_note(thread.context.frames, await thread.require_head()).retention
    return unpack_retention(own, f"the head of thread {thread.id!r}") if own else None


async def retain(thread: ThreadHandle[S], policy: Any) -> None:
    """Give the thread a policy of its own, which replaces the store's; None removes it. It is stored with the thread,
    and later forks inherit it."""
    frames = thread.context.frames
    packed = b"" if policy is None else pack_retention(check_retention(policy))

    async def attempt(head: Head) -> bool | None:
        note = msgspec.structs.replace(open_note(frames, head), retention=packed)
        moved = move_head(frames, thread.context.generation, head, note, head.position, head.updated)
        return await thread.swap_head(head, moved) or None

    await thread.retry_cas("retain", attempt)
