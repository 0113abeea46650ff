"""What a step asks of its caller, so that the sync and the async API share one text.

A step, a question and a sleep are generators. They yield what has to be done: write to the store, call a function, or
wait for a while. `Run` does it in place, `AsyncRun` awaits it; both send back what came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

from backtrail.errors import InvalidInput

T = TypeVar("T")


class Write(NamedTuple):
    """Run a coroutine of the run, while no other call of this handle writes."""

    make: Callable[[], Coroutine[Any, Any, Any]]


class StepScope(NamedTuple):
    """The step that is going on: its run and what makes its idempotency key, which few steps ask for."""

    run_id: str
    key: Callable[[], str]
    outer: StepScope | None


class Call(NamedTuple):
    """Call a function of the user."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    scope: StepScope | None = None


class Pause(NamedTuple):
    """Wait for some seconds."""

    seconds: float


Commands = Generator[Write | Call | Pause, Any, T]

current_step: ContextVar[StepScope | None] = ContextVar("current_step", default=None)


def in_step_of(run_id: str) -> bool:
    """True inside of a step of this run, also if that step began a run of its own."""
    scope = current_step.get()
    while scope is not None and scope.run_id != run_id:
        scope = scope.outer
    return scope is not None


class RunScope(NamedTuple):
    """The run whose block this code is in, the event loop that an async one lives in, and the block around it."""

    run: object
    loop: object
    outer: RunScope | None


current_run: ContextVar[RunScope | None] = ContextVar("current_run", default=None)


def enter_run(run: object, loop: object = None) -> None:
    """The block of a run begins here."""
    current_run.set(RunScope(run, loop, current_run.get()))


def leave_run(run: object) -> None:
    """The block of a run ends here. Blocks may be left in another order than entered, or by another task."""
    scope = current_run.get()
    if scope is not None and scope.run is run:
        current_run.set(scope.outer)


def step_key() -> str:
    """The idempotency key of the step that is going on: the same in each attempt, and each time the run is resumed.

        def charge(order):
            return payments.charge(order.total, idempotency_key=backtrail.step_key())

    Pass it to a service that does what it is asked only once for each key.
    """
    scope = current_step.get()
    if scope is None:
        raise InvalidInput("step_key() is for functions that run.step() calls: no step is going on here")
    return scope.key()
