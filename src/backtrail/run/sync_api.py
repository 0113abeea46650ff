"""`Run`: a thread seen as a durable job. Inside `with`, a thread renews the lease: a step may take long."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Iterable
from functools import wraps
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from msgspec import UNSET

from backtrail.engines.coroutines import finish
from backtrail.errors import InvalidInput
from backtrail.history.thread_lock import POLL
from backtrail.history.validation import check_seconds
from backtrail.model import At, Checkpoint, Status
from backtrail.run import forking, questions, steps
from backtrail.run.commands import Call, Commands, Pause, Write, current_step, enter_run, leave_run
from backtrail.run.heartbeat import Heartbeat
from backtrail.run.model import Done, Failure, Key, Outcome, Retry, StepInfo
from backtrail.run.run_core import RunCore
from backtrail.run.steps import OnChange, StepOptions
from backtrail.run.times import check_moment
from backtrail.thread import Thread
from backtrail.thread.views import ThreadView
from backtrail.typing import Files

P = ParamSpec("P")
T = TypeVar("T")
Raised = type[BaseException] | None


class Attributes:
    """The state of a run as plain attributes, for `Run` and `AsyncRun`."""

    _core: RunCore

    @property
    def id(self) -> str:
        """The name of the run."""
        return self._core.id

    @property
    def task(self) -> str:
        """The task of the run, "" if it has none."""
        return self._core.task

    @property
    def iteration(self) -> int:
        """The number of iterations that were saved."""
        return self._core.iteration

    @property
    def messages(self) -> list[Any]:
        """The conversation; it may be changed in place, and is saved by the next checkpoint."""
        return self._core.messages

    @messages.setter
    def messages(self, messages: list[Any]) -> None:
        self._core.messages = messages

    @property
    def system_prompt(self) -> str:
        """The system prompt; a new one is saved by the next checkpoint."""
        return self._core.system_prompt

    @system_prompt.setter
    def system_prompt(self, text: str) -> None:
        self._core.system_prompt = text

    @property
    def input_tokens(self) -> int:
        """The total of input tokens; a new one is saved by the next checkpoint."""
        return self._core.input_tokens

    @input_tokens.setter
    def input_tokens(self, total: int) -> None:
        self._core.input_tokens = total

    @property
    def output_tokens(self) -> int:
        """The total of output tokens; a new one is saved by the next checkpoint."""
        return self._core.output_tokens

    @output_tokens.setter
    def output_tokens(self, total: int) -> None:
        self._core.output_tokens = total

    @property
    def custom(self) -> dict[str, Any]:
        """Other fields of the run: a model's name, the first prompt, a count of errors."""
        return self._core.custom

    @property
    def status(self) -> Status:
        """The status of the run when it was last read or written: "running", "waiting", "finished", …."""
        return self._core.status

    @property
    def input(self) -> Any:
        """What `store.submit` was given for the run."""
        return self._core.input

    @property
    def result(self) -> Any:
        """The result of the run; one that is assigned is saved when the block is left."""
        return self._core.result

    @result.setter
    def result(self, value: Any) -> None:
        self._core.result = value

    @property
    def error(self) -> Failure | None:
        """The error that the run failed with, if it did."""
        return self._core.error


