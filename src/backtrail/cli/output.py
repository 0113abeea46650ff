"""How things are shown: colour and a pager on a terminal, plain text in a pipe, JSON where it was asked for."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator

import click
from rich.console import Console
from rich.text import Text
from rich.theme import Theme

from backtrail.cli.formatting import STYLES, age, line, safe, size

__all__ = ["PIPE", "age", "console", "line", "marks", "paged", "progress", "safe", "size"]

THEME = Theme(STYLES)
PIPE = 100_000_000  # columns, where nobody looks at the width: a line stays a line, for grep


def console(*, width: int | None = None, force: bool = False) -> Console:
    """A console on stdout; `force` keeps colour although the text is captured."""
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
    """A console whose output is paged where it is longer than the terminal."""
    out = console()
    if not out.is_terminal or os.environ.get("BACKTRAIL_PAGER", "") == "off":
        yield out if out.is_terminal else console(width=PIPE)
        return
    with out.capture() as captured:
        yield out
    text = captured.get()
    if text.count("\n") < out.height:
        click.echo(text, nl=False, color=True)
        return
    os.environ.setdefault("LESS", "-FRX")
    click.echo_via_pager(text, color=True)


Progress = Callable[[int, int | None], None]


def _unseen(_done: int, _total: int | None) -> None:
    """Progress that nobody watches."""


@contextlib.contextmanager
def progress(title: str) -> Iterator[Progress]:
    """A bar on stderr for long work; the callback takes how much is done and, if it is known, of how much."""
    if not sys.stderr.isatty():
        yield _unseen
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

        def told(done: int, total: int | None) -> None:
            bar.update(task, completed=done, total=total)

        yield told


def marks(label: str | None, tags: tuple[str, ...]) -> Text:
    """Label and tags of a checkpoint."""
    text = Text()
    if label:
        text.append(f"[{line(label)}]", "label")
    for tag in tags:
        text.append(" " if text.plain else "")
        text.append(f"#{line(tag)}", "tag")
    return text
