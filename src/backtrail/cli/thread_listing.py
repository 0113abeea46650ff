"""A page of threads, printed as JSON or as a table: the common part of `threads`, `sessions` and `runs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from backtrail.cli.context import CommandContext, limit_option
from backtrail.cli.formatting import age, one_line, size
from backtrail.render.jsonable import short_text

if TYPE_CHECKING:
    from backtrail import ThreadInfo

Info = TypeVar("Info", bound="ThreadInfo")

_MIN_NAME_WIDTH = 24  # columns that a long name needs at least to be distinguished from others
_MIN_TEXT_WIDTH = 10  # columns that a shortened text keeps at least
_STYLES = {"step": "step", "size": "size", "updated": "age"}


prefix_argument = click.argument("prefix", default="")
page_limit_option = limit_option(200, "Maximum number of lines.")


def print_page(
    context: CommandContext,
    noun: str,
    found: Sequence[Info],
    limit: int,
    *,
    columns: Mapping[str, Callable[[Info], object]],
    kept: Sequence[str] = (),
    fields: Sequence[str] = (),
    empty: str,
) -> None:
    """Print the first `limit` of `found`, which holds one more if there are more. `columns` are shown between a
    thread's name and its size; those in `kept` are shortened on a narrow terminal, not left out; `fields` are the
    attributes that the JSON has in addition to those of every thread; `empty` is printed instead of a table without
    rows.
    """
    more, page = len(found) > limit, found[:limit]
    if context.json:
        from backtrail.render.json_records import thread_json

        rows = [thread_json(info) | {name: getattr(info, name) for name in fields} for info in page]
        context.print_json({f"{noun}s": rows, "more": more})
        return
    cells = {name: [one_line(str(value(info))) for info in page] for name, value in columns.items()}
    _print_table(page, cells, kept, more=more, empty=empty)


def empty_message(noun: str, prefix: str, kind: str | None = None, namespaces: Sequence[str] = ()) -> str:
    """The reason why a listing is empty; `namespaces` are those in which there may be threads."""
    which = f" of kind {one_line(kind)!r}" if kind else ""
    if namespaces:
        names = ", ".join(map(one_line, namespaces))
        return f"no {noun}s here; there are namespaces, for ?namespace=… in the URL: {names}"
    return f"no {noun}{which} starts with {one_line(prefix)!r}" if prefix else f"no {noun}s{which} yet"


def _print_table(
    page: Sequence[ThreadInfo], cells: dict[str, list[str]], kept: Sequence[str], *, more: bool, empty: str
) -> None:
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    from backtrail.cli.output import paged

    names = [one_line(info.id) for info in page]
    cells["step"] = [str(info.step) for info in page]
    cells["size"] = [size(info.size) for info in page]
    cells["updated"] = [age(info.updated_at) for info in page]
    with paged() as out:
        _fit(cells, min(_MIN_NAME_WIDTH, max(map(cell_len, names), default=0)), out.width, kept)
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("thread", overflow="fold")
        for title in cells:
            table.add_column(title, justify="right", style=_STYLES.get(title, ""), no_wrap=True)
        for info, name, *values in zip(page, names, *cells.values(), strict=True):
            shown = Text(name) if info.damage is None else Text(name).append("  damaged", "removed")
            table.add_row(shown, *map(Text, values))
        out.print(table if page else Text(empty, "dim"))
        for info in page:
            if info.damage is not None:
                out.print(Text(f"{one_line(info.id)} cannot be read: {one_line(info.damage)}", "removed"))
        if more:
            out.print(Text("… and more: raise --limit, or give a prefix", "dim"))


def _fit(cells: dict[str, list[str]], name_width: int, width: int, kept: Sequence[str]) -> None:
    """Make a line fit: leave out sizes, then columns special to this listing, then steps; then shorten the widest of
    the columns that are kept; then leave out the times."""
    special = [title for title in cells if title not in _STYLES and title not in kept]
    for dropped in ("size", *reversed(special), "step"):
        if name_width + _width(cells) <= width:
            return
        del cells[dropped]
    excess = name_width + _width(cells) - width
    if kept and excess > 0:
        widest = max(kept, key=lambda title: _column_width(title, cells[title]))
        room = max(_MIN_TEXT_WIDTH, _column_width(widest, cells[widest]) - excess)
        cells[widest] = [short_text(value, room) for value in cells[widest]]
    if name_width + _width(cells) > width:
        del cells["updated"]


def _width(cells: dict[str, list[str]]) -> int:
    return sum(2 + _column_width(title, values) for title, values in cells.items())


def _column_width(title: str, values: list[str]) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, [title, *values]))
