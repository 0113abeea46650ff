"""S1, ductwork: each operation of its session store as a run, and the traps it had."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import backtrail

MESSAGES = [{"role": "user", "content": "fix the build"}, {"role": "assistant", "content": [{"type": "text"}]}]


class Boom(Exception):
    """What a task dies of."""


def test_a_checkpoint_has_run_task_iteration_messages_prompt_tokens_and_time(store: Any) -> None:
    run = store.run("run-1", task="nightly")
    saved = run.checkpoint(messages=MESSAGES, iteration=4, system_prompt="s", input_tokens=10, output_tokens=20)
    again = store.run("run-1")
    again.resume()
    assert (again.id, again.task, again.iteration, again.system_prompt) == ("run-1", "nightly", 4, "s")
    assert (again.messages, again.input_tokens, again.output_tokens) == (MESSAGES, 10, 20)
    assert saved.created_at.tzinfo is not None


def test_an_ad_hoc_run_has_an_empty_task(store: Any) -> None:
    store.run("r").checkpoint()
    assert store.runs()[0].task == ""


def test_model_first_prompt_and_error_count_are_not_lost(opener: Any) -> None:
    opener().run("r").checkpoint(messages=MESSAGES, custom={"model": "m-1", "prompt": "fix the build", "errors": 2})
    run = opener().run("r")
    run.resume()
    assert run.custom == {"model": "m-1", "prompt": "fix the build", "errors": 2}


def test_the_directory_of_a_store_is_made(tmp_path: Path) -> None:
    with backtrail.open(f"jsonl:{tmp_path / 'runs'}") as store:
        store.run("r").checkpoint(messages=MESSAGES)
    with backtrail.open(f"jsonl:{tmp_path / 'runs'}") as store:
        assert [info.id for info in store.runs()] == ["r"]


def test_an_iteration_does_not_write_the_whole_run_again(store: Any) -> None:
    run = store.run("r")
    said = [{"role": "user", "content": "x" * 1000} for _ in range(50)]
    first = run.checkpoint(messages=said)
    second = run.checkpoint(messages=[*said, {"role": "user", "content": "y"}])
    assert second.written < first.written / 20


@pytest.mark.parametrize("id", ["../../etc/passwd", "a/b", "..", "c:\\d", "a:b", "a_b", "é\u0301", "*", "lock:x"])
def test_any_id_is_only_a_name_and_collides_with_no_other(opener: Any, id: str) -> None:
    store = opener()
    store.run(id).checkpoint(messages=[{"id": id}])
    store.run(id + "x").checkpoint(messages=[{"id": "other"}])
    run = opener().run(id)
    run.resume()
    assert run.messages == [{"id": id}]


def test_loading_what_is_not_there_is_an_error(store: Any) -> None:
    with pytest.raises(backtrail.NotFound):
        store.run("never").resume()
    assert not store.run("never").exists()


def test_exists_says_so_and_deleting_twice_is_no_error(store: Any) -> None:
    run = store.run("r")
    run.checkpoint()
    assert run.exists()
    run.finish(delete=True)
    run.finish(delete=True)
    assert not run.exists()


def test_a_run_is_kept_on_failure_and_waits_for_nothing_after_success(store: Any) -> None:
    with suppress(Boom), store.run("r") as run:
        run.checkpoint(messages=MESSAGES)
        raise Boom
    assert store.run("r").exists()
    with store.run("r") as run:
        assert run.messages == MESSAGES
    assert store.runs() == []
    assert [info.id for info in store.runs(status="finished")] == ["r"]
    store.run("r").finish(delete=True)
    assert not store.run("r").exists()


def test_the_list_is_newest_first_and_reads_no_messages(opener: Any) -> None:
    store = opener()
    for number in range(5):
        store.run(f"r{number}").checkpoint(messages=[{"role": "user", "content": "x" * 5000}], input_tokens=number)
    engine = store._core.context.engine

    async def refuse(*args: Any) -> Any:
        raise AssertionError("a listing read messages")

    kept = engine.payloads, engine.rows
    engine.payloads = engine.rows = refuse
    try:
        listed = store.runs()
    finally:
        engine.payloads, engine.rows = kept
    assert [(info.id, info.iteration, info.input_tokens) for info in listed] == [
        (f"r{number}", 1, number) for number in (4, 3, 2, 1, 0)
    ]
