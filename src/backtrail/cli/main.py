"""The table of commands and the entry point. A command's module is imported only when it is called."""

from __future__ import annotations

import contextlib
import importlib
import keyword
import signal
from typing import NamedTuple

import click

from backtrail.cli.context import CommandContext, run


class CommandEntry(NamedTuple):
    """A command's section and summary in `backtrail --help`."""

    group: str
    summary: str


LOOK, CHANGE, MOVE, MAINTAIN = "Look", "Change", "Import and export", "Look after the store"
CODING_AGENTS = "Coding agents"
COMMANDS: dict[str, CommandEntry] = {
    "threads": CommandEntry(LOOK, "List threads, newest first."),
    "sessions": CommandEntry(LOOK, "List conversations, newest first."),
    "runs": CommandEntry(LOOK, "List runs: those that have not finished, or by status."),
    "steps": CommandEntry(LOOK, "List the recorded steps of a run."),
    "pending": CommandEntry(LOOK, "List questions that wait for an answer."),
    "log": CommandEntry(LOOK, "Draw a thread's history as a graph."),
    "show": CommandEntry(LOOK, "Show a state: messages as a conversation, the rest as a tree."),
    "tail": CommandEntry(LOOK, "Print the last messages of a thread, and follow it."),
    "diff": CommandEntry(LOOK, "Show what changed between two checkpoints."),
    "find": CommandEntry(LOOK, "Find checkpoints by label, tag, custom field or text."),
    "ui": CommandEntry(LOOK, "Open the web inspector."),
    "fork": CommandEntry(CHANGE, "Start a new thread at a checkpoint."),
    "rewind": CommandEntry(CHANGE, "Move a thread's head to another checkpoint; go back in an agent's session."),
    "revert": CommandEntry(CHANGE, "Take back what one turn of a coding agent did to the files."),
    "undo": CommandEntry(CHANGE, "Take back the last move of a thread's head."),
    "redo": CommandEntry(CHANGE, "Do again what undo took back."),
    "label": CommandEntry(CHANGE, "Give a checkpoint a name."),
    "tag": CommandEntry(CHANGE, "Add tags to a checkpoint, or remove them."),
    "rm": CommandEntry(CHANGE, "Delete threads, or one checkpoint."),
    "answer": CommandEntry(CHANGE, "Answer a question of a run."),
    "submit": CommandEntry(CHANGE, "Begin a run for a worker."),
    "work": CommandEntry(CHANGE, "Do the runs that were submitted."),
    "files": CommandEntry(CHANGE, "Snapshots of a directory: take, compare, restore."),
    "agents": CommandEntry(
        CODING_AGENTS, "Capture Claude Code, Codex, Gemini CLI and opencode: install, status, import."
    ),
    "hook": CommandEntry(CODING_AGENTS, "Handle one event of an agent; the agents run it."),
    "mcp": CommandEntry(CODING_AGENTS, "Serve an agent's own session to it, over MCP; the agents start it."),
    "import": CommandEntry(MOVE, "Import sessions and runs of other programs."),
    "export": CommandEntry(MOVE, "Write a conversation or a state to a file."),
    "copy": CommandEntry(MOVE, "Copy everything into another store."),
    "sync": CommandEntry(MOVE, "Make two stores equal."),
    "prune": CommandEntry(MAINTAIN, "Delete old checkpoints."),
    "compact": CommandEntry(MAINTAIN, "Return freed space to the disk."),
    "verify": CommandEntry(MAINTAIN, "Check every byte, and set damaged parts aside."),
    "rekey": CommandEntry(MAINTAIN, "Replace the key of an encrypted store."),
    "stats": CommandEntry(MAINTAIN, "Print what the store holds and how large it is."),
    "doctor": CommandEntry(MAINTAIN, "Check the environment and the store, and print what to do."),
    "bench": CommandEntry(MAINTAIN, "Measure this store: saves, loads and listings per second."),
}


class CommandTable(click.Group):
    """The commands by name; their modules are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        command = importlib.import_module(f"backtrail.cli.commands.{module}").command
        command.name = cmd_name
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean `backtrail {near[0]}`?" if near else "`backtrail --help` lists the commands."
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for group in dict.fromkeys(entry.group for entry in COMMANDS.values()):
            with formatter.section(group):
                formatter.write_dl([(n, e.summary) for n, e in COMMANDS.items() if e.group == group], col_max=12)


EPILOG = """\b
Examples:
  backtrail log support-42            the history of a thread, as a graph
  backtrail show support-42 @~2       the state two checkpoints before the head
  backtrail diff support-42 12 @      what changed since step 12
  backtrail ui                        the same, in the browser

\b
The store is -s/--store, else $BACKTRAIL_STORE, else backtrail.db in this directory.
A checkpoint is @ (the head), @~2 (two before), a step, a label, or the start of an id."""


@click.command(
    cls=CommandTable,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
    no_args_is_help=False,
)
@click.option("-s", "--store", metavar="URL", help="A path or URL: agents.db, jsonl:DIR, redis://…, postgresql://…")
@click.option("--json", is_flag=True, help="Print JSON.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(package_name="backtrail", message="backtrail %(version)s")
@click.pass_context
def backtrail(ctx: click.Context, store: str | None, json: bool, debug: bool) -> None:
    """Look at what agents did, and go back.

    backtrail keeps the state of AI agents: every step is a checkpoint that can be resumed, rewound to, forked or
    compared.
    """
    context = ctx.ensure_object(CommandContext)
    context.url = store or context.url
    context.json = json or context.json
    context.debug = debug or context.debug
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main() -> None:
    """Entry point of the command `backtrail`."""
    with contextlib.suppress(AttributeError, ValueError):  # Windows has no such signal
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `backtrail log | head` just ends
    run(backtrail)
