"""`backtrail work`: do the runs that were submitted."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from backtrail.cli.context import Command, CommandContext, print_line, with_context
from backtrail.errors import InvalidInput


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail work agents:tasks --workers 4\n  backtrail work agents:summarise --drain",
)
@click.argument("tasks", metavar="MODULE:NAME")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Runs that are done at once.")
@click.option("--drain", is_flag=True, help="End once nothing is ready or due.")
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    help="Seconds to wait for runs when stopping.",
)
@with_context
def command(context: CommandContext, tasks: str, workers: int, drain: bool, grace: float) -> None:
    """Do runs that were submitted, until SIGTERM or SIGINT.

    NAME in MODULE is a dict of tasks and functions, or one function, whose name is the task.
    """
    found = load_tasks(tasks)
    if any(_is_async(function) for function in found.values()):
        taken = _work_async(context, found, workers, drain, grace)
    else:
        with context.store(create=True) as store:
            taken = store.work(found, workers, drain=drain, grace=grace)
    if context.json:
        context.print_json({"runs": taken})
    else:
        print_line(f"{taken} runs were taken up")


def load_tasks(place: str) -> dict[str, Callable[..., Any]]:
    """The tasks that `module:name` means; the directory of the caller is looked in first, as `python -m` does."""
    module, _, name = place.partition(":")
    if not module or not name:
        raise InvalidInput(f"{place!r} does not name tasks: write module:name, such as agents:tasks")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"{place!r} cannot be loaded: {error}") from error
    if isinstance(found, Mapping):
        return dict(found)
    if callable(found):
        return {getattr(found, "__name__", name): found}
    raise InvalidInput(f"{place!r} is a {type(found).__qualname__}, not a dict of tasks or a function")


def _is_async(function: object) -> bool:
    import inspect

    return inspect.iscoroutinefunction(function)


def _work_async(
    context: CommandContext, tasks: dict[str, Callable[..., Any]], workers: int, drain: bool, grace: float
) -> int:
    import asyncio

    import backtrail.aio

    async def work() -> int:
        key: Any = {"key": context.keys} if context.keys else {}
        async with await backtrail.aio.open(context.target, **key) as store:
            return await store.work(tasks, workers, drain=drain, grace=grace)

    return asyncio.run(work())
