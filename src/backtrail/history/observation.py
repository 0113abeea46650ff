"""Operations and commits of an observed store, told to OpenTelemetry; see `backtrail.telemetry`.

`observed` marks an operation where `thread_core` lists it. `ObservedEngine` is an engine around the engine of the store
and times its commits. A store that is not observed has neither the engine nor the spans.
"""

from __future__ import annotations

import functools
from collections.abc import Coroutine
from typing import Any

from backtrail.engines.base import Commit, Engine
from backtrail.engines.conflicts import Refused
from backtrail.engines.delegating_engine import WrappingEngine
from backtrail.history.retry import H, Method, OfThread, P, T
from backtrail.telemetry import Telemetry


def observe(thread: OfThread, name: str, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """`work` in a span, if the store is observed; else `work` itself."""
    context = thread.context
    if context.telemetry is None:
        return work
    return context.telemetry.operation(name, context.engine.properties.name, thread.id, work)


def observed(name: str, method: Method[H, P, T]) -> Method[H, P, T]:
    """The method of a thread, with a span of this name if the store is observed."""

    @functools.wraps(method)
    def call(thread: H, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return observe(thread, name, method(thread, *args, **kwargs))

    return call


class ObservedEngine(WrappingEngine):
    """An engine whose commits are timed."""

    def __init__(self, engine: Engine, telemetry: Telemetry) -> None:
        super().__init__(engine)
        self._telemetry = telemetry

    async def commit(self, commit: Commit) -> None:
        await self._telemetry.commit(self.properties.name, Refused, self._inner.commit(commit))
