"""Sweeps free what nothing needs, and nothing else, whatever writers do at the same time."""

from __future__ import annotations

import datetime as dt
import random
import threading
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail import Retention
from backtrail.engines.coroutines import finish
from backtrail.errors import Conflict, NotFound
from backtrail.history.ancestry import HistoryStep
from backtrail.history.lineage_view import LineageView
from backtrail.history.records import now_micros
from backtrail.history.retention import micros, parse, protected
from backtrail.history.sweep import Sweeper

STRICT = Retention(keep_last=1, undo_window=dt.timedelta(0), keep_labelled=False)


def test_a_payload_stays_for_as_long_as_a_state_points_into_it(store: Any) -> None:
    thread = store.thread("t")
    for n in range(10):
        thread.append("messages", [{"n": n, "text": "x" * 500}])
    store.prune(STRICT)
    assert store.stats()["rows"] == 10
    assert store.stats()["garbage"] == 0
    thread.save({"messages": []})
    assert store.prune(STRICT).rows >= 9
    assert store.stats()["rows"] <= 2
    assert thread.load() == {"messages": []}
    assert store.verify().ok


def test_blobs_go_with_the_last_checkpoint_that_needs_them(store: Any) -> None:
    thread = store.thread("t")
    thread.save({"paper": "one " * 30_000})
    thread.save({"paper": "two " * 30_000})
    fork = thread.fork("fork", at=1)
    store.prune(STRICT)
    assert store.stats()["blobs"] == 2
    fork.delete()
    report = store.prune(STRICT)
    assert report.blobs == 1
    assert store.stats()["blobs"] == 1
    assert thread.load() == {"paper": "two " * 30_000}


def test_a_deleted_thread_leaves_nothing_but_what_its_forks_need(store: Any) -> None:
    thread = store.thread("t")
    for n in range(8):
        thread.append("messages", [{"n": n, "text": "x" * 400}])
    fork = thread.fork("fork", at=3)
    thread.delete()
    store.prune()
    assert [m["n"] for m in fork.load()["messages"]] == [0, 1, 2]
    assert store.stats()["rows"] == 3
    fork.delete()
    stats = store.stats()
    assert (stats["rows"], stats["branches"], stats["threads"]) == (0, 0, 0)


def test_stats_tell_live_garbage_and_total(store: Any) -> None:
    thread = store.thread("t")
    for n in range(20):
        thread.save({"text": f"{n} " * 500})
    before = store.stats()
    assert before["garbage"] == 0
    assert before["live"] > 20 * 900
    assert before["total"] >= before["live"]
    for n in range(1, 11):
        thread.delete(n)
    half = store.stats()
    assert half["garbage"] > 8 * 900
    assert half["live"] + half["garbage"] <= before["live"]
    store.compact()
    after = store.stats()
    assert after["garbage"] == 0
    assert after["live"] < 0.65 * before["live"]


