"""Calls of an async store that are cancelled: one that had begun is finished, one that had not changes nothing."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import backtrail
import backtrail.aio
from backtrail.engines.base import Commit, Lease, Taken
from backtrail.engines.memory import MemoryEngine


class Slow(MemoryEngine):
    """Waits at a gate before it commits or leases."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.waiting = threading.Semaphore(0)

    async def commit(self, commit: Commit) -> None:
        self.waiting.release()
        self.gate.wait()
        await super().commit(commit)

    async def lease(self, name: str, owner: str, ttl: float) -> Lease | Taken:
        self.waiting.release()
        self.gate.wait()
        return await super().lease(name, owner, ttl)


async def reached(engine: Slow, count: int = 1) -> None:
    for _ in range(count):
        await asyncio.to_thread(engine.waiting.acquire)


def test_a_save_that_is_cancelled_half_way_is_done_whole() -> None:
    async def main() -> None:
        engine = Slow()
        thread = (await backtrail.aio.open(engine)).thread("t")
        task = asyncio.ensure_future(thread.append("log", ["x" * 300]))
        await reached(engine)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        engine.gate.set()
        await thread.append("log", ["after"])
        while await thread.step < 2:  # if it lost the race, it is on its way to look again
            await asyncio.sleep(0.001)
        assert await thread.load() in ({"log": ["x" * 300, "after"]}, {"log": ["after", "x" * 300]})

    asyncio.run(main())


@pytest.mark.filterwarnings("error")
def test_calls_that_are_cancelled_before_they_begin_change_nothing(recwarn: pytest.WarningsRecorder) -> None:
    async def main() -> None:
        engine = Slow()
        store = await backtrail.aio.open(engine)
        busy = [asyncio.ensure_future(store.thread(f"busy {n}").append("log", [n])) for n in range(16)]
        await reached(engine, 16)
        queued = [asyncio.ensure_future(store.thread(f"queued {n}").append("log", [n])) for n in range(8)]
        await asyncio.sleep(0)
        for task in queued:
            task.cancel()
        assert all(isinstance(e, asyncio.CancelledError) for e in await asyncio.gather(*queued, return_exceptions=True))
        engine.gate.set()
        await asyncio.gather(*busy)
        assert await store.count() == 16

    asyncio.run(main())
    assert [str(w.message) for w in recwarn.list] == []


def test_a_lock_whose_taker_was_cancelled_is_free() -> None:
    async def main() -> None:
        engine = Slow()
        store = await backtrail.aio.open(engine)
        task = asyncio.ensure_future(store.thread("t").lock().acquire())
        await reached(engine)
        task.cancel()
        await asyncio.sleep(0)
        engine.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with store.thread("t").lock(timeout=0):
            await store.thread("t").append("log", [1])

    asyncio.run(main())


def test_time_outs_never_lose_or_double_what_was_acknowledged(tmp_path: Path) -> None:
    async def main() -> tuple[list[Any], list[int]]:
        store = await backtrail.aio.open(tmp_path / "s.db", durability="normal")
        thread = store.thread("t")
        await thread.append("log", [-1])
        acknowledged: list[int] = []

        async def write(number: int) -> None:
            try:
                await asyncio.wait_for(thread.append("log", [number]), (number % 7) / 2000 + 0.0001)
                acknowledged.append(number)
            except TimeoutError:
                return

        for start in range(0, 200, 10):
            await asyncio.gather(*(write(n) for n in range(start, start + 10)))
        await asyncio.gather(*(thread.append("log", [n]) for n in range(1000, 1020)))
        log = (await thread.load())["log"]
        await store.close()
        return log, acknowledged

    log, acknowledged = asyncio.run(main())
    assert len(log) == len(set(log))
    assert set(acknowledged) | set(range(1000, 1020)) <= set(log)
    with backtrail.open(tmp_path / "s.db") as again:
        assert again.verify().ok


def test_an_async_and_a_blocking_store_share_an_engine() -> None:
    engine = MemoryEngine()
    blocking = backtrail.open(engine).thread("t")

    async def main() -> None:
        awaited = (await backtrail.aio.open(engine)).thread("t")
        for n in range(20):
            await awaited.append("log", [n])
            await asyncio.to_thread(blocking.append, "log", [-n])
        assert await awaited.load() == blocking.load()
        assert await awaited.step == blocking.step == 40
        blocking.save({"log": []})
        with pytest.raises(backtrail.Conflict):
            await awaited.save({"log": ["stale"]})

    asyncio.run(main())
