"""The entry point of the command. Agents wait for `backtrail hook`: it starts without what the other commands need."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["hook"] and not {"-h", "--help"} & set(arguments):
        from backtrail.agents import hook

        hook.main(arguments[1:])
    from backtrail.cli.main import main as run_command

    run_command()
