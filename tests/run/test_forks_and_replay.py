"""Forks of runs at a step, and replays of a recording."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import backtrail
import backtrail.aio


def record(store: Any, id: str = "r") -> list[str]:
    """A finished run of three steps and a checkpoint."""
    calls: list[str] = []

    def note(name: str) -> str:
        calls.append(name)
        return f"result of {name}"

    with suppress(backtrail.Suspended), store.run(id, task="t") as run:
        for name in ("a", "b", "c"):
            run.step(name, note, name)
            if name == "b":
                run.checkpoint(label="after b")
        run.result = "the end"
    return calls


def test_a_run_is_forked_before_a_step_and_goes_on_from_there(opener: Any) -> None:
    store = opener()
    assert record(store) == ["a", "b", "c"]
    for step, kept in (("b", ["a"]), (3, ["a", "b"]), (store.run("r").steps()[1], ["a"]), ("a", [])):
        fork = store.run("r").fork(step=step)
        assert (fork.status, [one.name for one in fork.steps()]) == ("ready", kept)
        assert store.run("r").outcome().status == "finished"
    fork = store.run("r").fork("f", step="b", input={"tone": "kind"})
    assert (fork.id, fork.input) == ("f", {"tone": "kind"})
    again: list[str] = []
    with opener().run("f") as run:
        assert run.step("a", again.append, "a") == "result of a"
        run.step("b", again.append, "other")
        run.result = run.input["tone"]
    assert again == ["other"]
    assert store.run("f").outcome().result == "kind"
    assert [one.result for one in store.run("r").steps()] == ["result of a", "result of b", "result of c"]


def test_a_run_is_forked_at_a_checkpoint_or_at_its_end(store: Any) -> None:
    record(store)
    assert [one.name for one in store.run("r").fork(at="after b").steps()] == ["a", "b"]
    whole = store.run("r").fork()
    assert len(whole.steps()) == 3
    assert whole.outcome().result is None
    for bad in ({"step": "nothing"}, {"step": 9}, {"step": 0}, {"step": 1.5}, {"step": "a", "at": 1}):
        with pytest.raises(backtrail.InvalidInput):
            store.run("r").fork(**bad)
    with pytest.raises(backtrail.ThreadNotFound):
        store.run("nobody").fork()


def test_steps_of_one_name_are_forked_at_by_their_number(store: Any) -> None:
    with store.run("r") as run:
        for number in range(3):
            run.step("s", int, number)
    with pytest.raises(backtrail.InvalidInput, match="3 steps"):
        store.run("r").fork(step="s")
    assert len(store.run("r").fork(step=2).steps()) == 1


def test_a_fork_has_the_steps_before_its_own_though_they_ended_together() -> None:
    async def program() -> None:
        async with await backtrail.aio.open("memory:") as store:
            barrier = asyncio.Barrier(4)

            async def work(number: int) -> int:
                await barrier.wait()
                return number

            async with store.run("r") as run:
                await asyncio.gather(*(run.step("s", work, n, key=n) for n in range(4)))
            steps = await store.run("r").steps()
            assert len(await run.history()) < 1 + len(steps)  # some of them are in one row
            for number, step in enumerate(steps):
                fork = await store.run("r").fork(step=step)
                assert await fork.steps() == steps[:number]

    asyncio.run(program())


def test_the_steps_of_a_fork_have_keys_of_their_own(store: Any) -> None:
    keys: list[str] = []

    def pay() -> None:
        keys.append(backtrail.step_key())

    with store.run("r") as run:
        run.step("a", int)
        run.step("pay", pay)
    store.run("r").fork("f", step="pay")
    with store.run("f") as run:
        run.step("a", int)
        run.step("pay", pay)
    assert len(set(keys)) == 2


# -- replay ----------------------------------------------------------------------------------------------------------


def program(run: Any, input: Any, names: str = "abc", result: str = "the end", argument: str = "") -> Any:
    for name in names:
        run.step(name, lambda _: pytest.fail("a replay executes no step"), argument or name)
        if name == "b":
            run.checkpoint(label="after b")
    return result


def test_a_program_that_does_what_was_recorded_replays_without_a_divergence(opener: Any) -> None:
    store = opener()
    record(store)
    before = store.run("r").load()
    if hasattr(store, "loop"):

        async def same(run: Any, input: Any) -> str:
            for name in "abc":
                assert await run.step(name, print, name) == f"result of {name}"
            return "the end"
    else:
        same = program  # type: ignore[assignment]
    found = store.replay("r", same)
    assert (found.ok, found.steps, found.divergence) == (True, 3, None)
    assert "as recorded" in str(found)
    assert store.run("r").load() == before


@pytest.mark.parametrize(
    ("changed", "step", "expected", "got"),
    [
        ({"names": "abx"}, "x", "step 'c'", "step 'x'"),
        ({"names": "xab"}, "x", "step 'a'", "step 'x'"),
        ({"names": "ab"}, "c", "step 'c'", "the end of the program"),
        ({"names": "abcd"}, "d", "the end", "step 'd'"),
        ({"argument": "other"}, "a", "step 'a'", "other arguments"),
        ({"result": "another end"}, "", "the end", "another end"),
    ],
    ids=str,
)
def test_the_first_divergence_is_reported(changed: dict[str, Any], step: str, expected: str, got: str) -> None:
    store = backtrail.open("memory:")
    record(store)
    found = store.replay("r", lambda run, input: program(run, input, **changed))
    assert not found.ok
    assert found.divergence is not None
    assert found.divergence.step == step
    assert expected in found.divergence.expected
    assert got in found.divergence.got


def test_a_replay_cannot_be_hidden_by_the_program(tmp_path: Any) -> None:
    store = backtrail.open("memory:")
    record(store)

    def swallows(run: backtrail.Run, input: Any) -> str:
        with suppress(Exception):
            run.step("new", print)
        return "the end"

    assert not store.replay("r", swallows).ok

    def fails(run: backtrail.Run, input: Any) -> None:
        raise ValueError("a defect")

    assert "ValueError: a defect" in str(store.replay("r", fails).divergence)
    with pytest.raises(backtrail.ThreadNotFound):
        store.replay("nobody", fails)


@pytest.mark.parametrize(
    "harm",
    [
        lambda run: run.finish(delete=True),
        lambda run: run.rewind(1),
        lambda run: run.fork("f"),
        lambda run: run.annotate(1, label="replayed"),
        lambda run: run.thread.save({}),
        lambda run: run.thread.delete(),
    ],
    ids=["delete", "rewind", "fork", "annotate", "save", "delete the thread"],
)
def test_a_replay_writes_nothing_whatever_the_program_does(store: Any, harm: Callable[[Any], Any]) -> None:
    record(store)
    before = store.run("r").load(), store.run("r").history()

    def sync_program(run: Any, given: Any) -> None:
        harm(run)

    async def async_program(run: Any, given: Any) -> None:
        await harm(run)

    assert not store.replay("r", async_program if hasattr(store, "loop") else sync_program).ok
    assert (store.run("r").load(), store.run("r").history()) == before
    assert not store.run("f").exists()


def test_a_run_that_waits_is_replayed_as_far_as_it_is_recorded() -> None:
    store = backtrail.open("memory:")

    def asks(run: backtrail.Run, input: Any) -> Any:
        run.step("a", int)
        run.sleep("z", 0)
        return run.ask("ok?", "?")

    with suppress(backtrail.Suspended), store.run("r") as run:
        asks(run, None)
    assert store.replay("r", asks).ok
    store.answer("r", "ok?", 1)
    assert store.replay("r", asks).ok
    with store.run("r") as run:
        run.result = asks(run, None)
    assert store.replay("r", asks).ok
    failed = store.submit("t", id="f")
    store.work({"t": lambda run, input: run.step("bad", lambda: 1 / 0)}, drain=True)
    assert failed.outcome().status == "failed"
    assert store.replay("f", lambda run, input: run.step("bad", lambda: 1 / 0)).ok
