"""Threads as a table: the same for `threads`, `sessions` and `runs`. A narrow terminal gets fewer columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from backtrail import ThreadInfo
from backtrail.cli.output import age, line, paged, size

_NAME = 24  # columns that a long name needs at least to be told from others
_STYLES = {"step": "step", "size": "size", "updated": "age"}


def show(found: Sequence[ThreadInfo], columns: Mapping[str, Sequence[str]], *, more: bool, nothing: str) -> None:
    """Print the table, or `nothing`; `columns` come between a thread's name and its size."""
    names = [line(info.id) for info in found]
    facts: dict[str, list[str]] = {name: [line(value) for value in values] for name, values in columns.items()}
    facts["step"] = [str(info.step) for info in found]
    facts["size"] = [size(info.size) for info in found]
    facts["updated"] = [age(info.updated_at) for info in found]
    with paged() as out:
        _fit(facts, min(_NAME, max(map(cell_len, names), default=0)), out.width)
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("thread", overflow="fold")
        for name in facts:
            table.add_column(name, justify="right", style=_STYLES.get(name, ""), no_wrap=True)
        for name, *values in zip(names, *facts.values(), strict=True):
            table.add_row(Text(name), *map(Text, values))
        out.print(table if found else Text(nothing, "dim"))
        if more:
            out.print(Text("… and more: raise --limit, or give a prefix", "dim"))


def nothing(noun: str, prefix: str, kind: str | None = None, rooms: Sequence[str] = ()) -> str:
    """Why a listing is empty; `rooms` are namespaces in which there may be more."""
    which = f" of kind {line(kind)!r}" if kind else ""
    if rooms:
        return f"no {noun}s here; there are namespaces, for ?namespace=… in the URL: {', '.join(map(line, rooms))}"
    return f"no {noun}{which} starts with {line(prefix)!r}" if prefix else f"no {noun}s{which} yet"


def _fit(facts: dict[str, list[str]], name: int, width: int) -> None:
    """Leave out what is least missed until a line fits: sizes, then what is special to this listing, then steps."""
    special = [fact for fact in facts if fact not in _STYLES]
    for fact in ("size", *reversed(special), "step"):
        needed = sum(2 + max(map(cell_len, [title, *values])) for title, values in facts.items())
        if name + needed <= width:
            return
        del facts[fact]
