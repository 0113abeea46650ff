"""Steadiness: a call that met what a sweep was just freeing starts over, instead of crying damage.

A sweep touches every head of its lineage before it frees anything. So what looks like damage is believed only if the
head of the thread stands still: if it is the same after one failure and after the next. The engine has to stand still
as well: a mirror that changed sides in between has let the call read one half here and the other half there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from backtrail.errors import Corrupt
from backtrail.history.context import Context

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C")
_ATTEMPTS = 64

Method = Callable[Concatenate[C, P], Coroutine[Any, Any, T]]


def steady(whose: Callable[[Any], tuple[Context, str]]) -> Callable[[Method[C, P, T]], Method[C, P, T]]:
    """Make a method steady. `whose` tells the core and the thread of the object it belongs to."""

    def make(method: Method[C, P, T]) -> Method[C, P, T]:
        @functools.wraps(method)
        async def call(self: C, /, *args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return await method(self, *args, **kwargs)
            except Corrupt as error:
                damage = error
            context, thread = whose(self)
            last: object = None
            for _ in range(_ATTEMPTS):
                head = await context.engine.head(thread)
                stands = None if head is None else (head.key, context.branch_prefix)
                if stands is not None and stands == last:
                    break
                last = stands
                try:
                    return await method(self, *args, **kwargs)
                except Corrupt as error:
                    damage = error
            raise damage

        return call

    return make


of_thread = steady(lambda handle: (handle.context, handle.id))
