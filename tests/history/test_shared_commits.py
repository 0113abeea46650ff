"""Tasks that save at the same time share a commit; an error of one does not reach the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import backtrail
import backtrail.aio
from backtrail.engines.sqlite import SQLiteEngine
from backtrail.engines.sqlite.writer import GroupCommitWriter


@pytest.fixture
def all_began() -> threading.Event:
    """No commit is made before: whoever comes while the first one waits can only come into another."""
    return threading.Event()


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch, all_began: threading.Event) -> list[int]:
    """How many writes each shared commit held."""
    sizes: list[int] = []
    plain = GroupCommitWriter.write_all

    def counted(self: GroupCommitWriter, tickets: Sequence[Any]) -> None:
        sizes.append(len(tickets))
        all_began.wait()
        plain(self, tickets)

    monkeypatch.setattr(GroupCommitWriter, "write_all", counted)
    return sizes


def test_tasks_share_commits_and_every_save_is_there(
    tmp_path: Path, batches: list[int], all_began: threading.Event
) -> None:
    async def run() -> None:
        async with await backtrail.aio.open(tmp_path / "s.db") as store:

            async def work(number: int) -> None:
                for n in range(20):
                    await store.thread(f"t{number}").append("messages", [n])
                    await store.session(f"s{number}").add("user", f"{n}")

            tasks = [asyncio.create_task(work(number)) for number in range(8)]
            await asyncio.sleep(0)  # each of them has asked for its first
            all_began.set()
            await asyncio.gather(*tasks)

    asyncio.run(run())
    assert sum(batches) == 8 * 20 * 2
    assert max(batches) > 1
    with backtrail.open(tmp_path / "s.db") as store:
        for number in range(8):
            assert store.thread(f"t{number}").load()["messages"] == list(range(20))
            assert [m["content"] for m in store.session(f"s{number}").messages()] == [str(n) for n in range(20)]


def test_a_save_that_is_refused_fails_alone(tmp_path: Path) -> None:
    async def run() -> list[Any]:
        async with await backtrail.aio.open(tmp_path / "s.db") as store:
            base = await store.thread("taken").save({"n": 0})
            await store.thread("taken").save({"n": 1}, expect=base)
            calls = [
                store.thread("a").save({"n": 1}),
                store.thread("taken").save({"n": 2}, expect=base),
                store.thread("b").save({"bad": object()}),
                store.thread("c").append("messages", ["x"]),
                store.thread("d").update({"k": 1}),
            ]
            return await asyncio.gather(*calls, return_exceptions=True)

    one, refused, unencodable, three, four = asyncio.run(run())
    assert isinstance(refused, backtrail.Conflict)
    assert isinstance(unencodable, backtrail.EncodeError)
    with backtrail.open(tmp_path / "s.db") as store:
        assert store.thread("a").head == one
        assert store.thread("c").head == three
        assert store.thread("d").head == four
        assert store.thread("taken").load() == {"n": 1}
        assert not store.thread("b").exists()


def test_tasks_on_one_thread_all_get_through(tmp_path: Path) -> None:
    async def run() -> list[Any]:
        async with await backtrail.aio.open(tmp_path / "s.db") as store:
            thread = store.thread("t")
            await asyncio.gather(*(thread.append("messages", [n]) for n in range(30)))
            return (await thread.load())["messages"]  # type: ignore[index,no-any-return]  # an untyped thread

    assert sorted(asyncio.run(run())) == list(range(30))


def test_a_task_that_is_cancelled_harms_no_other(tmp_path: Path) -> None:
    async def run() -> None:
        async with await backtrail.aio.open(tmp_path / "s.db") as store:
            going = [asyncio.create_task(store.thread(f"t{n}").append("messages", [n])) for n in range(20)]
            await asyncio.sleep(0)
            for task in going[::2]:
                task.cancel()
            results = await asyncio.gather(*going, return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in results[::2])
            for n, result in enumerate(results):
                if n % 2:
                    assert await store.thread(f"t{n}").head == result
            await store.thread("after").save({"n": 1})
            assert (await store.verify()).ok

    asyncio.run(run())


def test_tasks_of_several_event_loops_share_commits(
    tmp_path: Path, batches: list[int], all_began: threading.Event
) -> None:
    store = asyncio.run(backtrail.aio.open(tmp_path / "s.db"))
    began = threading.Barrier(5)

    async def work(number: int) -> None:
        saves = [asyncio.create_task(store.thread(f"t{number}").append("messages", [n])) for n in range(5)]
        await asyncio.sleep(0)  # each has been asked for
        began.wait()
        await asyncio.wait_for(asyncio.gather(*saves), 60)

    with ThreadPoolExecutor(4) as threads:
        ended = [threads.submit(asyncio.run, work(number)) for number in range(4)]
        began.wait()
        all_began.set()
        for one in ended:
            one.result()
    assert max(batches) > 5  # tasks of more than one loop
    found = [asyncio.run(_loaded(store, f"t{number}")) for number in range(4)]
    assert [sorted(state["messages"]) for state in found] == [list(range(5))] * 4
    asyncio.run(store.close())


def test_an_event_loop_that_ends_before_its_save_harms_no_later_one(
    tmp_path: Path, batches: list[int], all_began: threading.Event
) -> None:
    store = asyncio.run(backtrail.aio.open(tmp_path / "s.db"))

    async def leave() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store.thread("left").save({"n": 1}), 0.05)

    asyncio.run(leave())
    all_began.set()

    async def later() -> Any:
        await asyncio.wait_for(store.thread("later").save({"n": 2}), 60)
        return await store.thread("later").load()

    assert asyncio.run(later()) == {"n": 2}
    assert asyncio.run(_loaded(store, "left")) == {"n": 1}  # it had begun
    asyncio.run(store.close())


async def _loaded(store: Any, thread: str) -> Any:
    return await store.thread(thread).load()


def test_a_commit_that_fails_as_a_whole_is_tried_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupCommitWriter, "_write_batch", lambda self, batch: False)

    async def run() -> int:
        async with await backtrail.aio.open(SQLiteEngine(tmp_path / "s.db")) as store:
            await asyncio.gather(*(store.thread(f"t{n}").save({"n": n}) for n in range(10)))
            return await store.count()

    assert asyncio.run(run()) == 10
