"""How things are shown: colour and a pager on a terminal, plain text in a pipe, JSON where it was asked for."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.text import Text
from rich.theme import Theme

THEME = Theme(
    {
        "step": "bold cyan",
        "id": "dim",
        "age": "dim",
        "label": "bold yellow",
        "tag": "magenta",
        "size": "dim",
        "added": "green",
        "removed": "red",
        "changed": "yellow",
        "user": "bold blue",
        "assistant": "bold green",
        "tool": "magenta",
        "system": "bold yellow",
        "rail": "red",
        "rail.old": "dim",
    }
)


_CONTROL = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"}
_CONTROL |= dict.fromkeys(range(0x7F, 0xA0), "\N{SYMBOL FOR DELETE}")


def safe(text: str) -> str:
    """Stored text for a terminal: control characters become pictures, so that none of them does anything."""
    return text.translate(_CONTROL)


def line(text: str) -> str:
    """`safe`, on one line."""
    return " ".join(safe(text).split())


def console(*, width: int | None = None, force: bool = False) -> Console:
    """A console on stdout; `force` keeps colour although the text is captured."""
    return Console(theme=THEME, highlight=False, soft_wrap=False, width=width, force_terminal=force or None)


@contextlib.contextmanager
def paged() -> Iterator[Console]:
    """A console whose output is paged where it is longer than the terminal."""
    out = console()
    if not out.is_terminal or os.environ.get("CLEW_PAGER", "") == "off":
        yield out if out.is_terminal else console(width=max(out.width, 120))
        return
    with out.capture() as captured:
        yield out
    text = captured.get()
    if text.count("\n") < out.height:
        click.echo(text, nl=False, color=True)
        return
    os.environ.setdefault("LESS", "-FRX")
    click.echo_via_pager(text, color=True)


def print_json(value: Any) -> None:
    """`value` on stdout, on several lines for people, on one line in a pipe."""
    data = msgspec.json.encode(value)
    if sys.stdout.isatty():
        data = msgspec.json.format(data, indent=2)
    click.echo(data.decode())


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


def age(moment: dt.datetime, now: dt.datetime | None = None) -> str:
    """How long ago, in one unit."""
    seconds = ((now or dt.datetime.now(dt.UTC)) - moment).total_seconds()
    for unit, length in (("y", 31_557_600), ("mo", 2_629_800), ("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit} ago"
    return "just now" if seconds < 1 else f"{int(seconds)}s ago"


def size(count: int) -> str:
    """Bytes as people read them."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError


def marks(label: str | None, tags: tuple[str, ...]) -> Text:
    """Label and tags of a checkpoint."""
    text = Text()
    if label:
        text.append(f"[{line(label)}]", "label")
    for tag in tags:
        text.append(" " if text.plain else "")
        text.append(f"#{line(tag)}", "tag")
    return text
