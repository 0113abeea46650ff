"""Threads as a table: the same for `threads`, `sessions` and `runs`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from clew import ThreadInfo
from clew.cli.screen import age, line, paged, size


def show(found: Sequence[ThreadInfo], *, more: bool, nothing: str) -> None:
    """Print the table, or `nothing`."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("thread", overflow="fold", ratio=1)
    table.add_column("kind", style="dim")
    table.add_column("step", justify="right", style="step")
    table.add_column("saved", justify="right", style="dim")
    table.add_column("size", justify="right", style="size")
    table.add_column("updated", justify="right", style="age")
    for info in found:
        table.add_row(
            Text(line(info.id)), info.kind, str(info.step), str(info.count), size(info.size), age(info.updated_at)
        )
    with paged() as out:
        out.print(table if found else Text(nothing, "dim"))
        if more:
            out.print(Text("… and more: raise --limit, or give a prefix", "dim"))