class Run(Attributes, ThreadView):
    """A thread seen as a durable job: `with` resumes it, its steps are done once, and it is kept when it ends.

    with store.run("run-7", task="nightly") as run:
        plan = run.step("plan", make_plan, run.task)
        if run.ask("ok?", plan, schema=bool):
            run.result = run.step("carry out", carry_out, plan)
    """

    def __init__(self, core: RunCore, timeout: float = 0.0) -> None:
        self._core = core
        self.thread: Thread[dict[str, Any]] = Thread(core.thread)  #: the same run, as checkpoints
        self._timeout = timeout
        self._writing = threading.Lock()
        self._heart: Heartbeat | None = None

    def exists(self) -> bool:
        """True if there is a checkpoint to resume from."""
        return finish(self._core.exists())

    def resume(self) -> Checkpoint:
        """Fill the attributes with the last checkpoint, and return it.

        `ThreadNotFound` is raised if there is none, `LockTimeout` if a process is working on the run, and `Corrupt` for
        a damaged one, which is never mistaken for a new run.
        """
        return finish(self._core.resume())

    def checkpoint(
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

            run.checkpoint(input_tokens=1200, custom={"model": "small"})

        The iteration goes up by one. Token counts are totals; `label`, `tags` and `files` are as in `thread.save`, and
        the fields of `custom` are added to `run.custom`.
        """
        with self._writing:
            return finish(
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
        function: Callable[..., T],
        /,
        *args: Any,
        key: Key | None = None,
        retry: Retry | None = None,
        at_most_once: bool = False,
        check: Callable[..., Done | None] | None = None,
        on_change: OnChange = "raise",
        raises: tuple[type[Exception], ...] = (),
        **kwargs: Any,
    ) -> T: ...
    @overload
    def step(self, name: Callable[P, T], /) -> Callable[P, T]: ...
    @overload
    def step(
        self,
        name: str | None = None,
        /,
        *,
        key: Callable[..., Key] | None = None,
        retry: Retry | None = None,
        at_most_once: bool = False,
        check: Callable[..., Done | None] | None = None,
        on_change: OnChange = "raise",
        raises: tuple[type[Exception], ...] = (),
    ) -> Callable[[Callable[P, T]], Callable[P, T]]: ...
    def step(
        self,
        name: str | Callable[..., Any] | None = None,
        function: Callable[..., Any] | None = None,
        /,
        *args: Any,
        key: Any = None,
        retry: Retry | None = None,
        at_most_once: bool = False,
        check: Callable[..., Done | None] | None = None,
        on_change: OnChange = "raise",
        raises: tuple[type[Exception], ...] = (),
        **kwargs: Any,
    ) -> Any:
        """Call a function once: its result is saved before it is returned, and handed out when the run is resumed.

            page = run.step("fetch", fetch, url)
            page = run.step("fetch", fetch, url, key=url, retry=backtrail.Retry(3, on=(TimeoutError,)))

        Without a function it is a decorator: `@run.step`, or `@run.step("fetch", key=lambda url: url)`.

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
            def call(*args: Any, **kwargs: Any) -> Any:
                own = None if key is None else key(*args, **kwargs)
                options = StepOptions(own, retry, at_most_once, check, on_change, raises)
                return self._drive(steps.step(self._core, called or function.__name__, function, args, kwargs, options))

            return call

        return decorate(name) if callable(name) else decorate

    def ask(
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

            if run.ask("pay?", "Pay this?", schema=bool, about={"tool": "pay", "amount": 12}, expires=3600): ...

        `store.pending()` lists the question, `store.answer()` answers it, and a resume of the run hands the answer out.
        `schema` is the form of an answer: a JSON Schema, or a type such as bool. `about` is what the answer is for; its
        digest is bound to the answer. After `expires` (seconds, a timedelta or a time) `QuestionExpired` is raised.
        `wait` seconds are waited in place first.
        """
        return self._drive(questions.ask(self._core, name, question, about, schema, expires, wait))

    def sleep(self, name: str, seconds: float, *, wait: float = 0.0) -> None:
        """Sleep: raises `Suspended` until the time has come, over restarts too; `wait` seconds are waited in place.

        run.sleep("a day", 86_400)
        """
        self._drive(questions.sleep(self._core, name, check_seconds(seconds, "seconds"), wait))

    def sleep_until(self, name: str, time: dt.datetime, *, wait: float = 0.0) -> None:
        """Sleep until a time, which has a time zone: raises `Suspended` until it has come."""
        self._drive(questions.sleep(self._core, name, check_moment(time), wait))

    def _drive(self, commands: Commands[T]) -> T:
        """Do what a step asks for, in place."""
        try:
            command = next(commands)
            while True:
                try:
                    outcome = self._carry_out(command)
                except BaseException as error:  # noqa: BLE001  # the step decides what comes of it
                    command = commands.throw(error)
                else:
                    command = commands.send(outcome)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]  # StopIteration is untyped

    def _carry_out(self, command: Write | Call | Pause) -> Any:
        if isinstance(command, Write):
            with self._writing:
                return finish(command.make())
        if isinstance(command, Pause):
            time.sleep(command.seconds)
            return None
        token = current_step.set(command.scope)
        try:
            return command.function(*command.args, **command.kwargs)
        finally:
            current_step.reset(token)

    def steps(self) -> list[StepInfo]:
        """List the recorded steps, oldest first."""
        return finish(self._core.step_infos())

    def outcome(self) -> Outcome:
        """Read how the run stands, or how it ended, without resuming it."""
        return finish(self._core.outcome())

    # -- going back, and the end --------------------------------------------------------------------------------------

    def fork(
        self,
        to: str | None = None,
        at: At | None = None,
        *,
        step: str | int | StepInfo | None = None,
        input: Any = UNSET,
    ) -> Run:
        """Fork the run at a checkpoint, or before a recorded step: the fork has the steps before it, and is ready to go
        on, with another input if one is given.

            other = run.fork("again", step="plan", input={"tone": "friendly"})

        A step is named by its name, its number in `steps()` (from 1), or one of these itself. `to` names the fork.
        """
        return Run(finish(forking.fork(self._core, to, at, step, input)))

    def rewind(self, at: At) -> Checkpoint:
        """Go back to a checkpoint of the run, and fill the attributes with it; `LockTimeout` if a process works on it.

        run.rewind("@~2")
        """
        return finish(self._core.rewind(at))

    def undo(self) -> Checkpoint:
        """Take back the last checkpoint or rewind, and fill the attributes with the one before."""
        return finish(self._core.undo())

    def redo(self) -> Checkpoint:
        """Do again what the last `undo` took back, and fill the attributes with it."""
        return finish(self._core.redo())

    def finish(self, result: Any = None, delete: bool = False) -> None:
        """End the run, because it succeeded, with this result; with `delete`, delete it. Twice is not an error."""
        with self._writing:
            finish(self._core.finish(result, delete))

    def __enter__(self) -> Run:
        self._core.check_not_entered()
        start = time.monotonic()
        while (taken := finish(self._core.acquire())) is not None:
            waited = time.monotonic() - start
            if waited >= self._timeout:
                raise self._core.refused(round(waited, 2), taken)
            time.sleep(min(POLL, self._timeout - waited))
        try:
            finish(self._core.start())
        except BaseException:
            finish(self._core.release())
            raise
        self._heart = Heartbeat(self._core, self._writing)
        enter_run(self)
        return self

    def __exit__(self, kind: Raised, error: BaseException | None, trace: TracebackType | None) -> None:
        leave_run(self)
        if self._heart is not None:
            self._heart.stop()
        with self._writing:
            try:
                finish(self._core.leave(error))
            finally:
                finish(self._core.release())

    def __repr__(self) -> str:
        return f"<backtrail.Run {self.id!r} {self.status}, iteration {self.iteration}>"
