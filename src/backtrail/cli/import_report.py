"""The report of an import, printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from backtrail.cli.context import CommandContext, ExitCode
from backtrail.cli.formatting import safe

if TYPE_CHECKING:
    from backtrail.importers import Report


def print_report(context: CommandContext, report: Report) -> None:
    """Print a report, and exit with 1 if something could not be read."""
    if context.json:
        context.print_json(msgspec.to_builtins(report))
    else:
        click.echo(safe(str(report)))
    if report.failed:
        raise click.exceptions.Exit(ExitCode.FAILED)
