"""Two writers on one thread: one wins, the other gets a conflict, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import backtrail
import backtrail.aio

LONG = "some text that makes a list long enough to be kept in pieces " * 5


def test_expect_refuses_a_head_that_moved_and_names_both(store: Any) -> None:
    thread = store.thread("t")
    first = thread.save({"n": 1})
    second = thread.save({"n": 2}, expect=first)
    for stale in (first, first.id):
        with pytest.raises(backtrail.Conflict) as caught:
            thread.save({"n": 3}, expect=stale)
        assert (caught.value.expected, caught.value.actual) == (first.id, second.id)
    with pytest.raises(backtrail.Conflict) as caught:
        thread.save({"n": 3}, expect=None)
    assert caught.value.expected is None
    assert thread.load() == {"n": 2}
    assert store.thread("new").save({"n": 1}, expect=None).step == 1


def test_a_handle_that_looked_before_another_saved_is_refused(opener: Any) -> None:
    mine, theirs = opener().thread("t"), opener().thread("t")
    mine.save({"n": 1})
    theirs.load()
    theirs.save({"n": 2})
    with pytest.raises(backtrail.Conflict):
        mine.save({"n": "would overwrite"})
    with pytest.raises(backtrail.Conflict):
        mine.update({"n": "would overwrite"})
    assert mine.load() == {"n": 2}
    assert mine.save({"n": 3}).step == 3


def test_the_loser_may_ask_for_a_branch(store: Any) -> None:
    one, two = store.thread("t"), store.thread("t")
    base = one.save({"messages": [LONG, LONG]})
    two.load()
    winner = one.append("messages", ["one"])
    beside = two.save({"messages": [LONG, LONG, "two"]}, on_conflict="branch")
    assert (beside.parent_id, beside.step) == (base.id, 2)
    assert one.head == winner
    assert one.load(beside) == {"messages": [LONG, LONG, "two"]}
    assert {c.id for c in one.history(all=True)} == {base.id, winner.id, beside.id}
    fork = one.fork(at=beside)
    assert fork.load()["messages"][-1] == "two"


def test_appends_rebase_and_all_arrive(opener: Any) -> None:
    handles = [opener().thread("t") for _ in range(4)]
    for n in range(10):
        for i, handle in enumerate(handles):
            handle.append("messages", [f"{i}-{n} {LONG}"])
    loaded = handles[0].load()["messages"]
    assert len(loaded) == 40
    assert [m for m in loaded if m.startswith("2-")] == [f"2-{n} {LONG}" for n in range(10)]


@pytest.mark.parametrize("url", ["memory:", "sqlite"])
def test_eight_threads_append_to_one_thread(url: str, tmp_path: Path) -> None:
    store = backtrail.open(url if url == "memory:" else tmp_path / "s.db")
    start = threading.Barrier(8)

    def work(worker: int) -> list[str]:
        thread = store.thread("t")
        start.wait()
        return [thread.append("messages", [f"{worker}-{n} {LONG}"]).id for n in range(25)]

    with ThreadPoolExecutor(8) as pool:
        acknowledged = [id for ids in pool.map(work, range(8)) for id in ids]
    messages = store.thread("t").load()["messages"]
    assert sorted(m.split()[0] for m in messages) == sorted(f"{w}-{n}" for w in range(8) for n in range(25))
    for worker in range(8):
        mine = [m for m in messages if m.startswith(f"{worker}-")]
        assert mine == [f"{worker}-{n} {LONG}" for n in range(25)]
    assert {c.id for c in store.thread("t").history()} == set(acknowledged)


def test_of_eight_threads_that_save_on_one_base_one_wins(tmp_path: Path) -> None:
    store = backtrail.open(tmp_path / "s.db")
    base = store.thread("t").save({"winner": None})
    start = threading.Barrier(8)

    def work(worker: int) -> str:
        start.wait()
        try:
            store.thread("t").save({"winner": worker}, expect=base)
        except backtrail.Conflict as conflict:
            return str(conflict.expected)
        return "won"

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, range(8)))
    assert results.count("won") == 1
    assert results.count(base.id) == 7
    assert store.thread("t").load() == {"winner": results.index("won")}


@pytest.mark.parametrize("url", ["memory:", "sqlite"])
def test_tasks_append_to_one_thread(url: str, tmp_path: Path) -> None:
    async def run() -> list[str]:
        async with await backtrail.aio.open(url if url == "memory:" else tmp_path / "s.db") as store:

            async def work(worker: int) -> None:
                thread = store.thread("t")
                for n in range(20):
                    await thread.append("messages", [f"{worker}-{n}"])

            await asyncio.gather(*(work(worker) for worker in range(8)))
            return list((await store.thread("t").load())["messages"])  # type: ignore[index]  # an untyped thread

    messages = asyncio.run(run())
    assert sorted(messages) == sorted(f"{w}-{n}" for w in range(8) for n in range(20))


def test_the_loop_goes_on_while_a_save_waits_for_the_disk(tmp_path: Path) -> None:
    async def run() -> int:
        ticks = 0
        async with await backtrail.aio.open(tmp_path / "s.db") as store:

            async def tick() -> None:
                nonlocal ticks
                while True:
                    await asyncio.sleep(0)
                    ticks += 1

            ticking = asyncio.create_task(tick())
            thread = store.thread("t")
            for n in range(20):
                await thread.append("messages", [n])
            ticking.cancel()
        return ticks

    assert asyncio.run(run()) > 20


WRITER = """
import sys, backtrail
path, worker = sys.argv[1:]
shared, own = backtrail.open(path).thread("shared"), backtrail.open(path).thread("own-" + worker)
for n in range(60):
    shared.append("messages", [f"{worker}-{n}"])
    own.save({"n": n})
print("done")
"""


def test_four_processes_write_one_file_and_nobody_is_locked_out(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    command = [sys.executable, "-c", WRITER, str(path)]
    workers = [
        subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for n in range(4)
    ]
    for worker in workers:
        out, err = worker.communicate(timeout=100)
        assert (out, err) == ("done\n", "")
    with backtrail.open(path) as store:
        messages = store.thread("shared").load()["messages"]
        assert sorted(messages) == sorted(f"{w}-{n}" for w in range(4) for n in range(60))
        for worker_id in "0123":
            mine = [m for m in messages if m.startswith(worker_id)]
            assert mine == [f"{worker_id}-{n}" for n in range(60)]
            assert store.thread(f"own-{worker_id}").load() == {"n": 59}


def test_the_cache_of_tips_is_bounded() -> None:
    from backtrail.history.caches import MAX_TIP_BYTES, MAX_TIPS

    store = backtrail.open("memory:")
    for n in range(MAX_TIPS + 500):
        store.thread(f"t{n}").save({"n": n})
    tips = store._core.context.caches.tips
    assert len(tips) == MAX_TIPS
    for n in range(12):
        store.thread(f"big{n}").save({"messages": [LONG * 100] * 300, "n": n})
    assert tips.size <= MAX_TIP_BYTES
    before = tips.size
    store.thread("wide").save({"documents": {f"key {n}": LONG for n in range(300)}})
    assert tips.size >= before + 300 * len(LONG)
    assert store.thread("t0").save({"n": 1}, expect=store.thread("t0").head).step == 2
