"""The lease of a run: one process at a time works on it, and what a former owner writes is refused."""

from __future__ import annotations

from typing import Any

from backtrail.engines.base import Fence, Lease, Taken
from backtrail.errors import LockLost, LockTimeout
from backtrail.history.thread_core import ThreadCore
from backtrail.run.lease_owner import is_gone, new_owner

TTL = 30.0  # seconds from the last renewal of a lease until it expires


class RunLease:
    """The lease of one run, and the fence that its commits rely on."""

    def __init__(self, thread: ThreadCore[Any]) -> None:
        self._thread = thread
        self._lease = f"run:{thread.id}"
        self._owner = new_owner()

    async def acquire(self) -> Taken | None:
        """Acquire or renew the lease; returns the current owner's `Taken` if another has it. The lease of a dead
        process is taken over. `LockLost` if this handle had it, and another has or had it since."""
        context = self._thread.context
        context.check_open()
        if self._thread.fence is not None:
            if not await self.renew():
                raise self.lost()
            return None
        answer = await context.engine.lease(self._lease, self._owner, TTL)
        if isinstance(answer, Taken) and is_gone(answer.owner):
            await context.engine.release(self._lease, answer.owner)
            answer = await context.engine.lease(self._lease, self._owner, TTL)
        if isinstance(answer, Lease):
            self._thread.fence = Fence(self._lease, answer.token)
            return None
        return answer

    async def renew(self) -> bool:
        """Renew the lease; False if another has it, or had it meanwhile, whatever became of the run: every write of
        this handle is refused from then on."""
        engine = self._thread.context.engine
        answer = await engine.lease(self._lease, self._owner, TTL)
        if not isinstance(answer, Lease):
            return False
        if Fence(self._lease, answer.token) == self._thread.fence:
            return True
        await engine.release(self._lease, self._owner)
        return False

    async def release(self) -> None:
        """Release the lease."""
        self._thread.fence = None
        if not self._thread.context.closed:
            await self._thread.context.engine.release(self._lease, self._owner)

    def lost(self) -> LockLost:
        """The error for a lease that another took."""
        text = f"run {self._thread.id!r} was taken over by another process: its lease was lost, nothing was saved"
        return LockLost(self._thread.id, message=text)

    def refused(self, waited: float, taken: Taken) -> LockTimeout:
        """The error for a lease that another has."""
        return LockTimeout(f"run {self._thread.id!r}", waited, taken.owner)
