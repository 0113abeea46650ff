"""Coloured lines by hand, for `backtrail log`: importing rich would take longer than drawing the graph."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import click

from backtrail.cli.formatting import STYLES

_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36}


class Span(NamedTuple):
    """Some text in one style."""

    text: str
    style: str = ""


Line = Sequence[Span]


def show(lines: Iterable[Line]) -> None:
    """Print lines: cut to the terminal's width, in colour and paged there; whole and plain in a pipe."""
    terminal = sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))
    if not terminal:
        for line in lines:
            click.echo("".join(span.text for span in line).rstrip())
        return
    columns, rows = shutil.get_terminal_size()
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    drawn = [_draw(_cut(line, columns), plain) for line in lines]
    if len(drawn) < rows or os.environ.get("BACKTRAIL_PAGER") == "off":
        click.echo("\n".join(drawn), color=True)
        return
    os.environ.setdefault("LESS", "-FRX")
    click.echo_via_pager("\n".join(drawn) + "\n", color=True)


def _draw(line: Line, plain: bool) -> str:
    return "".join(span.text if plain else _paint(span) for span in line)


def _paint(span: Span) -> str:
    words = [word for name in span.style.split() for word in STYLES.get(name, name).split()]
    codes = ";".join(str(_CODES[word]) for word in words)
    return f"\x1b[{codes}m{span.text}\x1b[0m" if codes else span.text


def _cut(line: Line, columns: int) -> Line:
    """The line in at most so many columns; what does not fit ends in an ellipsis."""
    if sum(_width(character) for span in line for character in span.text) <= columns:
        return line
    kept: list[Span] = []
    left = columns - 1
    for span in line:
        for i, character in enumerate(span.text):
            left -= _width(character)
            if left < 0:
                return [*kept, Span(span.text[:i] + "…", span.style)]
        kept.append(span)
    return kept


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
