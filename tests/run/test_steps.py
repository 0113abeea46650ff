"""Steps of a run, on each engine, through the sync and the async facade: done once, handed out ever after."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

import backtrail
import backtrail.aio
from backtrail.adapters.run_steps import require_run


class Boom(Exception):
    """The error that ends a program."""


class Counter:
    """Functions that count their calls."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def double(self, number: int) -> int:
        self.calls.append(number)
        return 2 * number

    def fail(self, times: int, error: Exception) -> str:
        self.calls.append(error)
        if len(self.calls) <= times:
            raise error
        return "at last"


def test_a_step_that_returned_is_handed_out_and_not_called_again(opener: Any) -> None:
    seen = Counter()
    with suppress(Boom), opener().run("r", task="t") as run:
        assert run.step("double", seen.double, 1) == 2
        assert run.step("double", seen.double, 2) == 4
        raise Boom
    with opener().run("r") as run:
        assert [run.step("double", seen.double, number) for number in (1, 2, 3)] == [2, 4, 6]
    assert seen.calls == [1, 2, 3]


def test_a_result_is_saved_before_it_is_returned(opener: Any) -> None:
    store, other = opener(), opener()
    with store.run("r") as run:
        run.step("one", lambda: {"a": [1, (2, 3), b"x"]})
        [step] = other.run("r").steps()
        assert (step.kind, step.name, step.status, step.attempts) == ("step", "one", "done", 1)
        assert step.result == {"a": [1, (2, 3), b"x"]}
        assert store.runs()[0].status == "running"


def test_a_step_is_one_checkpoint_of_the_run(store: Any) -> None:
    with suppress(Boom), store.run("r") as run:
        run.step("one", lambda: 1)
        before = run.thread.step if isinstance(run.thread.step, int) else run.thread.step()
        run.step("two", lambda: 2)
        after = run.thread.step if isinstance(run.thread.step, int) else run.thread.step()
        assert after == before + 1
        raise Boom


def test_the_thousandth_step_writes_no_more_than_the_tenth(store: Any) -> None:
    with store.run("r") as run:
        for number in range(1000):
            run.step("s", lambda: "x" * 1000, key=number)
        written = [checkpoint.written for checkpoint in run.history()]
    assert max(written[500:1000]) <= max(written[5:20]) + 16


def test_a_program_that_uses_checkpoints_goes_on_at_the_last_one(opener: Any) -> None:
    seen = Counter()

    def program(store: Any, fail_at: int | None) -> list[int]:
        with store.run("r") as run:
            while run.iteration < 5:
                run.messages.append(run.step("double", seen.double, run.iteration))
                if run.iteration == fail_at:
                    raise Boom
                run.checkpoint()
            return list(run.messages)

    with pytest.raises(Boom):
        program(opener(), 2)
    assert program(opener(), None) == [0, 2, 4, 6, 8]
    assert seen.calls == [0, 1, 2, 3, 4]


def test_a_program_with_checkpoints_may_start_from_its_top(opener: Any) -> None:
    seen = Counter()

    def program(store: Any, fail: bool) -> list[int]:
        with store.run("r") as run:
            first = run.step("double", seen.double, 1)
            run.checkpoint(label="first")
            second = run.step("double", seen.double, 2)
            run.checkpoint(label="second")
            if fail:
                raise Boom
            return [first, second, run.step("double", seen.double, 3)]

    for _ in range(3):
        with pytest.raises(Boom):
            program(opener(), True)
    assert program(opener(), False) == [2, 4, 6]
    assert seen.calls == [1, 2, 3]


def test_the_same_call_on_both_sides_of_a_checkpoint_needs_a_key(store: Any) -> None:
    seen = Counter()
    with suppress(Boom), store.run("r") as run:
        for _ in range(2):
            run.step("double", seen.double, 1, key=run.iteration)
            run.checkpoint()
        run.step("double", seen.double, 7)
        run.checkpoint()
        with pytest.raises(backtrail.StepAmbiguous, match="key="):
            run.step("double", seen.double, 7)
        raise Boom
    assert seen.calls == [1, 1, 7]


