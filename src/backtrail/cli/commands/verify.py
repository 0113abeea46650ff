"""`backtrail verify`: check every byte of a store, and repair it."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, ExitCode, confirm, with_context, yes_option


@click.command(cls=Command, epilog="\b\nExamples:\n  backtrail verify\n  backtrail verify --repair --json --yes")
@click.option("--repair", is_flag=True, help="Set damaged parts aside; threads return to a sound checkpoint.")
@yes_option
@with_context
def command(context: CommandContext, repair: bool, yes: bool) -> None:
    """Check every digest, chain, pointer, head and count. Exits with 5 if something is damaged."""
    from backtrail.cli.formatting import safe
    from backtrail.cli.output import progress

    if repair:
        confirm(context, "set aside whatever is damaged", yes=yes)
    with context.store() as store, progress("verifying") as step:
        found = store.verify(repair, step)
    if context.json:
        import msgspec

        context.print_json({"ok": found.ok} | msgspec.to_builtins(found))
    else:
        click.echo(safe(str(found)))
        if found.problems and not repair:
            click.echo("`backtrail verify --repair` keeps all that is sound and sets the rest aside")
    if found.problems and not found.repaired:
        raise click.exceptions.Exit(ExitCode.DAMAGED)
