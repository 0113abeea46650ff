"""`backtrail bench`: measure the speed of a store from this machine."""

from __future__ import annotations

import statistics
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from backtrail.cli.context import Command, CommandContext, with_context

if TYPE_CHECKING:
    from backtrail import Store, Thread

_TEXT = "The quick brown fox jumps over the lazy dog, and notes what it did on the way. " * 12


@click.command(
    cls=Command, epilog="\b\nExamples:\n  backtrail bench\n  backtrail bench -s redis://localhost --turns 500"
)
@click.option(
    "--turns", metavar="N", type=click.IntRange(10, 100_000), default=200, show_default=True, help="Turns to save."
)
@with_context
def command(context: CommandContext, turns: int) -> None:
    """Measure appends, loads, history and listing. Uses a thread of its own, and deletes it afterwards."""
    from backtrail.cli.output import progress

    with context.store(create=True) as store, progress("measuring") as step:
        figures = _measure(store, turns, step)
    if context.json:
        context.print_json({"turns": turns, "milliseconds": figures})
        return
    from rich.table import Table

    from backtrail.cli.output import console

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("what")
    for name in ("median ms", "p99 ms", "per second"):
        table.add_column(name, justify="right")
    for name, (median, high) in figures.items():
        table.add_row(name, f"{median:.3f}", f"{high:.3f}", f"{1000 / median:,.0f}")
    console().print(table)


def _measure(store: Store, turns: int, step: Callable[[int, int | None], None]) -> dict[str, tuple[float, float]]:
    thread: Thread[Any] = store.thread(f"backtrail-bench-{uuid.uuid4()}")
    times: list[float] = []
    try:
        for turn in range(turns):
            messages = [{"role": "user", "content": _TEXT}, {"role": "assistant", "content": _TEXT}]
            times.append(_time(partial(thread.append, "messages", messages)))
            step(turn + 1, turns)
        return {
            "append a turn": _summary(times),
            "load the state": _repeat(thread.load),
            "last 50 messages": _repeat(lambda: thread.tail("messages", 50)),
            "history": _repeat(thread.history),
            "list 100 threads": _repeat(lambda: store.threads(limit=100, newest_first=True)),
        }
    finally:
        if thread.exists():
            thread.delete()


def _time(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1000


def _repeat(call: Callable[[], Any]) -> tuple[float, float]:
    return _summary([_time(call) for _ in range(20)])


def _summary(times: list[float]) -> tuple[float, float]:
    ordered = sorted(times)
    return round(statistics.median(ordered), 4), round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)], 4)