def test_a_step_with_a_key_is_found_in_any_order(opener: Any) -> None:
    seen = Counter()
    with suppress(Boom), opener().run("r") as run:
        for number in (1, 2, 3):
            run.step("double", seen.double, number, key=f"n{number}")
        raise Boom
    with opener().run("r") as run:
        assert [run.step("double", seen.double, number, key=f"n{number}") for number in (3, 1, 2)] == [6, 2, 4]
        result = run.step("list", list, key="l")
        result.append(1)
        assert run.step("list", list, key="l") == []  # what a caller does to a result changes nothing recorded
    assert seen.calls == [1, 2, 3]


def test_a_changed_program_is_told_and_can_do_the_step_again(opener: Any) -> None:
    seen = Counter()
    with suppress(Boom), opener().run("r") as run:
        run.step("double", seen.double, 1)
        raise Boom
    with pytest.raises(backtrail.StepChanged, match=r"'double'.*rerun") as told, opener().run("r") as run:
        run.step("double", seen.double, 2)
    assert (told.value.run_id, told.value.step) == ("r", "double")
    with suppress(Boom), opener().run("r") as run:
        assert run.step("double", seen.double, 2, on_change="rerun") == 4
        raise Boom
    with opener().run("r") as run:
        assert run.step("double", seen.double, 2) == 4
    assert seen.calls == [1, 2]


def test_an_argument_that_cannot_be_saved_counts_by_its_class(opener: Any) -> None:
    seen = Counter()

    def use(client: Any, number: int) -> int:
        return seen.double(number)

    with suppress(Boom), opener().run("r") as run:
        run.step("use", use, threading.Lock(), 1)
        raise Boom
    with opener().run("r") as run:
        assert run.step("use", use, threading.Lock(), 1) == 2
    assert seen.calls == [1]


# -- failures --------------------------------------------------------------------------------------------------------


def test_a_failure_that_the_program_caught_is_raised_again(opener: Any) -> None:
    seen = Counter()

    def program(store: Any, fail: bool) -> str:
        with store.run("r") as run:
            try:
                run.step("fetch", seen.fail, 9, TimeoutError("too slow"))
            except TimeoutError as error:
                other = run.step("other way", lambda: "done")
                if fail:
                    raise Boom from None
                return f"{other}, after: {type(error).__name__}"
            raise AssertionError("never reached")

    with pytest.raises(Boom):
        program(opener(), True)
    assert program(opener(), False) == "done, after: StepFailed"
    assert len(seen.calls) == 1
    [fetch, other] = opener().run("r").steps()
    assert (fetch.status, str(fetch.error)) == ("failed", "TimeoutError: too slow")
    assert other.status == "done"


def test_a_failure_that_ended_the_run_is_tried_again(opener: Any) -> None:
    seen = Counter()
    for _ in range(2):
        with pytest.raises(TimeoutError), opener().run("r") as run:
            run.step("fetch", seen.fail, 2, TimeoutError("too slow"))
    stands = opener().run("r").outcome()
    assert (stands.status, str(stands.error)) == ("failed", "TimeoutError: too slow")
    with opener().run("r") as run:
        assert run.step("fetch", seen.fail, 2, TimeoutError("too slow")) == "at last"
    assert len(seen.calls) == 3
    assert opener().run("r").outcome().error is None


