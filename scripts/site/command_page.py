"""The page of all commands, from the commands themselves: what `backtrail COMMAND --help` prints, with links."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from backtrail.cli.main import COMMANDS
from backtrail.cli.main import backtrail as group

_COMMON = {"store", "json", "debug", "help"}


def command_page() -> str:
    """The page in Markdown."""
    lines = [
        "# Every command",
        "",
        "Generated from the program: usage and options of each command. [The command line](../cli.md) explains them,",
        "with examples and output. Every command also takes `-s/--store`, `--json`, `--debug` and `-h/--help`.",
        "",
    ]
    section = ""
    for name, entry in COMMANDS.items():
        if entry.group != section:
            section = entry.group
            lines += [f"## {section}", ""]
        command = group.get_command(click.Context(group), name)
        assert command is not None
        lines += _describe(command, f"backtrail {name}", 3)
    return "\n".join(lines)


def _describe(command: click.Command, path: str, level: int) -> Iterator[str]:
    yield f"{'#' * level} `{path}`"
    yield ""
    yield inspect.cleandoc(re.sub(r"[\b]\n", "", command.help or ""))
    yield ""
    context = click.Context(command, info_name=path)
    yield "```console"
    yield f"$ {path} {' '.join(command.collect_usage_pieces(context))}"
    yield "```"
    yield ""
    options = [p for p in command.params if isinstance(p, click.Option) and p.name not in _COMMON and not p.hidden]
    if options:
        yield "| option | meaning |"
        yield "| --- | --- |"
        for option in options:
            record = option.get_help_record(context)
            names, meaning = record if record is not None else (", ".join(option.opts), option.help or "")
            yield f"| `{_cell(names)}` | {_cell(meaning)} |"
        yield ""
    if command.epilog:
        examples = re.sub(r"^[\b]\n|^Examples?:\n", "", command.epilog, flags=re.MULTILINE)
        yield "```console"
        yield from (f"$ {line.strip()}" for line in examples.splitlines() if line.strip().startswith("backtrail"))
        yield "```"
        yield ""
    if isinstance(command, click.Group):
        for name, member in command.commands.items():
            yield from _describe(member, f"{path} {name}", level + 1)


def _cell(text: str) -> str:
    """Text of a table's cell: a bar would end it."""
    return " ".join(text.split()).replace("|", "\\|")
