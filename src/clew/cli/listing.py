"""Threads as a table: the same for `threads`, `sessions` and `runs`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from clew import ThreadInfo
from clew.cli.screen import age, line, paged, size


def show(found: Sequence[ThreadInfo], columns: Mapping[str, Sequence[str]], *, more: bool, nothing: str) -> None:
    """Print the table, or `nothing`; `columns` come between a thread's name and its size."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("thread", overflow="fold", ratio=1)
    for name in columns:
        table.add_column(name, justify="right")
    table.add_column("step", justify="right", style="step")
    table.add_column("size", justify="right", style="size")
    table.add_column("updated", justify="right", style="age")
    for i, info in enumerate(found):
        between = [Text(line(values[i])) for values in columns.values()]
        table.add_row(Text(line(info.id)), *between, str(info.step), size(info.size), age(info.updated_at))
    with paged() as out:
        out.print(table if found else Text(nothing, "dim"))
        if more:
            out.print(Text("… and more: raise --limit, or give a prefix", "dim"))
