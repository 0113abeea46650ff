"""Server-sent events: listeners share one poll of the store, whenever they come and go."""

from __future__ import annotations

import asyncio
import threading

import backtrail
from backtrail import ThreadInfo
from backtrail.server.sse import ThreadWatcher, changes_between


def test_two_listeners_that_start_at_once_leave_no_task_behind() -> None:
    both = threading.Barrier(2)

    def poll() -> list[ThreadInfo]:
        both.wait()
        return []

    async def main() -> set[asyncio.Task[None]]:
        watcher = ThreadWatcher(poll, interval=3600)
        listeners = [watcher.listen() for _ in range(2)]
        hellos = await asyncio.gather(*(anext(listener) for listener in listeners))
        assert [hello.split(b"\n")[0] for hello in hellos] == [b"event: hello"] * 2
        for listener in listeners:
            await listener.aclose()
        await asyncio.sleep(0)
        return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}

    assert asyncio.run(main()) == set()


def test_a_thread_that_only_fell_off_the_list_is_not_deleted() -> None:
    with backtrail.open("memory:") as store:
        for i in range(101):
            store.thread(f"t{i:03}").save({})
        before = store.threads(limit=100, newest_first=True)
        store.thread("t000").save({"n": 2}, expect=store.thread("t000").head)
        after = store.threads(limit=100, newest_first=True)
    changed, gone = changes_between(before, after)
    assert ([info.id for info in changed], gone) == (["t000"], [])