def test_compact_gives_space_back(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with backtrail.open(path, durability="normal") as store:
        for n in range(50):
            store.thread(f"t{n}").save({"text": f"{n} " * 20_000})
        for n in range(45):
            store.thread(f"t{n}").delete()
        large = path.stat().st_size
        progress: list[tuple[int, int]] = []
        store.compact(progress=lambda done, total: progress.append((done, total)))
        assert path.stat().st_size < large / 4
        assert progress[-1] == (5, 5)
        assert store.thread("t49").load() == {"text": "49 " * 20_000}


def test_rows_before_what_stays_keep_their_chain(store: Any) -> None:
    thread = store.thread("t")
    for n in range(30):
        thread.save({"n": n})
    thread.annotate(10, label="keep")
    thread.annotate(20, label="keep")
    store.prune(Retention(keep_last=1))
    assert [c.step for c in thread.history()] == [10, 20, 30]
    assert store.stats()["rows"] == 6  # each, and the light half of the one before it
    assert store.verify().ok
    thread.annotate(10, label=None)
    store.prune(Retention(keep_last=1))
    assert store.stats()["rows"] == 4
    assert store.verify().ok


def test_an_undo_after_a_sweep_finds_the_newest_that_is_left(store: Any) -> None:
    thread = store.thread("t")
    for n in range(5):
        thread.save({"n": n})
    thread.rewind(2)
    store.prune(STRICT)
    assert [c.step for c in thread.history(all=True)] == [2]
    assert thread.undo().step == 2
    thread.save({"n": "new"})
    assert thread.load() == {"n": "new"}
    assert store.verify().ok


WORDS = ["alpha " * 30, "beta " * 30, "gamma " * 30, "delta " * 20_000, "epsilon " * 15_000]


def act(store: Any, rng: random.Random, names: list[str]) -> None:
    """Something that a user might do just now, checked on the spot."""
    name = rng.choice(names)
    thread = store.thread(name)
    what = rng.random()
    try:
        if what < 0.35:
            thread.append("messages", [{"n": rng.random(), "text": rng.choice(WORDS[:3])}])
        elif what < 0.5:
            state = {"messages": [{"text": rng.choice(WORDS[:3])}] * rng.randrange(3), "paper": rng.choice(WORDS)}
            saved = thread.save(state)
            assert thread.load(saved) == state
        elif what < 0.6:
            history = thread.history(all=True)
            thread.rewind(rng.choice(history))
        elif what < 0.68:
            thread.undo()
        elif what < 0.78:
            history = thread.history(all=True)
            other = f"{name[0]}{rng.randrange(6)}"
            if other not in names:
                return
            thread.fork(other, at=rng.choice(history))
        elif what < 0.84:
            thread.delete()
        elif what < 0.9:
            thread.delete(rng.choice(thread.history(all=True)))
        else:
            thread.load(rng.choice(thread.history(all=True)))
    except (NotFound, Conflict, IndexError):
        return  # somebody was faster, or there is nothing to do it with


@pytest.mark.parametrize("seed", range(6))
def test_a_random_life_with_sweeps_in_between_stays_sound(seed: int, opener: Any) -> None:
    store = opener(compression=random.Random(seed).choice([None, "zstd"]))
    rng = random.Random(seed)
    names = [f"{letter}{n}" for letter in "ab" for n in range(6)]
    for _ in range(12):
        for _ in range(15):
            act(store, rng, names)
        known = {
            info.id: [(c.id, store.thread(info.id).load(c)) for c in store.thread(info.id).history(all=True)]
            for info in store.threads()
        }
        policy = rng.choice([None, STRICT, Retention(keep_last=3), Retention(keep_last=2, undo_window=dt.timedelta(0))])
        store.prune(policy)
        report = store.verify()
        assert report.ok, str(report)
        for name, states in known.items():
            thread = store.thread(name)
            kept = {c.id for c in thread.history(all=True)}
            assert thread.head.id in kept
            for id, state in states:
                if id in kept:
                    assert thread.load(id) == state
            if policy is None:
                assert kept >= {id for id, _ in states}
    store.compact()
    assert store.verify().ok


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_writers_never_lose_what_they_point_at(engine: str, tmp_path: Path) -> None:
    """Six writers rewind, fork, save and delete as fast as they can; two sweepers take everything they may."""
    first = backtrail.open("memory:" if engine == "memory" else tmp_path / "s.db", **_fast(engine))
    names = [f"{letter}{n}" for letter in "ab" for n in range(6)]
    stop = threading.Event()
    failed: list[Exception] = []

    def store_for(number: int) -> Any:
        if engine == "memory" or number % 2:
            return first
        return backtrail.open(tmp_path / "s.db", **_fast(engine))

    def write(number: int) -> None:
        store, rng = store_for(number), random.Random(number)
        try:
            for _ in range(150):
                act(store, rng, names)
        except Exception as error:  # noqa: BLE001  # told by the test
            failed.append(error)
        finally:
            if store is not first:
                store.close()

    def sweep(number: int) -> None:
        store = store_for(number)
        try:
            while not stop.is_set():
                store.prune(STRICT)
        except Exception as error:  # noqa: BLE001  # told by the test
            failed.append(error)
        finally:
            if store is not first:
                store.close()

    writers = [threading.Thread(target=write, args=(n,)) for n in range(6)]
    sweepers = [threading.Thread(target=sweep, args=(n,)) for n in range(2)]
    for worker in (*writers, *sweepers):
        worker.start()
    for writer in writers:
        writer.join()
    stop.set()
    for sweeper in sweepers:
        sweeper.join()
    assert not failed, failed[0]
    report = first.verify()
    assert report.ok, str(report)
    for info in first.threads():
        first.thread(info.id).load()
    first.close()


def _fast(engine: str) -> dict[str, Any]:
    return {} if engine == "memory" else {"durability": "normal"}


def test_a_rewind_that_looked_before_a_sweep_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The narrowest race: between a rewind's look and its swap, everything it looked at is swept."""
    with backtrail.open("memory:") as store:
        thread = store.thread("t")
        for n in range(5):
            thread.save({"n": n})
        engine = store._core.context.engine
        real, swept = engine.commit, []

        async def commit(change: Any) -> None:
            if not swept and change.swaps:
                swept.append(True)
                store.prune(STRICT)
            await real(change)

        monkeypatch.setattr(engine, "commit", commit)
        with pytest.raises(NotFound):
            thread.rewind(2)
        assert swept
        monkeypatch.setattr(engine, "commit", real)
        assert thread.load() == {"n": 4}
        assert store.verify().ok


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_sweep_that_dies_anywhere_leaves_work_and_no_harm(
    at: int, opener: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    store = opener()
    thread = store.thread("t")
    for n in range(12):
        thread.save({"n": n, "paper": f"{n} " * 40_000})
    thread.rewind(9)
    thread.fork("fork", at=4)
    engine = getattr(store, "inner", store)._core.context.engine
    drop, calls = engine.drop, []

    async def dying(what: Any) -> None:
        calls.append(what)
        if len(calls) == at:
            raise Killed
        await drop(what)

    monkeypatch.setattr(engine, "drop", dying)
    with pytest.raises(Killed):
        store.prune(STRICT)
    monkeypatch.setattr(engine, "drop", drop)
    assert store.verify().ok
    assert [store.thread(name).load()["n"] for name in ("t", "fork")] == [8, 3]
    store.prune(STRICT)
    store.compact()
    assert store.stats()["garbage"] == 0
    assert store.stats()["blobs"] == 2
    assert store.verify().ok


class Counted(list[HistoryStep]):
    """Rows that count how often one of them is looked at."""

    looked_at = 0

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        Counted.looked_at += len(found) if isinstance(index, slice) else 1
        return found

    def __iter__(self) -> Any:
        return map(self.__getitem__, range(len(self)))

    def __reversed__(self) -> Any:
        return map(self.__getitem__, reversed(range(len(self))))


def counted_view(store: backtrail.Store, lineage: str) -> LineageView:
    view = finish(LineageView.read(store._core.context, lineage))
    view.rows = {branch: Counted(rows) for branch, rows in view.rows.items()}
    Counted.looked_at = 0
    return view


def test_a_fork_of_a_long_thread_costs_what_it_inherited() -> None:
    with backtrail.open("memory:") as store:
        thread: backtrail.Thread[Any] = store.thread("long")
        for number in range(1000):
            thread.append("items", [number])
        thread.fork("fork", at=3)
        view = counted_view(store, "long")
    fork, long = view.heads
    assert [one.step.step for one in view.steps_to(fork)] == [3, 2, 1]
    assert Counted.looked_at < 20
    assert [one.step.step for one in view.steps_to(long)] == list(range(1000, 0, -1))


@pytest.mark.parametrize("policy", ["keep_last=2", "keep_last=150", "max_age=1h", "keep_last=3,max_age=1h", ""])
@pytest.mark.parametrize("shape", ["forks of one thread", "forks of forks"])
def test_a_row_that_many_forks_have_inherited_is_looked_at_a_few_times(policy: str, shape: str) -> None:
    with backtrail.open("memory:") as store:
        thread: backtrail.Thread[Any] = store.thread("long")
        for number in range(200):
            thread.append("items", [number])
        for number in range(200):
            fork = thread.fork(f"fork-{number}", at=None if shape == "forks of forks" else number + 1)
            fork.append("items", [number])
            thread = fork if shape == "forks of forks" else thread
        view = counted_view(store, "long")
        Sweeper(store._core.context)._doomed(view, parse(policy), now_micros())
    assert Counted.looked_at < 10 * 400


def naively_doomed(view: LineageView, policies: dict[str, Retention], now: int) -> set[Any]:
    """What no thread keeps, thread by thread, as the documentation tells it."""
    visible, keep = set(), set()
    for head in view.heads:
        policy = policies[head.thread]
        history = [one for one in view.steps_to(head) if one.alive]
        abandoned = list(view.abandoned(head))
        visible |= {one.position for one in history} | {one.position for one, _ in abandoned}
        keep.add(head.position)
        for number, one in enumerate(history):
            few = policy.keep_last is None or number < policy.keep_last
            young = policy.max_age is None or one.meta.created >= now - micros(policy.max_age)
            if number == 0 or (few and young) or protected(policy, one.facts):
                keep.add(one.position)
        for one, since in abandoned:
            if policy == Retention() or since > now - micros(policy.undo_window) or protected(policy, one.facts):
                keep.add(one.position)
    return visible - keep


@pytest.mark.parametrize("seed", range(12))
def test_what_all_threads_keep_together_is_what_each_of_them_keeps(seed: int) -> None:
    chance = random.Random(seed)
    with backtrail.open("memory:") as store:
        threads: list[Any] = [store.thread("t0")]
        threads[0].save({"n": 0})
        for number in range(1, 120):
            thread = chance.choice(threads)
            what = chance.random()
            if what < 0.6:
                label = f"label {number}" if chance.random() < 0.1 else None
                thread.save({"n": number}, label=label, tags=["keep"] if chance.random() < 0.1 else [])
            elif what < 0.75:
                threads.append(thread.fork(f"t{number}", at=chance.choice(thread.history(all=True)).id))
            elif what < 0.9:
                thread.rewind(chance.choice(thread.history()).id)
            elif own := [one for one in thread.history()[:-1] if one.thread_id == thread.id]:
                thread.delete(chance.choice(own).id)
        policies = ["keep_last=1", "keep_last=3,keep_labelled=false", "max_age=0s", "keep_tags=keep,undo_window=0s", ""]
        for thread in threads:
            thread.retain(parse(chance.choice(policies)))
        view = finish(LineageView.read(store._core.context, "t0"))
        now = now_micros()
        sweeper = Sweeper(store._core.context)
        own = {thread.id: thread.retention for thread in threads}
        assert sweeper._doomed(view, None, now) == naively_doomed(view, own, now)
        for count in range(1, 12):
            policy = Retention(keep_last=count, keep_labelled=False)
            assert sweeper._doomed(view, policy, now) == naively_doomed(view, dict.fromkeys(own, policy), now)
