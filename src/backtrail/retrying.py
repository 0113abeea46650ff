"""`retry`: repeats a save while the store is unavailable, under one id, so that it is made once.

The answer to a save can be lost after the save was made. An id that is chosen before the first attempt makes every
further one recognizable: if a checkpoint of that id is there, nothing is saved again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from backtrail.engines.retry import RetryPolicy
from backtrail.errors import Closed, Unavailable
from backtrail.history.checkpoint_ids import new_id, uuid_text
from backtrail.history.records import now_micros
from backtrail.history.validation import check_seconds

T = TypeVar("T")


class _Attempts:
    """The attempts of one call: their id, and how long to wait between them."""

    def __init__(self, timeout: float) -> None:
        self.id = uuid_text(new_id(now_micros()))
        self._policy = RetryPolicy(backoff=0.05, longest_pause=2.0)
        self._end = time.monotonic() + check_seconds(timeout, "timeout")
        self._number = 0

    def pause_after(self, error: Unavailable) -> float:
        """Seconds until the next attempt; the error is raised if there is none."""
        pause = self._policy.pause(self._number)
        if isinstance(error, Closed) or time.monotonic() + pause > self._end:
            raise error
        self._number += 1
        return pause


def retry(call: Callable[[str], T], timeout: float = 60.0) -> T:
    """Call `call(id)` with a new id until it does not raise `Unavailable`, for about `timeout` seconds at most.

        backtrail.retry(lambda id: thread.append("messages", [message], id=id))

    All calls get the same id, so that what was saved although its answer was lost is not saved again. A store that was
    closed in this process is not waited for.
    """
    attempts = _Attempts(timeout)
    while True:
        try:
            return call(attempts.id)
        except Unavailable as error:
            pause = attempts.pause_after(error)
        time.sleep(pause)


async def retry_async(call: Callable[[str], Awaitable[T]], timeout: float = 60.0) -> T:
    """Await `call(id)` with a new id until it does not raise `Unavailable`, for about `timeout` seconds at most.

        await backtrail.aio.retry(lambda id: thread.append("messages", [message], id=id))

    All calls get the same id, so that what was saved although its answer was lost is not saved again. A store that was
    closed in this process is not waited for.
    """
    attempts = _Attempts(timeout)
    while True:
        try:
            return await call(attempts.id)
        except Unavailable as error:
            pause = attempts.pause_after(error)
        await asyncio.sleep(pause)
