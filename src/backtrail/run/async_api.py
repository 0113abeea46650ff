"""`AsyncRun`: the names of `Run`, to be awaited. Inside `async with`, a task renews the lease."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from backtrail.async_runner import AsyncRunner
from backtrail.errors import Unavailable
from backtrail.history.thread_lock import POLL
from backtrail.model import At, Checkpoint
from backtrail.run.run_core import TTL, RunCore
from backtrail.run.sync_api import Attributes, Raised
from backtrail.thread.async_api import AsyncThread
from backtrail.thread.views import AsyncThreadView
from backtrail.typing import Files


class AsyncRun(Attributes, AsyncThreadView):
    """A thread seen as a resumable job: `async with` resumes it, deletes it on success and keeps it on failure.

    async with store.run("run-7", task="nightly") as run:
        while run.iteration < 10:
            run.messages.append(await step(run.messages))
            await run.checkpoint()
    """

    def __init__(self, core: RunCore, runner: AsyncRunner, timeout: float = 0.0) -> None:
        self._core = core
        self._runner = runner
        self.thread: AsyncThread[dict[str, Any]] = AsyncThread(core.thread, runner)  #: the same run, as checkpoints
        self._timeout = timeout
        self._heart: asyncio.Task[None] | None = None

    async def exists(self) -> bool:
        """True if there is a checkpoint to resume from."""
        return await self._runner(self._core.exists())

    async def resume(self) -> Checkpoint:
        """Fill the attributes with the last checkpoint, and return it.

        `ThreadNotFound` is raised if there is none, `LockTimeout` if a process is working on the run, and `Corrupt` for
        a damaged one, which is never mistaken for a new run.
        """
        return await self._runner(self._core.resume())

    async def checkpoint(
        self,
        /,
        messages: list[Any] | tuple[Any, ...] | None = None,
        *,
        iteration: int | None = None,
        system_prompt: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        label: str | None = None,
        tags: Iterable[str] = (),
        files: Files | None = None,
        **custom: Any,
    ) -> Checkpoint:
        """Save the run after an iteration; values that are not given are taken from the attributes.

            await run.checkpoint(input_tokens=1200, model="small")

        The iteration goes up by one. Token counts are totals; `label`, `tags` and `files` are as in `thread.save`, and
        other keywords are kept in `run.custom`.
        """
        return await self._runner(
            self._core.checkpoint(
                messages,
                iteration=iteration,
                system_prompt=system_prompt,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                label=label,
                tags=tags,
                files=files,
                **custom,
            )
        )

    async def rewind(self, at: At) -> Checkpoint:
        """Go back to a checkpoint of the run, and fill the attributes with it; `LockTimeout` if a process works on it.

        await run.rewind("@~2")
        """
        return await self._runner(self._core.rewind(at))

    async def undo(self) -> Checkpoint:
        """Take back the last checkpoint or rewind, and fill the attributes with the one before."""
        return await self._runner(self._core.undo())

    async def redo(self) -> Checkpoint:
        """Do again what the last `undo` took back, and fill the attributes with it."""
        return await self._runner(self._core.redo())

    async def finish(self) -> None:
        """Delete the run, because it succeeded; a missing run is not an error."""
        await self._runner(self._core.finish())

    async def __aenter__(self) -> AsyncRun:
        start = time.monotonic()
        while (taken := await self._runner(self._core.acquire())) is not None:
            waited = time.monotonic() - start
            if waited >= self._timeout:
                raise self._core.refused(round(waited, 2), taken)
            await asyncio.sleep(min(POLL, self._timeout - waited))
        try:
            await self._runner(self._core.start())
        except BaseException:
            await self._runner(self._core.release())
            raise
        self._heart = asyncio.create_task(self._beat(), name=f"backtrail run {self.id}")
        return self

    async def _beat(self) -> None:
        """Renew the lease until the run is done, or another owner has it: then the next checkpoint is refused."""
        while True:
            await asyncio.sleep(TTL / 3)
            try:
                if not await self._renewed():
                    return
            except Unavailable:
                continue  # the store may come back before the lease runs out

    async def _renewed(self) -> bool:
        """Renew once. A run that ends waits for it: one that goes on in a thread would take the lease again later."""
        going = asyncio.ensure_future(self._runner(self._core.renew()))
        try:
            return await asyncio.shield(going)
        except asyncio.CancelledError:
            await asyncio.gather(going, return_exceptions=True)
            raise

    async def __aexit__(self, kind: Raised, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._heart is not None:
            self._heart.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._heart
        try:
            if kind is None:
                await self._runner(self._core.finish())
        finally:
            await self._runner(self._core.release())

    def __repr__(self) -> str:
        return f"<backtrail.AsyncRun {self.id!r} iteration {self.iteration}>"
