"""LangGraph's own conformance suite, on every engine and in both colours: all 81 tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from langgraph.checkpoint.conformance import checkpointer_test, validate

from backtrail.adapters.langgraph import BacktrailSaver


def test_every_test_of_the_conformance_suite_passes(opened: Any, run: Callable[[Any], Any]) -> None:
    @checkpointer_test(name="backtrail")
    async def saver() -> AsyncIterator[BacktrailSaver]:
        async with opened() as store:
            yield BacktrailSaver(store)

    results = run(validate(saver)).results.values()
    assert [failure for result in results for failure in result.failures] == []
    assert sum(result.tests_passed for result in results) == 81
