"""How a block of a run is left: with steps that still go on, with a run inside that waits, by `finish`, by an exit."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

import backtrail
import backtrail.aio
from backtrail.run import work_core

# -- steps that end later ----------------------------------------------------------------------------------------------


def test_a_step_that_ends_after_its_block_was_left_is_recorded_and_the_question_still_waits() -> None:
    store = backtrail.open("memory:")
    begun, end = threading.Event(), threading.Event()

    def slow() -> str:
        begun.set()
        assert end.wait(30)
        return "slow"

    with suppress(backtrail.Suspended), store.run("r") as run:
        thread = threading.Thread(target=lambda: run.step("slow", slow))
        thread.start()
        assert begun.wait(30)
        run.ask("ok?", "?")
    end.set()
    thread.join()
    assert [(one.name, one.result) for one in store.run("r").steps()] == [("slow", "slow")]
    assert [info.status for info in store.runs()] == ["waiting"]
    assert [one.name for one in store.pending()] == ["ok?"]
    store.answer("r", "ok?", True)
    with store.run("r") as run:
        assert run.step("slow", slow) == "slow"
        assert run.ask("ok?", "?") is True


def test_a_task_that_goes_on_after_a_question_of_its_group_is_recorded() -> None:
    async def program() -> None:
        async with await backtrail.aio.open("memory:") as store:
            end = asyncio.Event()

            async def slow() -> str:
                await end.wait()
                return "slow"

            with suppress(backtrail.Suspended):
                async with store.run("r") as run:
                    step = asyncio.ensure_future(run.step("slow", slow))
                    await asyncio.gather(step, run.ask("ok?", "?"))
            end.set()
            assert await step == "slow"
            assert [(one.name, one.result) for one in await store.run("r").steps()] == [("slow", "slow")]
            assert [one.name for one in await store.pending()] == ["ok?"]

    asyncio.run(program())


def test_a_step_that_ends_while_another_owner_has_the_run_is_not_recorded() -> None:
    store = backtrail.open("memory:")
    begun, end = threading.Event(), threading.Event()
    lost: list[BaseException] = []

    def slow() -> str:
        begun.set()
        assert end.wait(30)
        return "slow"

    def late(run: Any) -> None:
        try:
            run.step("slow", slow)
        except backtrail.LockLost as error:
            lost.append(error)

    with suppress(backtrail.Suspended), store.run("r") as run:
        thread = threading.Thread(target=late, args=(run,))
        thread.start()
        assert begun.wait(30)
        run.sleep("an hour", 3600)
    with store.run("r") as other:
        end.set()
        thread.join()
        assert len(lost) == 1
        other.step("own", int)  # nothing was written under it
    assert [one.name for one in store.run("r").steps()] == ["an hour", "own"]


def test_a_question_that_waits_in_place_ends_with_its_block_and_a_finished_run_stays_finished() -> None:
    store = backtrail.open("memory:")
    told: list[BaseException] = []

    def ask(run: Any) -> None:
        try:
            run.ask("ok?", "?", wait=30)
        except backtrail.StepMisused as error:
            told.append(error)

    with store.run("r") as run:
        thread = threading.Thread(target=ask, args=(run,))
        thread.start()
        while not store.pending():
            time.sleep(0.001)
    thread.join()
    assert "was left" in str(told[0])
    assert store.run("r").outcome().status == "finished"
    assert store.pending() == []


# -- an answer that comes meanwhile ------------------------------------------------------------------------------------


def test_an_answer_that_comes_just_before_a_block_is_left_is_taken_in(opener: Any) -> None:
    store = opener()
    for end in ("suspended", "finished", "failed"):
        with suppress(backtrail.Suspended, ZeroDivisionError), store.run(end) as run:
            with suppress(backtrail.Suspended):
                run.ask("ok?", "?")
            run.step("s", int)
            opener().answer(end, "ok?", "yes")
            if end == "suspended":
                run.sleep("an hour", 3600)
            if end == "failed":
                raise ZeroDivisionError
    assert {info.id: info.status for info in store.runs(status="all")} == {
        "suspended": "sleeping",
        "finished": "finished",
        "failed": "failed",
    }


# -- groups ------------------------------------------------------------------------------------------------------------


def test_a_run_of_which_one_task_waits_and_another_failed_has_failed(opener: Any) -> None:
    store = opener()
    with suppress(BaseExceptionGroup), store.run("r") as run:
        with pytest.raises(backtrail.Suspended) as waits:
            run.ask("ok?", "?")
        raise BaseExceptionGroup("of tasks", [waits.value, ValueError("bad")])
    assert (store.run("r").outcome().status, store.pending()) == ("failed", [])


# -- finish ------------------------------------------------------------------------------------------------------------


def test_a_run_that_was_deleted_by_its_program_stays_deleted(opener: Any) -> None:
    store = opener()
    with store.run("r") as run:
        run.step("s", int)
        run.finish(delete=True)
        run.result = "a result of nothing"
    assert not store.run("r").exists()


def test_a_task_that_deletes_its_run_and_returns_leaves_nothing() -> None:
    store = backtrail.open("memory:")

    def task(run: Any, given: Any) -> str:
        run.finish(delete=True)
        return "a result of nothing"

    store.submit("t", id="r")
    assert store.work({"t": task}, drain=True) == 1
    assert store.runs(status="all") == []


@pytest.mark.parametrize("delete", [False, True])
def test_a_step_after_the_end_of_its_run_is_refused(delete: bool) -> None:
    store = backtrail.open("memory:")
    with store.run("r") as run:
        run.step("a", int)
        run.finish("done", delete=delete)
        with pytest.raises(backtrail.StepMisused, match="after the end"):
            run.step("b", int)


def test_a_handle_that_is_inside_of_its_run_does_not_enter_it_again(opener: Any) -> None:
    run = opener().run("r")
    with run:
        with pytest.raises(backtrail.InvalidInput, match="inside of run 'r' already"):
            run.__enter__()
        assert run.step("s", int) == 0
    assert run.outcome().status == "finished"


# -- exits -------------------------------------------------------------------------------------------------------------


def test_a_task_that_exits_has_failed_and_its_worker_goes_on(opener: Any) -> None:
    store = opener()

    def leave(run: Any, given: Any) -> None:
        sys.exit("no licence")

    async def leave_async(run: Any, given: Any) -> None:
        sys.exit("no licence")

    async def cancel(run: Any, given: Any) -> None:
        raise asyncio.CancelledError

    is_async = hasattr(store, "loop")
    tasks = {
        "leave": leave_async if is_async else leave,
        "cancel": cancel if is_async else leave,
        "stay": lambda run, given: "stayed",
    }
    for name in tasks:
        store.submit(name, id=name)
    assert store.work(tasks, workers=1, drain=True) == 3
    error = store.run("leave").outcome().error
    assert (error.type, error.message) == ("SystemExit", "no licence")
    assert store.run("cancel").outcome().status == "failed"
    assert store.run("stay").outcome().result == "stayed"


# -- runs inside of runs -----------------------------------------------------------------------------------------------


def test_a_run_whose_inner_run_waits_sleeps_and_goes_on_after_the_answer(
    opener: Any, later: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work_core, "_MARKED_AFTER", 3600.0)  # it is saved only where it waits, however slow this is
    store = opener()
    calls: list[str] = []

    def inner() -> Any:
        calls.append("inner")
        if len(calls) > 3:
            raise RecursionError("it is tried again and again")
        with store.run("inner", timeout=30) as run:
            return run.ask("ok?", "?", expires=86_400)

    async def inner_async() -> Any:
        calls.append("inner")
        if len(calls) > 3:
            raise RecursionError("it is tried again and again")
        async with store.inner.run("inner", timeout=30) as run:
            return await run.ask("ok?", "?", expires=86_400)

    is_async = hasattr(store, "loop")
    function = inner_async if is_async else inner
    tasks = {"outer": lambda run, given: run.step("inner", function)}
    store.submit("outer", id="outer")
    assert store.work(tasks, drain=True) == 1
    [outer] = store.runs(status="sleeping")
    assert outer.id == "outer"
    assert store.due() == []
    later(3600)
    rows = len(store.run("outer").history())
    assert [info.id for info in store.due()] == ["outer"]
    assert store.work(tasks, drain=True) == 1  # nothing has come: it is tried once, and not saved again
    assert len(store.run("outer").history()) == rows
    store.answer("inner", "ok?", "yes")
    assert store.work(tasks, drain=True) == 1
    assert (store.run("outer").outcome().result, calls) == ("yes", ["inner"] * 3)


def test_a_run_whose_inner_run_sleeps_wakes_with_it(opener: Any, later: Any) -> None:
    store = opener()

    def program() -> None:
        with store.run("outer") as outer:
            outer.step("inner", inner_async if hasattr(store, "loop") else inner)

    def inner() -> None:
        with store.run("inner") as run:
            run.sleep("an hour", 3600)

    async def inner_async() -> None:
        async with store.inner.run("inner") as run:
            await run.sleep("an hour", 3600)

    with pytest.raises(backtrail.Suspended):
        program()
    due = {info.id: info.due_at for info in store.runs(status="sleeping")}
    assert due["outer"] == due["inner"]
    later(3601)
    program()
    assert [info.status for info in store.runs(status="all")] == ["finished", "finished"]
