"""Printing with rich: colour and a pager on a terminal, plain text in a pipe, a progress bar on stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator

import click
from rich.console import Console
from rich.text import Text
from rich.theme import Theme

from backtrail.cli.formatting import STYLES, one_line

THEME = Theme(STYLES)
PIPE_WIDTH = 100_000_000  # columns: in a pipe no line is wrapped, so that grep finds it whole


def console(*, width: int | None = None, force: bool = False) -> Console:
    """A console on stdout; `force` keeps colour even if stdout is no terminal."""
    plain = bool(os.environ.get("NO_COLOR"))  # neither colour nor bold, as in `backtrail log`
    return Console(
        theme=THEME,
        highlight=False,
        width=width,
        force_terminal=force or None,
        color_system=None if plain else "auto",
    )


@contextlib.contextmanager
def paged() -> Iterator[Console]:
    """A console whose output is paged if it is longer than the terminal."""
    out = console()
    if not out.is_terminal or os.environ.get("BACKTRAIL_PAGER", "") == "off":
        yield out if out.is_terminal else console(width=PIPE_WIDTH)
        return
    with out.capture() as captured:
        yield out
    text = captured.get()
    if text.count("\n") < out.height:
        click.echo(text, nl=False, color=True)
        return
    os.environ.setdefault("LESS", "-FRX")
    click.echo_via_pager(text, color=True)


def print_lines(lines: Iterable[Text]) -> None:
    """Print the lines of a comparison, paged if there are many."""
    with paged() as out:
        empty = True
        for line in lines:
            out.print(line)
            empty = False
        if empty:
            out.print("nothing differs", style="dim")


Progress = Callable[[int, int | None], None]


def _no_progress(_done: int, _total: int | None) -> None:
    """Progress without a terminal: not shown."""


@contextlib.contextmanager
def progress(title: str) -> Iterator[Progress]:
    """A progress bar on stderr; the callback takes the amount done and the total, if it is known."""
    if not sys.stderr.isatty():
        yield _no_progress
        return
    from rich import progress as bars

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)

        def update(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total)

        yield update


def label_and_tags(label: str | None, tags: tuple[str, ...]) -> Text:
    """A checkpoint's label and tags as coloured text."""
    text = Text()
    if label:
        text.append(f"[{one_line(label)}]", "label")
    for tag in tags:
        text.append(" " if text.plain else "")
        text.append(f"#{one_line(tag)}", "tag")
    return text
