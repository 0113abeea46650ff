"""LangGraph's own conformance suite of 81 tests, on every engine, sync and async."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from langgraph.checkpoint.conformance import checkpointer_test, validate

from backtrail.adapters.langgraph import BacktrailSaver


def test_every_test_of_the_conformance_suite_passes(open_store: Any, run_async: Callable[[Any], Any]) -> None:
    @checkpointer_test(name="backtrail")
    async def saver() -> AsyncIterator[BacktrailSaver]:
        async with open_store() as store:
            yield BacktrailSaver(store)

    results = run_async(validate(saver)).results.values()
    assert [failure for result in results for failure in result.failures] == []
    assert sum(result.tests_passed for result in results) == 81
