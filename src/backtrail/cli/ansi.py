"""Coloured lines in ANSI codes, for `backtrail log`: importing rich would take longer than drawing the graph."""

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
    """A piece of a line in one style."""

    text: str
    style: str = ""


Line = Sequence[Span]


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines: on a terminal in colour, cut to its width and paged; in a pipe whole and plain."""
    terminal = sys.stdout.isatty() or bool(os.environ.get("FORCE_COLOR"))
    if not terminal:
        for line in lines:
            click.echo("".join(span.text for span in line).rstrip())
        return
    columns, rows = shutil.get_terminal_size()
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    rendered = [_render(_truncate(line, columns), plain) for line in lines]
    if len(rendered) < rows or os.environ.get("BACKTRAIL_PAGER") == "off":
        click.echo("\n".join(rendered), color=True)
        return
    os.environ.setdefault("LESS", "-FRX")
    click.echo_via_pager("\n".join(rendered) + "\n", color=True)


def _render(line: Line, plain: bool) -> str:
    return "".join(span.text if plain else _colour(span) for span in line)


def _colour(span: Span) -> str:
    attributes = [word for name in span.style.split() for word in STYLES.get(name, name).split()]
    codes = ";".join(str(_CODES[attribute]) for attribute in attributes)
    return f"\x1b[{codes}m{span.text}\x1b[0m" if codes else span.text


def _truncate(line: Line, columns: int) -> Line:
    """Cut a line to `columns`; a line that was cut ends in an ellipsis."""
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
