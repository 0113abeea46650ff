"""What a person reads: a table per workload, then one row per promise."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bench.measure import Outcome, Target


def show(console: Console, outcome: Outcome) -> None:
    """One workload's figures."""
    table = Table(
        title=outcome.title, title_justify="left", title_style="bold", caption=outcome.note, caption_justify="left"
    )
    for number, column in enumerate(outcome.columns):
        table.add_column(column, justify="left" if number == 0 or not _numeric(outcome.rows, number) else "right")
    for row in outcome.rows:
        mine = any(cell.startswith("backtrail") for cell in row[:2])
        table.add_row(*row, style="bold" if mine else None)
    console.print(table)
    console.print()


def show_targets(console: Console, targets: Sequence[Target], quick: bool) -> None:
    """Target, measured, ratio, reached: nothing is left out."""
    title = "What was promised"
    if quick:
        title += " (a quick run, a quarter of the size: the promises are made for a full one)"
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in ("workload", "target", "asked", "measured", "measured / asked", "reached", "note"):
        table.add_column(column, justify="right" if column in ("asked", "measured", "measured / asked") else "left")
    for target in targets:
        reached = "[green]yes[/green]" if target.reached else "[red]no[/red]"
        ratio = f"{target.measured / target.limit:.2f}" if target.limit else ""
        table.add_row(target.workload, target.what, target.asked, target.found, ratio, reached, target.note)
    console.print(table)
    missed = sum(not target.reached for target in targets)
    console.print(f"{len(targets) - missed} of {len(targets)} reached")


def _numeric(rows: list[list[str]], column: int) -> bool:
    return all(row[column][:1].isdigit() or row[column][:1] == "-" for row in rows)
