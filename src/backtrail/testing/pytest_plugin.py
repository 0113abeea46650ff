"""The pytest plugin: a stored run as a regression test, in one line. pytest finds it by an entry point.

def test_the_recorded_run_still_holds(replays):
    replays("recorded.db", "run-7", program)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Replays = Callable[..., None]


@pytest.fixture
def replays() -> Replays:
    """Replays a run of a store against a program, and fails at the first divergence. Nothing is executed or written."""

    def check(target: Any, run: str, program: Callable[[Any, Any], Any], **options: Any) -> None:
        __tracebackhide__ = True
        from inspect import iscoroutinefunction

        if iscoroutinefunction(program):
            import asyncio

            found = asyncio.run(_replay(target, run, program, options))
        else:
            import backtrail

            with backtrail.open(target, **options) as store:
                found = store.replay(run, program)
        if not found.ok:
            pytest.fail(str(found))

    return check


async def _replay(target: Any, run: str, program: Callable[[Any, Any], Any], options: dict[str, Any]) -> Any:
    import backtrail.aio

    async with await backtrail.aio.open(target, **options) as store:
        return await store.replay(run, program)