def test_a_recorded_failure_is_what_it_was_if_its_class_is_named(opener: Any) -> None:
    class Own(Exception):
        pass

    def fail(error: Exception) -> None:
        raise error

    def program(store: Any) -> list[str]:
        caught = []
        with store.run("r") as run:
            for n, error in enumerate(
                (Own("own"), Boom("boom"), KeyError("key"), UnicodeDecodeError("x", b"", 0, 1, "y"))
            ):
                try:
                    run.step("fail", fail, error, key=n, raises=(Own,))
                except Own as found:
                    caught.append(f"Own {found}")
                except KeyError as found:
                    caught.append(f"KeyError {isinstance(found, backtrail.StepFailed)}")
                except backtrail.StepFailed as found:
                    caught.append(f"StepFailed {found.type.rpartition('.')[2]} {found.reason}")
                except Exception as found:  # noqa: BLE001  # of any class
                    caught.append(type(found).__name__)
            raise InterruptedError

    with pytest.raises(InterruptedError):
        program(opener())
    store = opener()
    caught: list[str] = []
    with suppress(InterruptedError), store.run("r") as run:
        for n, error in enumerate((Own("own"), Boom("boom"), KeyError("key"), UnicodeDecodeError("x", b"", 0, 1, "y"))):
            try:
                run.step("fail", fail, error, key=n, raises=(Own,))
            except Exception as found:  # noqa: BLE001  # of any class
                caught.append(
                    ",".join(
                        cls.__name__ for cls in (Own, Boom, KeyError, backtrail.StepFailed) if isinstance(found, cls)
                    )
                )
        raise InterruptedError
    assert caught == ["Own,StepFailed", "StepFailed", "KeyError,StepFailed", "StepFailed"]


def test_a_step_is_retried_as_often_as_its_retry_says(store: Any) -> None:
    seen = Counter()
    retry = backtrail.Retry(3, backoff=0.001, on=(TimeoutError,))
    with suppress(Boom), store.run("r") as run:
        assert run.step("fetch", seen.fail, 2, TimeoutError("slow"), retry=retry) == "at last"
        assert run.steps()[0].attempts == 3
        with pytest.raises(TimeoutError):
            run.step("again", Counter().fail, 3, TimeoutError("slow"), retry=retry)
        assert run.steps()[1].attempts == 3
        other = Counter()
        with pytest.raises(ValueError, match="wrong"):
            run.step("other", other.fail, 1, ValueError("wrong"), retry=retry)
        assert len(other.calls) == 1
        raise Boom


# -- at most once ----------------------------------------------------------------------------------------------------


class Died(BaseException):
    """Stands for the death of a process: nothing is recorded after it."""


def die() -> None:
    raise Died


def test_a_step_that_is_done_at_most_once_is_uncertain_after_its_process_died(opener: Any) -> None:
    with suppress(Died), opener().run("r") as run:
        run.step("pay", die, at_most_once=True)
    assert opener().run("r").steps()[0].status == "started"
    seen = Counter()
    for _ in range(2):
        with pytest.raises(backtrail.StepUncertain, match="check=") as told, opener().run("r") as run:
            run.step("pay", lambda: seen.double(1), at_most_once=True)
    with opener().run("r") as run:
        keys = []

        def check() -> backtrail.Done:
            keys.append(backtrail.step_key())
            return backtrail.Done("paid")

        assert run.step("pay", lambda: seen.double(1), at_most_once=True, check=check) == "paid"
        assert run.step("pay again", lambda: seen.double(2), at_most_once=True, check=check) == 4
    assert keys == [told.value.key]
    assert seen.calls == [2]
    assert [step.status for step in opener().run("r").steps()] == ["done", "done"]


def test_a_check_that_finds_nothing_lets_the_step_be_done(opener: Any) -> None:
    with suppress(Died), opener().run("r") as run:
        run.step("pay", die, at_most_once=True)
    with opener().run("r") as run:
        assert run.step("pay", lambda: "paid", at_most_once=True, check=lambda: None) == "paid"
    with suppress(Died), opener().run("s") as run:
        run.step("pay", die, at_most_once=True)
    with pytest.raises(backtrail.InvalidInput, match="Done"), opener().run("s") as run:
        run.step("pay", lambda: "paid", at_most_once=True, check=lambda: "paid")


