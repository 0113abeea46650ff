"""`backtrail answer`: answer a question of a run."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, print_line, with_context
from backtrail.cli.values import value_of


@click.command(
    cls=Command,
    epilog="\b\nExamples:\n  backtrail answer run-7 'ok?' true --by ada\n"
    "  backtrail answer run-7 'how?' '{\"tone\": \"kind\"}'",
)
@click.argument("run")
@click.argument("question")
@click.argument("value")
@click.option("--by", metavar="WHO", help="Who answers.")
@click.option(
    "--digest", metavar="HEX", help="Only if this is the digest of the question, as `backtrail pending` shows it."
)
@with_context
def command(context: CommandContext, run: str, question: str, value: str, by: str | None, digest: str | None) -> None:
    """Answer QUESTION of RUN with VALUE, which is JSON, or text if it is none. The first answer counts."""
    with context.store() as store:
        store.answer(run, question, value_of(value), by=by, digest=digest)
    if context.json:
        context.print_json({"run": run, "question": question})
    else:
        print_line(f"answered {question!r} of {run}: it is ready to go on")
