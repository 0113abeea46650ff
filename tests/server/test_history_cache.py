"""The inspector's histories: what is kept and extended is what a new reading gives, and an append costs an append."""

from __future__ import annotations

import random
from typing import Any

import pytest

import backtrail
from backtrail.server import history_cache, requests
from backtrail.server.handlers import Handlers
from backtrail.server.history_cache import HistoryCache, SizeChart


def _handlers(store: backtrail.Store) -> Handlers:
    return Handlers(store, name="test", read_only=True)


def _shown(handlers: Handlers, thread: str) -> list[Any]:
    pages = [requests.HistoryRequest(thread=thread, limit=500, trail=trail) for trail in (False, True)]
    shown = [handlers.history(page) | {"layout": 0} for page in pages]  # each reading has a number of its own
    return [*shown, handlers.sizes(requests.ThreadRequest(thread=thread))]


def _change(store: backtrail.Store, thread: backtrail.Thread[Any], choice: random.Random) -> None:
    what = choice.choice(["append"] * 6 + ["rewind", "undo", "annotate", "delete", "fork", "save", "retain", "again"])
    any_one = choice.choice(thread.history(all=True))
    if what == "append":
        for number in range(choice.randint(1, 4)):
            thread.append("items", [number])
    elif what == "rewind":
        thread.rewind(any_one)
    elif what == "undo":
        try:
            thread.undo()
        except backtrail.BacktrailError:
            return
    elif what == "annotate":
        thread.annotate(any_one, label=f"label {choice.random()}")
    elif what == "delete" and any_one != thread.head:
        thread.delete(any_one)
    elif what == "fork":
        thread.fork(at=any_one)
    elif what == "save":
        thread.save({"items": []}, expect=thread.head.id if thread.head else None)
    elif what == "retain":
        store.prune(backtrail.Retention(keep_last=20))
    elif what == "again":
        thread.delete()
        thread.append("items", ["again"])


@pytest.mark.parametrize("seed", range(6))
def test_what_is_kept_is_what_a_new_reading_gives(seed: int) -> None:
    choice = random.Random(seed)
    with backtrail.open("memory:") as store:
        thread: backtrail.Thread[Any] = store.thread("t")
        thread.append("items", [0])
        kept = _handlers(store)
        for _ in range(40):
            for _ in range(choice.randint(1, 3)):
                _change(store, thread, choice)
            assert _shown(kept, "t") == _shown(_handlers(store), "t")


@pytest.mark.parametrize("scheme", ["memory:", "sqlite:{}/a.db?durability=normal"])
def test_a_change_of_a_long_thread_reads_the_change(
    scheme: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with backtrail.open(scheme.format(tmp_path)) as store:
        thread: backtrail.Thread[Any] = store.thread("t")
        for number in range(2000):
            thread.append("items", [number])
        histories = HistoryCache(store, lambda name: next(iter(store.threads(name))))
        with histories.read("t") as history:
            assert len(history.graph) == history.chart.steps == 2000
        engine, read = type(store._core.context.engine), 0
        original = engine.steps

        async def counting(self: Any, *args: Any, **options: Any) -> Any:
            nonlocal read
            found = await original(self, *args, **options)
            read += len(found)
            return found

        monkeypatch.setattr(engine, "steps", counting)
        for number in range(10):
            thread.append("items", [number])
            with histories.read("t") as history:
                assert len(history.graph) == history.chart.steps == 2001 + number
                assert history.graph.head == thread.history(limit=1)[0].id
        assert read < 10 * 100


def test_histories_are_kept_up_to_a_number_of_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_cache, "_MAX_CHECKPOINTS", 25)
    with backtrail.open("memory:") as store:
        for name in "abc":
            for number in range(10):
                store.thread(name).append("items", [number])
        histories = HistoryCache(store, lambda name: next(iter(store.threads(name))))
        for name in "abc":
            with histories.read(name):
                pass
        assert [("a", False) in histories._entries, ("c", False) in histories._entries] == [False, True]
        assert histories._entries.cost == 20


def test_a_chart_of_many_steps_has_few_points_and_the_largest_of_them() -> None:
    with backtrail.open("memory:") as store:
        thread: backtrail.Thread[Any] = store.thread("t")
        for number in range(1000):
            thread.append("items", ["x" * (5000 if number == 777 else 5)])
        checkpoints = thread.history()
    chart = SizeChart(checkpoints[:300])
    assert [point["step"] for point in chart.points()] == list(range(1, 301))
    chart.extend(checkpoints[300:])
    points = chart.points()
    assert 200 <= len(points) <= 400
    assert max(points, key=lambda point: point["written"])["step"] == 778
    assert points == SizeChart(checkpoints).points()
    assert (chart.steps, chart.written) == (1000, sum(c.written for c in checkpoints))
    assert chart.size == checkpoints[-1].size
