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
    """The step that is going on: its run and its idempotency key."""

    run: object
    key: str
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


def step_key() -> str:
    """The idempotency key of the step that is going on: the same in each attempt, and each time the run is resumed.

        def charge(order):
            return payments.charge(order.total, idempotency_key=backtrail.step_key())

    Pass it to a service that does what it is asked only once for each key.
    """
    scope = current_step.get()
    if scope is None:
        raise InvalidInput("step_key() is for functions that run.step() calls: no step is going on here")
    return scope.key
