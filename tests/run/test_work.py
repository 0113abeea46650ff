"""Workers, on each engine, through the sync and the async facade: each run is done by one of them."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import backtrail
import backtrail.aio
from fix_children import Child


def note(path: Path, text: str) -> None:
    """Add a line to a file, in one write."""
    with path.open("ab", buffering=0) as file:
        file.write(f"{text}\n".encode())


def summarise(run: Any, input: Any) -> Any:
    return {"length": len(input["text"]), "id": run.id}


def test_a_submitted_run_is_done_by_a_worker(opener: Any) -> None:
    store = opener()
    run = store.submit("summarise", {"text": "hello"}, id="one")
    assert (run.id, run.status, run.task, run.input) == ("one", "ready", "summarise", {"text": "hello"})
    assert store.submit("summarise", {"text": "other"}, id="one").input == {"text": "hello"}
    with pytest.raises(backtrail.InvalidInput, match="summarise"):
        store.submit("other", id="one")
    other = store.submit("summarise", {"text": "hi"})
    assert opener().work({"summarise": summarise}, workers=2, drain=True) == 2
    assert store.run("one").outcome().result == {"length": 5, "id": "one"}
    assert store.run(other.id).outcome().status == "finished"
    assert store.submit("summarise", {"text": "hello"}, id="one").status == "finished"
    assert store.work({"summarise": summarise}, drain=True) == 0


def test_a_worker_takes_only_runs_of_its_tasks_that_were_submitted(store: Any) -> None:
    store.submit("mine", id="a")
    store.submit("theirs", id="b")
    with suppress(ZeroDivisionError), store.run("by hand", task="mine") as run:
        run.step("s", lambda: 1)
        run.step("t", lambda: 1 / 0)
    assert store.work({"mine": lambda run, input: None}, drain=True) == 1
    assert {info.id: info.status for info in store.runs(status="all")} == {
        "a": "finished",
        "b": "ready",
        "by hand": "failed",
    }


def test_a_worker_goes_on_with_answered_and_due_runs(store: Any, later: Any) -> None:
    calls: list[str] = []

    def sync_task(run: Any, input: Any) -> Any:
        calls.append("task")
        run.sleep("an hour", 3600)
        return run.ask("ok?", "?", schema=bool)

    async def async_task(run: Any, input: Any) -> Any:
        calls.append("task")
        await run.sleep("an hour", 3600)
        return await run.ask("ok?", "?", schema=bool)

    task = async_task if hasattr(store, "loop") else sync_task
    store.submit("t", id="r", at=dt.datetime.now(dt.UTC) + dt.timedelta(hours=1))
    assert store.runs()[0].status == "sleeping"
    assert store.work({"t": task}, drain=True) == 0
    later(3601)
    assert store.work({"t": task}, drain=True) == 1
    assert store.runs()[0].status == "sleeping"
    later(3601)
    assert store.work({"t": task}, drain=True) == 1
    assert store.runs()[0].status == "waiting"
    assert store.work({"t": task}, drain=True) == 0
    store.answer("r", "ok?", True)
    assert store.work({"t": task}, drain=True) == 1
    assert store.run("r").outcome().result is True
    assert len(calls) == 3


def test_a_run_that_its_worker_left_behind_is_found_among_many_that_are_running(store: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("backtrail.run.work_core._PAGE", 4)
    store.submit("t", 1, id="left")
    with suppress(KeyboardInterrupt), store.run("left") as run:
        run.step("x", int)
        raise KeyboardInterrupt
    for number in range(11):
        store.run(f"r{number}").checkpoint()
    assert store.work({"t": lambda run, given: given}, drain=True) == 1
    assert store.run("left").outcome().status == "finished"


def test_a_ready_run_is_found_behind_any_number_of_ready_runs_of_other_tasks(store: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("backtrail.run.work_core._PAGE", 2)
    store.submit("t", 1, id="ours")
    for number in range(13):
        store.submit("other", number)
    assert store.work({"t": lambda run, given: given}, drain=True) == 1


def test_a_run_that_failed_waits_until_it_is_submitted_again(store: Any) -> None:
    failing = [True]

    def task(run: Any, input: Any) -> str:
        if failing[0]:
            raise TimeoutError("no answer")
        return "done"

    store.submit("t", id="r")
    assert store.work({"t": task}, drain=True) == 1
    assert str(store.run("r").outcome().error) == "TimeoutError: no answer"
    assert store.work({"t": task}, drain=True) == 0
    failing[0] = False
    assert store.resubmit("r").status == "ready"
    assert store.work({"t": task}, drain=True) == 1
    assert store.run("r").outcome().result == "done"
    with pytest.raises(backtrail.InvalidInput, match="finished"):
        store.resubmit("r")
    with pytest.raises(backtrail.ThreadNotFound):
        store.resubmit("nobody")


def test_bad_arguments_of_work_and_submit_are_refused(store: Any) -> None:
    for bad in ({}, None, {"t": 3}, {"": int}, [("t", int)]):
        with pytest.raises(backtrail.InvalidInput):
            store.work(bad)
    for bad in ({"workers": 0}, {"workers": 1.5}, {"grace": -1}):
        with pytest.raises(backtrail.InvalidInput):
            store.work({"t": int}, **bad)
    for bad in (("",), (3,), ("t", object()), ("t", 1, ""), ("t", 1, "r", dt.datetime(2030, 1, 1))):
        with pytest.raises(backtrail.InvalidInput):
            store.submit(*bad)
    store.session("s").add("user", "x")
    with pytest.raises(backtrail.InvalidInput, match="session"):
        store.submit("t", id="s")
    assert store.runs(status="all") == []


def test_stopping_leaves_a_run_ready_before_its_next_step(tmp_path: Path) -> None:
    stop = threading.Event()
    done: list[int] = []

    def task(run: backtrail.Run, input: Any) -> str:
        for number in range(5):
            run.step("s", done.append, number, key=number)
            if number == 1:
                stop.set()
                time.sleep(0.05)
        return "done"

    with backtrail.open(tmp_path / "s.db") as store:
        store.submit("t", id="r")
        assert store.work({"t": task}, stop=stop, grace=30) == 1
        assert done == [0, 1]
        assert store.runs()[0].status == "ready"
        assert store.work({"t": task}, drain=True) == 1
    assert done == [0, 1, 2, 3, 4]


def test_an_async_worker_is_stopped_by_its_event_and_by_cancellation() -> None:
    async def main() -> None:
        store = await backtrail.aio.open("memory:")
        stop = asyncio.Event()

        async def long() -> None:
            stop.set()
            await asyncio.sleep(0.05)

        async def task(run: Any, input: Any) -> None:
            await run.step("long", long)
            await run.step("never", asyncio.sleep, 0)

        await store.submit("t", id="r")
        assert await store.work({"t": task}, stop=stop) == 1
        assert [step.name for step in await store.run("r").steps()] == ["long"]
        assert (await store.runs())[0].status == "ready"
        working = asyncio.create_task(store.work({"t": lambda run, input: None}))
        while (await store.run("r").outcome()).status != "finished":
            await asyncio.sleep(0.01)
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working

    asyncio.run(main())


def work_in_child(url: str, log: Path, task: Callable[[Any, Any], Any], workers: int = 2) -> Child:
    """A process that works until it is stopped."""

    def work(send: Callable[[bytes], None]) -> None:
        with backtrail.open(url) as store:
            send(b"!")
            store.work({"t": task}, workers=workers)
        note(log, "stopped")

    child = Child(work)
    assert child.read(1) == b"!"
    return child


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


@pytest.mark.slow
def test_several_processes_do_each_run_once_and_stop_on_sigterm(tmp_path: Path) -> None:
    url, log = str(tmp_path / "s.db"), tmp_path / "log"

    def task(run: backtrail.Run, input: Any) -> None:
        run.step("effect", note, log, run.id)

    with backtrail.open(url) as store:
        for number in range(60):
            store.submit("t", id=f"r{number}")
        children = [work_in_child(url, log, task) for _ in range(3)]
        wait_until(lambda: len(store.runs(status="finished")) == 60)
        for child in children:
            os.kill(child.pid, signal.SIGTERM)
        for child in children:
            child.end()
    lines = log.read_text().split()
    assert sorted(line for line in lines if line != "stopped") == sorted(f"r{n}" for n in range(60))
    assert lines.count("stopped") == 3


@pytest.mark.slow
@pytest.mark.linux
def test_the_runs_of_a_killed_worker_are_handed_on_and_no_step_is_done_twice(tmp_path: Path) -> None:
    url, log = str(tmp_path / "s.db"), tmp_path / "log"

    def task(run: backtrail.Run, input: Any) -> None:
        for number in range(3):
            run.step("effect", note, log, f"{run.id}:{number}", key=number)
            note(log, f"after {run.id}:{number}")
            if run.id == "r0" and number == 1 and (tmp_path / "first").exists():
                (tmp_path / "first").unlink()
                signal.pause()

    (tmp_path / "first").touch()
    with backtrail.open(url) as store:
        store.submit("t", id="r0")
        child = work_in_child(url, log, task)
        wait_until(lambda: not (tmp_path / "first").exists())
        child.kill()
        other = work_in_child(url, log, task)
        wait_until(lambda: store.run("r0").outcome().status == "finished")
        other.kill()
    assert log.read_text().split("\n").count("r0:0") == 1
    assert log.read_text().split("\n").count("r0:1") == 1
    assert log.read_text().split("\n").count("r0:2") == 1


@pytest.mark.slow
@pytest.mark.linux
def test_a_worker_that_was_stopped_for_longer_than_its_lease_cannot_record(tmp_path: Path, monkeypatch: Any) -> None:
    from backtrail.run import heartbeat, lease

    monkeypatch.setattr(lease, "TTL", 0.3)
    monkeypatch.setattr(heartbeat, "TTL", 90.0)  # it is not stopped in a renewal, with the lock of the file
    url, log = str(tmp_path / "s.db"), tmp_path / "log"

    def task(run: backtrail.Run, input: Any) -> None:
        run.step("first", note, log, "first")
        note(log, "returned")
        time.sleep(0.5)
        try:
            run.step("second", os.getpid)
        except backtrail.LockLost:
            note(log, "fenced")
            raise

    with backtrail.open(url) as store:
        store.submit("t", id="r")
        child = work_in_child(url, log, task, workers=1)
        wait_until(lambda: log.exists() and "returned" in log.read_text())
        os.kill(child.pid, signal.SIGSTOP)
        time.sleep(0.6)
        with store.run("r", timeout=30) as run:
            monkeypatch.setattr(lease, "TTL", 60.0)
            run.step("first", note, log, "first")
            run.step("second", os.getpid)
            os.kill(child.pid, signal.SIGCONT)
            wait_until(lambda: "fenced" in log.read_text())
        child.kill()
        assert [step.result for step in store.run("r").steps()][1] == os.getpid()
    assert log.read_text().split("\n").count("first") == 1
