"""A mirror that suspends calls its blocking sides in threads, and no result or error is lost."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from backtrail.engines.conflicts import Refused
from backtrail.engines.memory import MemoryEngine
from backtrail.replicate.concurrency import Background, LineageLocks, Workers, side
from backtrail.testing import sample_records


async def _number(n: int) -> int:
    time.sleep(0.001)  # it stands for a disk
    if n % 7 == 0:
        raise ValueError(n)
    return n


def test_workers_finish_everything_and_give_each_caller_its_own() -> None:
    async def main() -> None:
        workers = Workers()
        for _ in range(2):  # also after they were let go
            found = await asyncio.gather(*(workers.submit(_number(n)) for n in range(100)), return_exceptions=True)
            for n, one in enumerate(found):
                assert one == n if n % 7 else isinstance(one, ValueError)
            workers.stop()

    before = threading.active_count()
    asyncio.run(main())
    end = time.monotonic() + 10
    while threading.active_count() > before:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_caller_that_was_cancelled_is_not_told_and_harms_nobody() -> None:
    async def main() -> None:
        workers = Workers()
        going = workers.submit(_number(1))
        going.cancel()
        with pytest.raises(asyncio.CancelledError):
            await going
        assert await workers.submit(_number(2)) == 2
        workers.stop()

    asyncio.run(main())


def test_a_blocking_side_answers_and_refuses_from_its_thread() -> None:
    async def main() -> None:
        threaded = side(MemoryEngine(), blocking=False)
        await threaded.commit(sample_records.first(sample_records.branch("t")))
        with pytest.raises(Refused):
            await threaded.commit(sample_records.first(sample_records.branch("t")))
        head = await threaded.head("t")
        assert head is not None
        assert not threaded.properties.blocking
        await threaded.close()

    asyncio.run(main())


def test_of_one_lineage_one_at_a_time_in_threads() -> None:
    tracks, at_once, most = LineageLocks(blocking=True), 0, 0

    async def work() -> None:
        nonlocal at_once, most
        async with tracks.of("t"):
            at_once += 1
            most = max(most, at_once)
            time.sleep(0.001)
            at_once -= 1

    crew = [threading.Thread(target=lambda: asyncio.run(work())) for _ in range(8)]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    assert most == 1


def test_a_background_that_is_woken_and_cancelled_at_once_ends() -> None:
    async def tick() -> float:
        return 60.0

    async def main() -> None:
        background = Background(False, tick)
        background.wake()
        (task,) = asyncio.all_tasks() - {asyncio.current_task()}
        for _ in range(3):
            await asyncio.sleep(0.01)
        background.wake()
        await asyncio.sleep(0)  # the waiter is told, and has not run
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=10)
        assert done

    asyncio.run(main())
