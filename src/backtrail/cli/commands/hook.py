"""`backtrail hook`: handle one event of a coding agent. `cli/entry.py` starts it without this module, which helps."""

from __future__ import annotations

import subprocess
import sys

import click

from backtrail.cli.context import Command


@click.command(
    cls=Command,
    context_settings={"ignore_unknown_options": True},
    epilog="\b\nExample:\n  backtrail hook claude < event.json",
)
@click.argument("agent", nargs=-1, type=click.UNPROCESSED, metavar="AGENT")
def command(agent: tuple[str, ...]) -> None:
    """Handle one event of AGENT (claude, codex, gemini, opencode), which is read from standard input as JSON.

    `backtrail agents install` tells the agents to run it. It exits with 0, or with 1 if the event was not captured, and
    prints nothing but the answer to a prompt such as `backtrail log`. The agent waits for it at most
    BACKTRAIL_HOOK_SECONDS (10); its log is hook.log in the directory of the store.
    """
    ran = subprocess.run([sys.executable, "-m", "backtrail.cli", "hook", *agent], check=False)
    raise click.exceptions.Exit(ran.returncode)
