"""`backtrail verify`: is every byte what it was?"""

from __future__ import annotations

import click

from backtrail.cli.context import DAMAGED, Command, CommandContext, confirm, pass_frame, yes_option


@click.command(cls=Command, epilog="\b\nExamples:\n  backtrail verify\n  backtrail verify --repair --json --yes")
@click.option("--repair", is_flag=True, help="Set aside what is damaged; threads go back to a sound checkpoint.")
@yes_option
@pass_frame
def command(frame: CommandContext, repair: bool, yes: bool) -> None:
    """Check every digest, chain, pointer, head and count. Leaves with 5 if something does not hold."""
    from backtrail.cli.output import progress, safe

    if repair:
        confirm(frame, "set aside whatever is damaged", yes=yes)
    with frame.store() as store, progress("verifying") as step:
        found = store.verify(repair, step)
    if frame.json:
        import msgspec

        frame.answer({"ok": found.ok} | msgspec.to_builtins(found))
    else:
        click.echo(safe(str(found)))
        if found.problems and not repair:
            click.echo("`backtrail verify --repair` keeps all that is sound and sets the rest aside")
    if found.problems and not found.repaired:
        raise click.exceptions.Exit(DAMAGED)
