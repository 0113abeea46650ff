"""Durable runs over HTTP: the timeline, what waits, the first answer, another try, a fork before a step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import backtrail
from fix_inspector import Inspector, inspector


def _look_and_ask(run: backtrail.Run) -> None:
    run.step("look", lambda: {"sum": 42})
    run.ask("pay?", "Pay 42?", {"type": "boolean"}, about={"sum": 42})


@pytest.fixture
def runs() -> Iterator[Inspector]:
    """A run that waits for an answer, and one that failed."""
    with backtrail.open("memory:") as store:
        with pytest.raises(backtrail.Suspended), store.run("pay", task="pay the bill") as run:
            _look_and_ask(run)
        with pytest.raises(ZeroDivisionError), store.run("broken") as run:
            run.step("divide", lambda: 1 // 0)
        store.thread("plain").save({"n": 1})
        with inspector(store) as served:
            yield served


def test_a_run_is_a_timeline_with_what_it_waits_for(runs: Inspector) -> None:
    found = runs.get("run", thread="pay")
    assert (found["status"], found["task"]) == ("waiting", "pay the bill")
    assert [(step["name"], step["status"], step["result"]) for step in found["steps"]] == [
        ("look", "done", {"sum": 42})
    ]
    (question,) = found["questions"]
    assert (question["name"], question["question"], question["about"]) == ("pay?", "Pay 42?", {"sum": 42})
    assert runs.get("pending")["questions"] == [question]
    assert runs.get("run", thread="plain")["status"] is None
    assert [one["id"] for one in runs.get("threads", waiting=True)["threads"]] == ["pay"]


def test_a_step_shows_what_its_model_used_and_no_cost_of_anything_else() -> None:
    response = {"model": "m-1", "content": "hi", "usage": {"input_tokens": 900, "output_tokens": 40}, "cost": 0.02}
    with backtrail.open("memory:") as store:
        with store.run("r") as run:
            run.step("ask the model", lambda: response)
            run.step("look up the price", lambda: {"item": "chair", "cost": 80})
        with inspector(store) as served:
            model, price = served.get("run", thread="r")["steps"]
    assert (model["model"], model["tokens"], model["cost"]) == ("m-1", {"input": 900, "cached": 0, "output": 40}, 0.02)
    assert (price["model"], price["tokens"], price["cost"]) == (None, None, None)


def test_the_first_answer_counts_and_must_fit(runs: Inspector) -> None:
    (question,) = runs.get("pending")["questions"]
    given = {"thread": "pay", "name": "pay?", "digest": question["digest"]}
    for wrong, status in (({"value": "perhaps"}, 400), ({"value": True, "digest": "0" * 64}, 409)):
        assert runs.client.post("/api/v1/answer", json={**given, **wrong}).status_code == status
    answered = runs.post("answer", **given, value=True, by="ada")
    assert (answered["status"], answered["steps"][-1]["by"]) == ("ready", "ada")
    assert runs.client.post("/api/v1/answer", json={**given, "value": False}).status_code in (404, 409)


def test_a_failed_run_is_made_ready_again_and_a_run_forked_before_a_step(runs: Inspector) -> None:
    assert runs.get("run", thread="broken")["status"] == "failed"
    assert runs.post("resubmit", thread="broken")["status"] == "ready"
    assert runs.client.post("/api/v1/resubmit", json={"thread": "plain"}).status_code == 400
    made = runs.post("fork_run", thread="pay", step="look", to="again")
    assert made["thread"]["id"] == "again"
    assert runs.get("run", thread="again")["steps"] == []


def test_the_list_of_threads_says_how_runs_stand(runs: Inspector) -> None:
    rows = {row["id"]: row for row in runs.get("threads", describe=True)["threads"]}
    assert (rows["pay"]["status"], rows["pay"]["title"], rows["pay"]["failed"]) == ("waiting", "pay the bill", False)
    assert (rows["broken"]["status"], rows["broken"]["failed"]) == ("failed", True)
    assert rows["plain"]["status"] is None
    assert [row["id"] for row in runs.get("threads", failed=True)["threads"]] == ["broken"]
    assert runs.get("health")["pending"] == 1
