"""`AsyncRun`: the names of `Run`, to be awaited. Inside `async with`, a task renews the lease."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from msgspec import UNSET

from backtrail.async_runner import AsyncRunner, AwaitableList
from backtrail.errors import BacktrailError, InvalidInput, Suspended, Unavailable
from backtrail.history.thread_lock import POLL
from backtrail.history.validation import check_seconds
from backtrail.html_table import html_table
from backtrail.model import At, Checkpoint
from backtrail.run import forking, questions, steps
from backtrail.run.commands import Call, Commands, Pause, Write, current_step, enter_run, leave_run
from backtrail.run.failures import is_suspension
from backtrail.run.lease import TTL
from backtrail.run.model import Done, Key, Outcome, Retry, StepInfo
from backtrail.run.run_core import RunCore
from backtrail.run.steps import OnChange, StepOptions
from backtrail.run.sync_api import Attributes, Raised
from backtrail.run.times import check_moment
from backtrail.thread.async_api import AsyncThread
from backtrail.thread.views import AsyncThreadView
from backtrail.typing import Files

P = ParamSpec("P")
T = TypeVar("T")


class AsyncRun(Attributes, AsyncThreadView):
    """A thread seen as a durable job: `async with` resumes it, its steps are done once, and it is kept when it ends.

    async with store.run("run-7", task="nightly") as run:
        plan = await run.step("plan", make_plan, run.task)
        if await run.ask("ok?", plan, schema=bool):
            run.result = await run.step("carry out", carry_out, plan)
    """

    def __init__(self, core: RunCore, runner: AsyncRunner, timeout: float = 0.0) -> None:
        self._core = core
        self._runner = runner
        self.thread: AsyncThread[dict[str, Any]] = AsyncThread(core.thread, runner)  #: the same run, as checkpoints
        self._timeout = timeout
        self._writing = asyncio.Lock()
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
        custom: dict[str, Any] | None = None,
    ) -> Checkpoint:
        """Save the run after an iteration; values that are not given are taken from the attributes.

            await run.checkpoint(input_tokens=1200, custom={"model": "small"})

        The iteration goes up by one. Token counts are totals; `label`, `tags` and `files` are as in `thread.save`, and
        the fields of `custom` are added to `run.custom`.
        """
        async with self._writing:
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
                    custom=custom,
                )
            )

    # -- steps, questions and time ------------------------------------------------------------------------------------

    @overload
    def step(
        self,
        name: str,
        function: Callable[..., Awaitable[T]],
        /,
        *args: Any,
        key: Key | None = None,
        retry: Retry | None = None,
        at_most_once: bool = False,
        check: Callable[..., Awaitable[Done | None] | Done | None] | None = None,
        on_change: OnChange = "raise",
        raises: tuple[type[Exception], ...] = (),
        **kwargs: Any,
    ) -> Awaitable[T]: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[..., T],
        /,
        *args: Any,
        key: Key | None = None,
        retry: Retry | None = None,
        at_most_once: bool = False,
        check: Callable[..., Awaitable[Done | None] | Done | None] | None = None,
        on_change: OnChange = "raise",
        raises: tuple[type[Exception], ...] = (),
        **kwargs: Any,
    ) -> Awaitable[T]: ...
    @overload
    def step(self, name: Callable[P, Awaitable[T]], /) -> Callable[P, Awaitable[T]]: ...
    @overload
    def step(
        self,
        name: str | None = None,
        /,
        *,
        key: Callable[..., Key] | None = None,
        retry: Retry | None = None,
        at_most_once: bool = False,
        check: Callable[..., Awaitable[Done | None] | Done | None] | None = None,
        on_change: OnChange = "raise",
        raises: tuple[type[Exception], ...] = (),
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]: ...
    def step(
        self,
        name: str | Callable[..., Any] | None = None,
        function: Callable[..., Any] | None = None,
        /,
        *args: Any,
        key: Any = None,
        retry: Retry | None = None,
        at_most_once: bool = False,
        check: Callable[..., Any] | None = None,
        on_change: OnChange = "raise",
        raises: tuple[type[Exception], ...] = (),
        **kwargs: Any,
    ) -> Any:
        """Call a function once: its result is saved before it is returned, and handed out when the run is resumed.

            page = await run.step("fetch", fetch, url)
            page = await run.step("fetch", fetch, url, key=url, retry=backtrail.Retry(3, on=(TimeoutError,)))

        What the function returns is awaited, if it can be. Without a function it is a decorator: `@run.step`, or
        `@run.step("fetch", key=lambda url: url)`.

        `key` tells steps of one name apart that may come in another order; steps of one name that run at the same time
        need one. `at_most_once` saves that the step was started first: if its process then dies, a resume asks `check`,
        or raises `StepUncertain`. If the step was recorded with other arguments, `StepChanged` is raised, or with
        on_change="rerun" it is done again. Exceptions are recorded and raised; a resume raises those in `raises`, and
        built-in ones, as what they were, others as `StepFailed`.
        """
        if isinstance(name, str) and function is not None:
            options = StepOptions(key, retry, at_most_once, check, on_change, raises)
            return self._drive(steps.step(self._core, name, function, args, kwargs, options))
        if args or kwargs or function is not None:
            raise InvalidInput("run.step() takes a name and a function, or none of them as a decorator")
        called = name if isinstance(name, str) else None

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(function)
            async def call(*args: Any, **kwargs: Any) -> Any:
                own = None if key is None else key(*args, **kwargs)
                options = StepOptions(own, retry, at_most_once, check, on_change, raises)
                return await self._drive(
                    steps.step(self._core, called or function.__name__, function, args, kwargs, options)
                )

            return call

        return decorate(name) if callable(name) else decorate

    async def ask(
        self,
        name: str,
        question: Any,
        schema: Any = None,
        expires: float | dt.timedelta | dt.datetime | None = None,
        *,
        about: Any = None,
        wait: float = 0.0,
    ) -> Any:
        """Ask a person: returns the answer, or saves the question and raises `Suspended`.

            if await run.ask("pay?", "Pay this?", schema=bool, about={"tool": "pay", "amount": 12}, expires=3600): ...

        `store.pending()` lists the question, `store.answer()` answers it, and a resume of the run hands the answer out.
        `schema` is the form of an answer: a JSON Schema, or a type such as bool. `about` is what the answer is for; its
        digest is bound to the answer. After `expires` (seconds, a timedelta or a time) `QuestionExpired` is raised.
        `wait` seconds are waited in place first.
        """
        return await self._drive(questions.ask(self._core, name, question, about, schema, expires, wait))

    async def sleep(self, name: str, seconds: float, *, wait: float = 0.0) -> None:
        """Sleep: raises `Suspended` until the time has come, over restarts too; `wait` seconds are waited in place.

        await run.sleep("a day", 86_400)
        """
        await self._drive(questions.sleep(self._core, name, check_seconds(seconds, "seconds"), wait))

    async def sleep_until(self, name: str, time: dt.datetime, *, wait: float = 0.0) -> None:
        """Sleep until a time, which has a time zone: raises `Suspended` until it has come."""
        await self._drive(questions.sleep(self._core, name, check_moment(time), wait))

    async def _drive(self, commands: Commands[T]) -> T:
        """Do what a step asks for, and await it."""
        try:
            command = next(commands)
            while True:
                try:
                    outcome = await self._carry_out(command)
                except BaseException as error:  # noqa: BLE001  # the step decides what comes of it
                    command = commands.throw(error)
                else:
                    command = commands.send(outcome)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]  # StopIteration is untyped

    async def _carry_out(self, command: Write | Call | Pause) -> Any:
        if isinstance(command, Write):
            async with self._writing:
                return await self._settled(self._runner.together(command.make()))
        if isinstance(command, Pause):
            await asyncio.sleep(command.seconds)
            return None
        token = current_step.set(command.scope)
        try:
            result = command.function(*command.args, **command.kwargs)
            return await result if inspect.isawaitable(result) else result
        finally:
            current_step.reset(token)

    async def _settled(self, work: Coroutine[Any, Any, T]) -> T:
        """Await a write to its end, also if the task is cancelled meanwhile: the run must know what it has saved."""
        going = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(going)
        except asyncio.CancelledError:
            await asyncio.gather(going, return_exceptions=True)
            raise

    def steps(self) -> AwaitableList[StepInfo]:
        """List the recorded steps, oldest first."""
        return AwaitableList(self._runner(self._core.step_infos()))

    async def outcome(self) -> Outcome:
        """Read how the run stands, or how it ended, without resuming it."""
        return await self._runner(self._core.outcome())

    # -- going back, and the end --------------------------------------------------------------------------------------

    async def fork(
        self,
        to: str | None = None,
        at: At | None = None,
        *,
        step: str | int | StepInfo | None = None,
        input: Any = UNSET,
    ) -> AsyncRun:
        """Fork the run at a checkpoint, or before a recorded step: the fork has the steps before it, and is ready to go
        on, with another input if one is given.

            other = await run.fork("again", step="plan", input={"tone": "friendly"})

        A step is named by its name, its number in `steps()` (from 1), or one of these itself. `to` names the fork.
        """
        return AsyncRun(await self._runner(forking.fork(self._core, to, at, step, input)), self._runner)

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

    async def finish(self, result: Any = None, delete: bool = False) -> None:
        """End the run, because it succeeded, with this result; with `delete`, delete it. Twice is not an error."""
        async with self._writing:
            await self._runner(self._core.finish(result, delete))

    async def __aenter__(self) -> AsyncRun:
        self._core.check_not_entered()
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
        enter_run(self, asyncio.get_running_loop())
        return self

    async def _beat(self) -> None:
        """Renew the lease until the run is done, or another owner has it: then the next checkpoint is refused. As in
        `heartbeat`, a worker's run is marked as running first, if it saves nothing for a moment."""
        if self._core.marked_after:
            await asyncio.sleep(self._core.marked_after)
            with contextlib.suppress(BacktrailError):  # the next write of the run raises it
                async with self._writing:
                    await self._settled(self._runner(self._core.mark_running()))
        while True:
            await asyncio.sleep(TTL / 3)
            try:
                if not await self._renewed():
                    return
            except Unavailable:
                continue  # the store may come back before the lease runs out

    async def _renewed(self) -> bool:
        """Renew once. A run that ends waits for it: one that goes on in a thread would take the lease again later."""
        return await self._settled(self._runner(self._core.renew()))

    async def __aexit__(self, kind: Raised, error: BaseException | None, trace: TracebackType | None) -> None:
        leave_run(self)
        if self._heart is not None:
            self._heart.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._heart
        async with self._writing:
            try:
                await self._settled(self._runner(self._core.leave(error)))
            finally:
                await self._settled(self._runner(self._core.release()))
        if error is not None and not isinstance(error, Suspended) and is_suspension(error):
            raise self._core.suspended() from None  # of a group of tasks; the caller need not know of it

    def _repr_html_(self) -> str:
        """For notebooks: what is known of it without reading."""
        rows = [
            ("status", self.status),
            ("iteration", self.iteration),
            ("tokens", f"{self.input_tokens} read, {self.output_tokens} written"),
            ("its steps", "await run.steps()"),
        ]
        return html_table(f"run {self.id}", rows)

    def __repr__(self) -> str:
        return f"<backtrail.AsyncRun {self.id!r} {self.status}, iteration {self.iteration}>"
