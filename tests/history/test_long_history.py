"""A page of a long history costs a page: counted in the steps that the engine returns, and in calls to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import backtrail
from backtrail.engines.base import Engine
from backtrail.lru import LRU
from backtrail.render.change_summary import ChangeSummary, summarize


class Work:
    """What an engine was asked for."""

    def __init__(self) -> None:
        self.calls = 0
        self.records = 0


@pytest.fixture(scope="module", params=["memory", "sqlite", "jsonl"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[backtrail.Store]:
    place = tmp_path_factory.mktemp("long")
    urls = {"memory": "memory:", "sqlite": f"sqlite:{place}/a.db?durability=normal", "jsonl": f"jsonl:{place}/s"}
    with backtrail.open(urls[request.param]) as opened:
        yield opened


@pytest.fixture(scope="module")
def thread(store: backtrail.Store) -> backtrail.Thread[Any]:
    """A thread of many steps, with an abandoned end and forks."""
    thread: backtrail.Thread[Any] = store.thread("long")
    name = store._core.context.engine.properties.name
    steps = 600 if name == "jsonl" else 3000  # JSONL writes each one to the disk
    for number in range(steps):
        thread.append("items", [number], label="middle" if number == steps // 2 else None)
    thread.rewind(steps - 5)
    for number in range(5):
        thread.append("items", [-number])
    return thread


def counted(store: backtrail.Store, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> Work:
    work = Work()
    engine = type(store._core.context.engine)
    with monkeypatch.context() as patched:
        for name in ("steps", "rows", "locate", "payloads", "row", "branches", "heads"):
            original = getattr(engine, name)

            async def counting(self: Engine, *args: Any, _original: Any = original, **options: Any) -> Any:
                found = await _original(self, *args, **options)
                work.calls += 1
                work.records += len(found) if isinstance(found, list) else 1
                return found

            patched.setattr(engine, name, counting)
        call()
    return work


PAGE = 20


def summaries(thread: backtrail.Thread[Any]) -> list[ChangeSummary]:
    outlines: dict[str, backtrail.Outline] = {}
    return [summarize(thread, one, outlines) for one in thread.history(limit=PAGE, newest_first=True)]


CALLS: dict[str, Callable[[backtrail.Thread[Any]], object]] = {
    "history": lambda thread: thread.history(limit=PAGE),
    "history with what was abandoned": lambda thread: thread.history(limit=PAGE, all=True),
    "a step in the middle": lambda thread: thread.get(thread.step // 2),
    "the outline of a checkpoint": lambda thread: thread.outline(at=thread.history(limit=9)[0]),
    "summaries of a page": summaries,
    "a label": lambda thread: thread.find(label="middle"),
    "the checkpoint of a label": lambda thread: thread.get("middle"),
    "a label that is not there": lambda thread: thread.find(label="nowhere"),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_page_of_a_long_history_costs_a_page(
    store: backtrail.Store, thread: backtrail.Thread[Any], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    work = counted(store, monkeypatch, lambda: CALLS[what](thread))
    assert work.records < 25 * PAGE
    assert work.calls < 25 * PAGE


def test_a_page_of_a_thread_whose_steps_were_nearly_all_abandoned_costs_a_page(
    store: backtrail.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread: backtrail.Thread[Any] = store.thread("abandoned")
    for number in range(600):
        thread.append("items", [number], label="late" if number == 500 else None)
    thread.rewind(3)
    for call in (
        lambda: thread.history(limit=PAGE, all=True),
        lambda: thread.find(label="late"),
        lambda: thread.get("late"),
    ):
        work = counted(store, monkeypatch, call)
        assert work.records < 5 * PAGE
        assert work.calls < 20
    everything = thread.history(all=True)
    assert len(everything) == 600
    for limit in 1, 2, 3, 4, 597, 598, 599, 601:
        assert thread.history(limit=limit, all=True) == everything[-limit:]
    assert [one.step for one in thread.find(label="late")] == [501]
    thread.delete(thread.get("late"))
    assert thread.find(label="late") == []


def test_a_label_is_found_wherever_it_was_given(store: backtrail.Store) -> None:
    thread: backtrail.Thread[Any] = store.thread("labels")
    for number in range(6):
        thread.save({"n": number}, label="saved" if number in (1, 4) else None, tags=["t"] if number == 4 else ())
    thread.annotate(3, label="saved")
    thread.annotate(2, tags=["t"])
    fork = thread.fork("labels fork", at=5)
    assert [one.step for one in thread.find(label="saved")] == [2, 3, 5]
    assert [one.step for one in fork.find(label="saved")] == [2, 3, 5]
    assert [one.step for one in thread.find(label="saved", tag="t")] == [2, 5]
    assert all(one == thread.get(one.id) for one in thread.find(label="saved"))
    thread.annotate(5, label=None)
    thread.delete(2)
    assert [one.step for one in thread.find(label="saved")] == [3]
    thread.save({"n": 7}, parent=thread.get(3), label="beside")
    thread.rewind(1)
    assert [one.step for one in thread.find(label="beside")] == [4]


def test_a_checkpoint_is_found_by_its_id_without_reading_every_id(
    store: backtrail.Store, thread: backtrail.Thread[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = thread.get(thread.step // 3)
    work = counted(store, monkeypatch, lambda: thread.get(wanted.id))
    assert work.records < 60
    assert thread.get(wanted.id) == thread.get(wanted) == wanted


def test_a_page_with_what_was_abandoned_has_the_newest_of_both(thread: backtrail.Thread[Any]) -> None:
    everything = thread.history(all=True)
    for limit in 0, 1, 3, 4, 5, 9, 10, 11, 40:
        assert thread.history(limit=limit, all=True) == everything[len(everything) - limit :]
    assert thread.history(limit=10**6, all=True) == everything


def test_ids_out_of_order_are_found_too(store: backtrail.Store) -> None:
    thread: backtrail.Thread[Any] = store.thread("own ids")
    ids = [f"{number * 7919 % 65536:032x}" for number in range(1, 30)]
    for number, id in enumerate(ids):
        thread.save({"n": number}, id=id)
    assert [thread.load(id)["n"] for id in ids] == list(range(29))


def test_listing_the_forks_of_a_thread_takes_as_many_calls_for_ten_as_for_a_hundred(
    store: backtrail.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread: backtrail.Thread[Any] = store.thread("forked")
    for number in range(10):
        thread.append("items", [number])
    parents = [thread]
    for number in range(10):
        thread.fork(f"few-{number}", at=number + 1)
    few = counted(store, monkeypatch, thread.forks)
    for number in range(90):
        parents.append(parents[number // 2].fork(f"many-{number}"))
    many = counted(store, monkeypatch, thread.forks)
    assert many.calls == few.calls
    found = thread.forks()
    assert len(found) == 100
    assert {fork.relation for fork in found} == {"child"}
    assert [(fork.thread_id, fork.step) for fork in found if fork.thread_id.startswith("few")] == [
        (f"few-{number}", number + 1) for number in range(10)
    ]


def test_a_page_of_many_forks_costs_a_page(store: backtrail.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    origin: backtrail.Thread[Any] = store.thread("page of forks")
    origin.save({"n": 0})
    thread = origin.fork("page: own")
    for number in range(200):
        fork = thread.fork(f"page: fork {number:03}")
        if number % 2:
            fork.save({"n": number})
    whole = thread.forks()
    assert len(whole) == 201
    for limit in 1, 7, 201, 300:
        pages: list[backtrail.Fork] = []
        while page := thread.forks(limit=limit, after=pages[-1].thread_id if pages else None):
            assert len(page) == min(limit, len(whole) - len(pages))
            pages += page
        assert pages == whole
    assert [fork.thread_id for fork in thread.forks("parent")] == ["page of forks"]
    assert thread.forks("parent", after="page of forks") == []
    assert origin.forks("parent") == []
    assert len(origin.forks("child")) == 201
    assert len(thread.forks("sibling", limit=150)) == 150
    work = counted(store, monkeypatch, lambda: (thread.forks(limit=5), thread.forks("parent")))
    assert work.records < 60
    with pytest.raises(backtrail.errors.InvalidInput, match="relation='cousin'"):
        thread.forks("cousin")  # type: ignore[arg-type]


def _rewound(store: backtrail.Store, name: str, times: int, steps_back: int) -> backtrail.Thread[Any]:
    """A thread that was rewound and went on that often; each time a branch was left behind."""
    thread: backtrail.Thread[Any] = store.thread(name)
    for number in range(5):
        thread.append("items", [number])
    for number in range(times):
        thread.rewind(5 if not steps_back else -1 - steps_back)
        for _ in range(1 + steps_back):
            thread.append("items", [number])
    return thread


@pytest.mark.parametrize("steps_back", [0, 1], ids=["from one checkpoint", "from the branch before"])
def test_a_history_with_many_branches_costs_a_few_calls_for_each(
    store: backtrail.Store, monkeypatch: pytest.MonkeyPatch, steps_back: int
) -> None:
    monkeypatch.setattr(store._core.context.caches.branches, "_branches", LRU(8))
    thread = _rewound(store, f"branches {steps_back}", 60, steps_back)
    work = counted(store, monkeypatch, lambda: thread.history(all=True))
    assert work.calls < 8 * 60
    assert work.records < 16 * 60  # and not 60 times 60, which is what it costs to read all branches for each


def test_a_rewind_does_not_read_every_branch_each_time(store: backtrail.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store._core.context.caches.branches, "_branches", LRU(8))
    thread = _rewound(store, "rewound", 40, 0)
    work = counted(store, monkeypatch, lambda: _rewound(store, "rewound", 40, 0))
    assert thread.step == 6
    assert work.records < 40 * 40


def test_a_page_of_the_history_has_the_parents_that_the_whole_history_has(store: backtrail.Store) -> None:
    thread = _rewound(store, "parents", 12, 1)
    thread.delete(thread.history(all=True)[7])
    whole = {one.id: one for one in thread.history(all=True)}
    assert all(whole[one.id] == one == thread.get(one.id) for one in thread.history(limit=9, all=True))