def test_a_failure_of_a_step_at_most_once_is_final(opener: Any) -> None:
    seen = Counter()
    for _ in range(3):
        with pytest.raises(TimeoutError), opener().run("r") as run:
            run.step("pay", seen.fail, 1, TimeoutError("who knows"), at_most_once=True)
    assert len(seen.calls) == 1


def test_the_idempotency_key_is_the_same_in_each_attempt(opener: Any) -> None:
    keys: list[str] = []

    def fail() -> None:
        keys.append(backtrail.step_key())
        raise TimeoutError

    for _ in range(2):
        with pytest.raises(TimeoutError), opener().run("r") as run:
            run.step("pay", fail, retry=backtrail.Retry(2, 0.001))
    with suppress(TimeoutError), opener().run("another") as run:
        run.step("pay", fail)
    assert len(keys) == 5
    assert len(set(keys[:4])) == 1
    assert keys[4] != keys[0]
    with pytest.raises(backtrail.InvalidInput, match="no step"):
        backtrail.step_key()


# -- bad input -------------------------------------------------------------------------------------------------------


def test_a_step_outside_of_a_run_is_refused(store: Any) -> None:
    run = store.run("r")
    for call in (lambda: run.step("s", int), lambda: run.ask("a", "?"), lambda: run.sleep("z", 1)):
        with pytest.raises(backtrail.StepMisused, match=r"with store\.run"):
            call()
    with run:
        pass
    with pytest.raises(backtrail.StepMisused):
        run.step("s", int)
    assert not store.run("r").exists()


def test_a_result_that_cannot_be_saved_is_refused_and_nothing_is_recorded(store: Any) -> None:
    with suppress(Boom), store.run("r") as run:
        with pytest.raises(backtrail.EncodeError, match=r"step 'lock'.*not recorded"):
            run.step("lock", threading.Lock)
        with pytest.raises(backtrail.EncodeError):
            run.step("deep", lambda: deep(1000))
        assert run.steps() == []
        assert run.step("next", lambda: 1) == 1
        raise Boom
    assert [step.name for step in store.run("r").steps()] == ["next"]


def test_a_result_is_recorded_only_if_the_state_with_it_is_not_nested_too_deep(store: Any) -> None:
    with store.run("r") as run:
        for levels in range(120, 130):
            with suppress(backtrail.EncodeError):
                run.step("deep", deep, levels, key=levels)
    steps = store.run("r").steps()
    assert 0 < len(steps) < 10
    state = store.run("r").load()
    store.thread("copy").save(state)  # it can be saved as a whole, too


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def test_a_result_over_the_size_limit_is_refused_and_nothing_is_recorded(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from backtrail.run import steps

    monkeypatch.setattr(steps, "MAX_RESULT", 1000)
    with suppress(Boom), store.run("r") as run:
        with pytest.raises(backtrail.EncodeError, match=r"step 'large'.*1,0.. bytes"):
            run.step("large", lambda: "x" * 1000)
        assert run.steps() == []
        raise Boom


@pytest.mark.parametrize(
    "bad",
    [
        {"key": 1.5},
        {"key": ""},
        {"key": True},
        {"retry": 3},
        {"on_change": "ignore"},
        {"check": int},
        {"at_most_once": True, "retry": backtrail.Retry(2)},
        {"raises": ("TimeoutError",)},
    ],
    ids=str,
)
def test_bad_options_of_a_step_are_refused(store: Any, bad: dict[str, Any]) -> None:
    with store.run("r") as run, pytest.raises(backtrail.InvalidInput):
        run.step("s", int, **bad)
    assert not store.run("r").exists()


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 600, 7])
def test_bad_names_of_steps_are_refused(store: Any, name: Any) -> None:
    with store.run("r") as run:
        for call in (lambda: run.step(name, int), lambda: run.ask(name, "?"), lambda: run.sleep(name, 1)):
            with pytest.raises((backtrail.InvalidInput, TypeError)):
                call()
    with pytest.raises(backtrail.InvalidInput), store.run("r") as run:
        run.step("s", 3)
    for bad in ({"times": 0}, {"backoff": -1}, {"on": (int,)}):
        with pytest.raises(backtrail.InvalidInput):
            backtrail.Retry(**bad)


