"""A framework's call as a step of the current run: the one whose block this code is in.

A framework's async code may be inside of a sync run, and its sync code, in a thread, inside of an async one: the step
is done where the run lives, and the function where it was called.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from backtrail.adapters.sync_bridge import maybe_await
from backtrail.aio import AsyncRun
from backtrail.errors import InvalidInput, Suspended
from backtrail.run import Run
from backtrail.run.commands import current_run, in_step_of


class Question(NamedTuple):
    """A question of a framework to a person."""

    name: str
    question: Any
    schema: Any = None
    about: Any = None


def run_here() -> Run | AsyncRun | None:
    """The run whose block this code is in; None outside of one, and inside of a step of it, which is recorded as a
    whole. A run that a step of another one began is such a run."""
    scope = current_run.get()
    run = None if scope is None else scope.run
    return run if isinstance(run, Run | AsyncRun) and not in_step_of(run.id) else None


def require_run(what: str) -> Run | AsyncRun:
    """The run whose block this code is in. `InvalidInput` outside of one: nothing would be recorded."""
    run = run_here()
    if run is None:
        raise InvalidInput(
            f"{what} was called outside of a run, or inside a step: start the agent within `with store.run(id) as run:`"
        )
    return run


async def step_async(
    run: Run | AsyncRun, name: str, function: Callable[..., Any], *args: Any, key: str | None, **options: Any
) -> Any:
    """A step from async code. What the function gives is awaited, if it can be."""
    if isinstance(run, AsyncRun):
        return await run.step(name, function, *args, key=key, **options)
    loop = asyncio.get_running_loop()

    async def call(given: tuple[Any, ...]) -> Any:
        result = function(*given)
        return await result if inspect.isawaitable(result) else result

    def in_loop(*given: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(call(given), loop).result()

    return await asyncio.to_thread(run.step, name, in_loop, *args, key=key, **options)


def step_sync(
    run: Run | AsyncRun, name: str, function: Callable[..., Any], *args: Any, key: str | None, **options: Any
) -> Any:
    """A step from sync code, which is in a thread if the run is async."""
    if isinstance(run, Run):
        return run.step(name, function, *args, key=key, **options)
    scope = current_run.get()
    loop = None if scope is None else scope.loop
    if not isinstance(loop, asyncio.AbstractEventLoop) or loop is _running_loop():
        raise InvalidInput(
            f"step {name!r} blocks the event loop of its run: call it from a thread, or use the async method"
        )

    async def in_thread(*given: Any) -> Any:
        return await asyncio.to_thread(function, *given)

    async def step() -> Any:
        return await run.step(name, in_thread, *args, key=key, **options)

    return asyncio.run_coroutine_threadsafe(step(), loop).result()


async def ask_all(run: Run | AsyncRun, questions: Sequence[Question]) -> list[Any]:
    """The answers to some questions. All are asked before one of them is waited for: `Suspended` names them all."""
    answers: list[Any] = []
    suspended: Suspended | None = None
    for one in questions:
        try:
            answers.append(await maybe_await(run.ask(one.name, one.question, one.schema, about=one.about)))
        except Suspended as waits:
            suspended = waits
    if suspended is not None:
        raise suspended
    return answers


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
