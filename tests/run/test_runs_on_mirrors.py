"""Durable runs on a mirror: statuses, questions, answers and workers, also while one side is away."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

import backtrail
from fix_pairs import Pair


def program(store: Any, calls: list[str]) -> Any:
    with store.run("r", task="t") as run:
        run.step("before", lambda: calls.append("before"))
        answer = run.ask("ok?", "Shall I pay?", schema=bool, about={"amount": 12})
        run.result = run.step("after", lambda: calls.append("after") or f"paid: {answer}")
    return run.result


def statuses(store: Any) -> dict[str, str]:
    return {info.id: info.status for info in store.runs(status="all")}


@pytest.mark.parametrize("replication", ["sync", "async"])
def test_statuses_questions_and_answers_are_on_both_sides(pair: Pair, replication: str) -> None:
    store, calls = pair.open(replication=replication), list[str]()
    with pytest.raises(backtrail.Suspended):
        program(store, calls)
    store.submit("later", 1, id="asleep", at=3600)
    store.submit("now", 1, id="ready")
    pair.until(store, lambda status: not status.lag_records and not status.behind)
    both = [pair.alone(side) for side in (pair.primary, pair.replica)]
    for one in both:
        assert statuses(one) == {"r": "waiting", "asleep": "sleeping", "ready": "ready"}
        assert [(question.run_id, question.about) for question in one.pending()] == [("r", {"amount": 12})]
    store.answer("r", "ok?", True, by="ada")
    pair.until(store, lambda status: not status.lag_records and not status.behind)
    assert [one.pending() for one in both] == [[], []]
    assert program(store, calls) == "paid: True"
    pair.until(store, lambda status: not status.lag_records and not status.behind)
    pair.equal()
    assert [statuses(one)["r"] for one in both] == ["finished", "finished"]
    assert calls == ["before", "after"]


@pytest.mark.parametrize("replication", ["sync", "async"])
def test_a_question_is_answered_on_the_other_side_if_its_own_went_away_meanwhile(pair: Pair, replication: str) -> None:
    store, calls = pair.open(replication=replication), list[str]()
    with pytest.raises(backtrail.Suspended):
        program(store, calls)
    pair.until(store, lambda status: not status.lag_records and not status.behind)
    pair.primary.up = False
    [question] = store.pending()
    store.answer("r", "ok?", True, by="ada", digest=question.digest)
    assert store.status().active == "replica"
    with pytest.raises(backtrail.AlreadyAnswered):
        store.answer("r", "ok?", False)
    pair.primary.up = True
    pair.until(store, lambda status: status.active == "primary" and not status.behind and not status.lag_records)
    with pytest.raises(backtrail.AlreadyAnswered):
        store.answer("r", "ok?", False)
    assert program(store, calls) == "paid: True"
    assert calls == ["before", "after"]
    pair.until(store, lambda status: not status.lag_records and not status.behind)
    pair.equal()


def test_a_step_that_returned_is_not_done_again_on_the_other_side(pair: Pair) -> None:
    store, calls = pair.open(), list[str]()

    def attempt(leave: bool) -> str:
        with store.run("r") as run:
            run.step("one", lambda: calls.append("one"))
            if leave:
                pair.primary.up = False
            run.step("two", lambda: calls.append("two"))
        return "done"

    try:
        attempt(leave=True)
    except (backtrail.LockLost, backtrail.Unavailable):  # the lease was on the side that went away
        assert attempt(leave=False) == "done"
    assert calls.count("one") == 1
    assert store.run("r").outcome().status == "finished"
    pair.primary.up = True
    pair.until(store, lambda status: status.active == "primary" and not status.behind and not status.lag_records)
    pair.equal()


def test_of_two_processes_that_met_on_two_sides_one_owns_the_run(pair: Pair) -> None:
    """The lease of the first was on the side that went away; the second takes the run on the other side. From then on
    the first can write nothing, although nobody has written since."""
    first, second = pair.open(failback_after=60.0), pair.open(failback_after=60.0)
    refused: list[str] = []
    with suppress(backtrail.LockLost), first.run("r") as one:
        one.step("a", int)
        pair.primary.up = False
        with second.run("r") as two:
            try:
                one.step("b", int)
            except backtrail.LockLost:
                refused.append("b")
            two.step("b", int)
        one.step("c", int)
        refused.append("nothing")
    assert refused == ["b"]
    assert [step.name for step in second.run("r").steps()] == ["a", "b"]


@pytest.mark.parametrize("replication", ["sync", "async"])
def test_workers_on_a_mirror_do_each_run_once_and_go_on_after_a_failover(pair: Pair, replication: str) -> None:
    store = pair.open(replication=replication)
    returned: list[int] = []
    repeated: list[int] = []

    def task(run: Any, number: int) -> Any:
        def effect() -> int:
            if number in returned:
                repeated.append(number)
            return number

        if pair.api == "blocking":
            run.step("effect", effect)
            return finish(number)

        async def awaited() -> int:
            await run.step("effect", effect)
            return finish(number)

        return awaited()

    def finish(number: int) -> int:
        returned.append(number)
        if number == 4:
            pair.primary.up = False
        return number * number

    for number in range(9):
        store.submit("t", number, id=f"r{number}")
    pair.until(store, lambda status: not status.lag_records and not status.behind)
    for _ in range(50):
        store.work({"t": task}, drain=True)
        if all(status == "finished" for status in statuses(store).values()):
            break
    assert store.status().active == "replica"
    assert {info.id: store.run(info.id).outcome().result for info in store.runs(status="finished")} == {
        f"r{number}": number * number for number in range(9)
    }
    if replication == "sync":
        assert repeated == []
    pair.primary.up = True
    pair.until(store, lambda status: status.active == "primary" and not status.behind and not status.lag_records)
    pair.equal()