def test_a_state_that_was_changed_by_hand_is_an_error_that_names_it(store: Any) -> None:
    for n, bad in enumerate(
        ({"steps": [1]}, {"asked": []}, {"status": "odd"}, {"steps": [{"kind": "step"}]}, {"due": "x"})
    ):
        store.run(f"r{n}").checkpoint()
        store.thread(f"r{n}").update(bad)
        with pytest.raises(backtrail.InvalidInput, match="cannot be read as a run"), store.run(f"r{n}"):
            raise Boom


# -- the lease -------------------------------------------------------------------------------------------------------


def test_a_process_that_lost_the_lease_cannot_record_a_step(opener: Any) -> None:
    slow, other = opener(), opener()
    run = slow.run("r")
    with suppress(Boom), run:
        run.step("first", lambda: 1)
        core = getattr(run, "inner", run)._core
        inner = getattr(run, "inner", run)
        inner._heart.cancel()
        release = core.thread.context.engine.release(core._lease, core._owner)
        slow.loop.run_until_complete(inner._runner(release)) if hasattr(slow, "loop") else _finish(release)
        with suppress(Died), other.run("r") as taken:
            assert taken.step("first", lambda: 2) == 1
            taken.step("second", lambda: 2)
            raise Died
        with pytest.raises(backtrail.LockLost):
            run.step("second", lambda: 3)
        with pytest.raises(backtrail.LockLost):
            run.ask("ok?", "?")
        raise Boom
    assert [step.result for step in other.run("r").steps()] == [1, 2]
    assert other.runs()[0].status == "running"


def _finish(coroutine: Any) -> Any:
    from backtrail.engines.coroutines import finish

    return finish(coroutine)


def test_a_change_by_somebody_else_is_a_conflict_and_not_overwritten(opener: Any) -> None:
    store, other = opener(), opener()
    with suppress(backtrail.Conflict), store.run("r") as run:
        run.step("one", lambda: 1)
        run.step("two", lambda: 2)
        other.thread("r").rewind(-2)
        with pytest.raises(backtrail.Conflict):
            run.step("three", lambda: 3)
    assert len(other.run("r").steps()) == 1


# -- in parallel -----------------------------------------------------------------------------------------------------


def test_steps_in_parallel_threads_are_all_recorded(tmp_path: Any) -> None:
    seen: list[int] = []

    def work(number: int) -> int:
        seen.append(number)
        return number * number

    with backtrail.open(tmp_path / "s.db") as store:
        with suppress(Boom), store.run("r") as run, ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda n: run.step("square", work, n, key=n), range(100)))
            assert found == [n * n for n in range(100)]
            raise Boom
        assert sorted(step.key for step in store.run("r").steps()) == list(range(100))
        with store.run("r") as run, ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda n: run.step("square", work, n, key=n), range(100))) == found
            run.checkpoint()
    assert sorted(seen) == list(range(100))


def test_steps_of_one_name_at_the_same_time_need_a_key(tmp_path: Any) -> None:
    started, go_on = threading.Event(), threading.Event()

    def slow() -> int:
        started.set()
        go_on.wait(30)
        return 1

    with backtrail.open(tmp_path / "s.db") as store, store.run("r") as run:
        thread = threading.Thread(target=lambda: run.step("s", slow))
        thread.start()
        started.wait(30)
        with pytest.raises(backtrail.StepAmbiguous, match=r"another thread or task.*key="):
            run.step("s", int)
        assert run.step("other", int) == 0
        go_on.set()
        thread.join()
        assert run.step("s", int) == 0


