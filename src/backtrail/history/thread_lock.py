"""A lock on a thread: a lease of the engine, and the fence that enforces it.

While a handle holds the lock, each of its commits names the lease's token; if the lease has expired and gone to another
owner, the engine refuses the commit. Waiting for the lock is left to the facades.
"""

from __future__ import annotations

import os
import platform
import uuid
from typing import Any

from backtrail.engines.base import Fence, Lease, Taken
from backtrail.errors import InvalidInput, LockLost, LockTimeout
from backtrail.history.thread_core import ThreadCore
from backtrail.history.validation import check_seconds

POLL = 0.02  # seconds between two attempts to get a lock that another owner holds


class Lock:
    """One owner's lock on a thread."""

    def __init__(self, thread: ThreadCore[Any], timeout: float, ttl: float) -> None:
        self._thread = thread
        self.timeout = check_seconds(timeout, "timeout")
        self.ttl = check_seconds(ttl, "ttl")
        if not self.ttl:
            raise InvalidInput("ttl must be more than 0 seconds, or the lock is lost at once")
        self.owner = f"{platform.node() or 'somebody'} pid {os.getpid()} [{uuid.uuid4().hex}]"
        self.name = f"thread:{thread.id}"
        self.token = 0

    async def attempt(self) -> Taken | None:
        """Take or renew the lock; returns the current owner's `Taken` if another has it."""
        self._thread.context.check_open()
        answer = await self._thread.context.engine.lease(self.name, self.owner, self.ttl)
        if isinstance(answer, Lease):
            self.token = answer.token
            self._thread.fence = Fence(self.name, answer.token)
            return None
        return answer

    def refused(self, waited: float, taken: Taken) -> LockTimeout:
        return LockTimeout(f"the lock of thread {self._thread.id!r}", waited, taken.owner)

    async def renew(self) -> None:
        """Extend the lock for another `ttl` seconds. If another owner has or had it, it was lost: then the lock is not
        taken anew, and every save under it is refused."""
        self._thread.context.check_open()
        engine = self._thread.context.engine
        answer = await engine.lease(self.name, self.owner, self.ttl)
        if isinstance(answer, Lease):
            if answer.token == self.token:
                return
            await engine.release(self.name, self.owner)
        raise LockLost(
            self._thread.id,
            message=f"the lock of thread {self._thread.id!r} was lost: it expired, and another owner took it; load the "
            "thread and take its lock again",
        )

    async def release(self) -> bool:
        """Release the lock; False if it had been lost."""
        self._thread.fence = None
        return await self._thread.context.engine.release(self.name, self.owner)
