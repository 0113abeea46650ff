"""How a worker takes up a run: in few calls, listed as running if it takes its time, and not if it waits in place."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.engines.coroutines import finish
from backtrail.run.work_core import WorkCore
from fix_stores import open_stores


def task_of(store: Any, before: Callable[[], bool], ask: bool = False) -> Any:
    """A task that waits until `before` is true, then does a step or asks."""

    def sync_task(run: Any, given: Any) -> Any:
        if ask:
            return run.ask("ok?", "Shall I?", wait=60.0)
        while not before():
            time.sleep(0.005)
        return run.step("s", int)

    async def async_task(run: Any, given: Any) -> Any:
        if ask:
            return await run.ask("ok?", "Shall I?", wait=60.0)
        while not before():
            await asyncio.sleep(0.005)
        return await run.step("s", int)

    return async_task if hasattr(store, "loop") else sync_task


def listed(other: backtrail.Store) -> str:
    [info] = other.runs(status="all")
    return info.status


@pytest.fixture(params=["blocking", "async"])
def pair_of_stores(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A store over one API, and another one over the same data for a look at it meanwhile."""
    for opener in open_stores("memory", request.param, tmp_path):
        store = opener()
        yield store, backtrail.open(getattr(store, "inner", store)._core.context.engine)


def test_a_run_whose_first_step_takes_its_time_is_listed_as_running(pair_of_stores: Any) -> None:
    store, other = pair_of_stores
    store.submit("t", id="r")
    began = time.monotonic()

    def is_listed() -> bool:
        assert time.monotonic() < began + 20
        return listed(other) == "running"

    assert store.work({"t": task_of(store, is_listed)}, drain=True) == 1
    assert listed(other) == "finished"
    assert [one.custom for one in store.run("r").history()] == [{}] * 4  # submitted, running, its step, its end


def test_a_short_run_is_two_commits_and_is_read_once(pair_of_stores: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("backtrail.run.work_core._MARKED_AFTER", 60.0)  # however slow this machine is
    store, other = pair_of_stores
    for number in range(3):
        store.submit("t", id=f"r{number}")
    calls: Counter[str] = Counter()
    engine = other._core.context.engine
    for name in ("head", "tip", "lease", "release", "commit"):
        monkeypatch.setattr(engine, name, counted(getattr(engine, name), name, calls))
    assert store.work({"t": task_of(store, lambda: True)}, drain=True) == 3
    assert calls == {"tip": 3, "lease": 3, "release": 3, "commit": 6}


def counted(call: Any, name: str, calls: Counter[str]) -> Any:
    async def counting(*args: Any, **options: Any) -> Any:
        calls[name] += 1
        return await call(*args, **options)

    return counting


def test_a_run_that_waits_in_place_stays_listed_as_waiting(pair_of_stores: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("backtrail.run.work_core._MARKED_AFTER", 0.001)
    store, other = pair_of_stores
    store.submit("t", id="r")
    seen: list[str] = []

    def answer() -> None:
        end = time.monotonic() + 20
        while not other.pending() and time.monotonic() < end:
            time.sleep(0.005)
        time.sleep(0.1)
        seen.append(listed(other))
        other.answer("r", "ok?", True)

    helper = threading.Thread(target=answer)
    helper.start()
    assert store.work({"t": task_of(store, bool, ask=True)}, drain=True) == 1
    helper.join()
    assert seen == ["waiting"]
    assert store.run("r").outcome().result is True


def test_a_run_that_fails_because_of_a_run_inside_of_it_counts_as_taken_and_is_logged(
    pair_of_stores: Any, caplog: Any
) -> None:
    store, other = pair_of_stores
    store.submit("t", id="r")
    held = other.run("inner")

    def sync_task(run: Any, given: Any) -> None:
        with store.run("inner"):
            raise AssertionError("never reached")

    async def async_task(run: Any, given: Any) -> None:
        async with store.inner.run("inner"):
            raise AssertionError("never reached")

    with held:
        held.checkpoint()
        assert store.work({"t": async_task if hasattr(store, "loop") else sync_task}, drain=True) == 1
    outcome = store.run("r").outcome()
    assert outcome.status == "failed"
    assert "LockTimeout" in outcome.error.type
    assert "run 'r' failed" in caplog.text


def test_a_worker_reads_runs_that_sleep_once_and_then_only_new_ones(monkeypatch: Any, later: Any) -> None:
    read: list[int] = []
    with backtrail.open("memory:") as store:
        engine = store._core.context.engine
        listing = engine.threads

        async def counting(**options: Any) -> Any:
            found = await listing(**options)
            read.append(len(found))
            return found

        monkeypatch.setattr(engine, "threads", counting)
        for number in range(300):
            store.submit("t", id=f"r{number}", at=3600)
        worker = WorkCore(store._core.context, {"t": print}, 1, 1.0)
        assert finish(worker.find()) == []
        assert sum(read) == 300
        later(60)
        finish(worker.find())
        read.clear()
        store.submit("t", id="another", at=60)
        assert finish(worker.find()) == []
        assert sum(read) == 64
        later(61)
        assert finish(worker.find()) == ["another"]


def test_the_oldest_of_many_ready_runs_do_not_wait_behind_newer_ones(monkeypatch: Any) -> None:
    monkeypatch.setattr("backtrail.run.work_core._PAGE", 10)
    monkeypatch.setattr("backtrail.run.work_core._OLDEST", 8)
    with backtrail.open("memory:") as store:
        for number in range(70):
            store.submit("t", id=f"r{number:02}")
        store.submit("another", id="of-another-task")
        worker = WorkCore(store._core.context, {"t": print}, 1, 1.0)
        assert sorted(finish(worker.find())) == [f"r{number:02}" for number in range(8)]