def test_steps_in_parallel_tasks_share_commits() -> None:
    async def main() -> None:
        store = await backtrail.aio.open("memory:")

        async def work(number: int) -> int:
            await asyncio.sleep(0)
            return number

        async with store.run("r") as run:
            found = await asyncio.gather(*(run.step("w", work, n, key=n) for n in range(50)))
            assert found == list(range(50))
            assert len(await run.steps()) == 50
            assert len(await run.history()) < 50
            with pytest.raises(backtrail.StepAmbiguous):
                await asyncio.gather(run.step("x", work, 1), run.step("x", work, 2))

    asyncio.run(main())


def test_a_step_inside_a_step_is_refused_but_a_run_inside_is_not() -> None:
    store = backtrail.open("memory:")
    with suppress(backtrail.StepMisused), store.run("r") as run:
        run.step("outer", lambda: run.step("inner", int))
    assert store.run("r").steps() == []
    assert "inside another step" in str(store.run("r").outcome().error)

    def sub() -> int:
        with store.run("sub") as inner:
            inner.result = inner.step("s", lambda: 7)
        return 7

    with store.run("parent") as run:
        assert run.step("sub", sub) == 7
        assert run.step("after", lambda: 8) == 8
    assert store.run("sub").outcome().result == 7


def test_a_tool_in_a_run_that_a_step_began_is_a_step_of_that_run() -> None:
    store = backtrail.open("memory:")

    def tool() -> str:
        with pytest.raises(backtrail.InvalidInput, match="inside a step"):
            require_run("the tool")
        with store.run("inner") as inner:
            assert require_run("the tool") is inner
            return inner.step("call", lambda: "done")

    with store.run("outer") as outer:
        assert require_run("the tool") is outer
        assert outer.step("inner", tool) == "done"


def test_an_async_function_in_a_blocking_run_is_refused_with_what_to_do() -> None:
    store = backtrail.open("memory:")

    async def fetch() -> int:
        return 1

    with store.run("r") as run:
        with pytest.raises(backtrail.InvalidInput, match="aio"):
            run.step("fetch", fetch)
        assert run.steps() == []


def test_an_async_step_inside_a_step_is_refused_but_a_run_inside_is_not() -> None:
    async def main() -> None:
        store = await backtrail.aio.open("memory:")

        async def sub() -> int:
            async with store.run("sub") as inner:
                return await inner.step("s", lambda: 7)

        with suppress(backtrail.StepMisused):
            async with store.run("r") as run:
                await run.step("outer", lambda: run.step("inner", int))
        assert await store.run("r").steps() == []
        assert "inside another step" in str((await store.run("r").outcome()).error)
        async with store.run("parent") as run:
            assert await run.step("sub", sub) == 7
            assert await run.step("after", lambda: 8) == 8

    asyncio.run(main())


def test_a_step_is_a_decorator() -> None:
    store = backtrail.open("memory:")
    seen = Counter()
    for _ in range(2):
        with suppress(Boom), store.run("r") as run:

            @run.step
            def plain(number: int) -> int:
                """Doc."""
                return seen.double(number)

            @run.step("named", key=lambda number: number, retry=backtrail.Retry(2, 0.001))
            def keyed(number: int) -> int:
                return seen.double(number)

            assert plain.__doc__ == "Doc."
            assert [plain(1), plain(2), keyed(3), keyed(3)] == [2, 4, 6, 6]
            raise Boom
    assert seen.calls == [1, 2, 3]
    assert [step.name for step in store.run("r").steps()] == ["plain", "plain", "named"]


def test_async_steps_are_decorated_and_interrupted_without_losing_what_was_saved() -> None:
    async def main() -> None:
        store = await backtrail.aio.open("memory:")
        calls = []

        async def fetch(number: int) -> int:
            calls.append(number)
            await asyncio.sleep(0)
            return number

        async def slow() -> None:
            await asyncio.sleep(60)

        async def program() -> None:
            async with store.run("r") as run:
                wrapped = run.step(fetch)
                assert await wrapped(1) == 1
                await run.step("slow", slow)

        for _ in range(2):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(program(), 0.05)
            assert (await store.run("r").outcome()).status == "running"
        assert calls == [1]

    asyncio.run(main())
