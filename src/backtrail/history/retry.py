"""Retries: the limits for operations on threads and lineages, and the rule that tells damage from a concurrent sweep.

A sweep changes every head of its lineage before it frees anything. So a missing row may be one that a sweep has just
freed: it counts as damage only if the head of the thread is the same after two failures in a row. A failover in between
counts as a change of the head, because the call may have read partly from one side and partly from the other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from backtrail.engines.retry import RetryPolicy
from backtrail.errors import Corrupt
from backtrail.history.context import Context

#: A change of a head, if other writers keep being faster.
RACES = RetryPolicy.seconds(30.0, at_least=8)
#: A call that met damage, if the head of its thread keeps moving.
REREADS = RetryPolicy.times(64)
#: A sweep, a copy, or a check of a lineage, if writers keep moving its heads.
SWEEPS = RetryPolicy.times(32)
COPIES = RetryPolicy.times(32)
CHECKS = RetryPolicy.times(16)

P = ParamSpec("P")
T = TypeVar("T")


class OfThread(Protocol):
    """Something that belongs to one thread of a store."""

    context: Context
    id: str


H = TypeVar("H", bound=OfThread)
Method = Callable[Concatenate[H, P], Coroutine[Any, Any, T]]


def attempts() -> Iterator[int]:
    """0, 1, 2, … until a call that keeps losing races has to give up."""
    return RACES.attempts()


async def repeat_while_moving(thread: OfThread, damage: Corrupt, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Repeat a call that raised `damage`, as long as the head of its thread moves; then raise it again."""
    context, last = thread.context, None
    for _ in REREADS.attempts():
        head = await context.engine.head(thread.id)
        now = None if head is None else (head.key, context.branch_prefix)
        if now is not None and now == last:
            break
        last = now
        try:
            return await call()
        except Corrupt as error:
            damage = error
    raise damage


def rereading(method: Method[H, P, T]) -> Method[H, P, T]:
    """Decorate a function on a thread: it is repeated if it met records that a sweep was just freeing."""

    @functools.wraps(method)
    async def call(thread: H, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(thread, *args, **kwargs)
        except Corrupt as damage:
            return await repeat_while_moving(thread, damage, lambda: method(thread, *args, **kwargs))

    return call
