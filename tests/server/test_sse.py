"""Listeners share one look at the store, whenever they come and go."""

from __future__ import annotations

import asyncio
import threading

from backtrail import ThreadInfo
from backtrail.server.sse import Watch


def test_two_who_begin_to_listen_at_once_leave_nobody_looking_when_they_go() -> None:
    both = threading.Barrier(2)

    def look() -> list[ThreadInfo]:
        both.wait()
        return []

    async def main() -> set[asyncio.Task[None]]:
        watch = Watch(look, every=3600)
        listeners = [watch.listen() for _ in range(2)]
        hellos = await asyncio.gather(*(anext(listener) for listener in listeners))
        assert [hello.split(b"\n")[0] for hello in hellos] == [b"event: hello"] * 2
        for listener in listeners:
            await listener.aclose()
        await asyncio.sleep(0)
        return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}

    assert asyncio.run(main()) == set()
