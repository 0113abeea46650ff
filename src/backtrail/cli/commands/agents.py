"""`backtrail agents`: tell coding agents to run the hook, take that back, and say how it stands."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import click

from backtrail.cli.commands.agents_import import command as import_command
from backtrail.cli.context import Command, CommandContext, confirm, dry_run_option, print_line, with_context, yes_option
from backtrail.errors import MissingExtra

if TYPE_CHECKING:
    from backtrail.agents.events import Agent
    from backtrail.agents.install.settings import Edit
    from backtrail.agents.install.status import AgentStatus

agents_argument = click.argument("agents", nargs=-1, metavar="[claude|codex|gemini|opencode]...")


@click.group(epilog="\b\nExamples:\n  backtrail agents install\n  backtrail agents status")
def command() -> None:
    """Capture coding agents from outside, with their own hooks: Claude Code, Codex, Gemini CLI, opencode.

    What they do is kept in one store of your own, so that conversation and files can be taken back together.
    """


@command.command(cls=Command, epilog="\b\nExample:\n  backtrail agents install claude codex")
@agents_argument
@click.option(
    "--mcp", is_flag=True, help="Also make them start `backtrail mcp`, with which an agent can go back itself."
)
@dry_run_option
@yes_option
@with_context
def install(context: CommandContext, agents: tuple[str, ...], mcp: bool, dry_run: bool, yes: bool) -> None:
    """Make the agents run `backtrail hook`: those that are on this machine, or those that are named.

    Writes to your own settings of each agent, not to a project. Other entries, comments and the layout stay, a copy of
    the file is kept beside it, and what is there already is not written again.
    """
    from backtrail.agents.install.programs import TITLES, hook_command, program, server_command
    from backtrail.agents.install.settings import plan_install, plan_server

    if mcp and importlib.util.find_spec("mcp") is None:
        raise MissingExtra("backtrail mcp", "mcp")
    edits = []
    for agent in _chosen(agents) or _found():
        hook = plan_install(program(agent), hook_command(agent))
        edits += plan_server(hook, program(agent), server_command(agent)) if mcp else [hook]
    if not edits:
        raise click.ClickException("none of the agents is on this machine: name one to install the hook for it anyway")
    _carry_out(context, edits, "install", dry_run=dry_run, yes=yes)
    if context.json or dry_run:
        return
    if any(edit.agent == "codex" and edit.path.suffix == ".json" and edit.changes for edit in edits):
        print_line("Codex runs the hook after you have approved it: start `codex`, and type /hooks")
    titles = ", ".join(dict.fromkeys(TITLES[edit.agent] for edit in edits))
    print_line(f"sessions that {titles} starts from now on are captured; `backtrail agents status` tells how it stands")


@command.command(cls=Command, epilog="\b\nExample:\n  backtrail agents uninstall gemini")
@agents_argument
@dry_run_option
@yes_option
@with_context
def uninstall(context: CommandContext, agents: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Take the hook and the MCP server out of the agents' settings again: of all agents, or of those that are named.

    A file that nobody has changed since becomes what it was. What was captured stays in the store.
    """
    from backtrail.agents.events import AGENTS
    from backtrail.agents.install.programs import program
    from backtrail.agents.install.settings import plan_server, plan_uninstall

    edits = []
    for one in map(program, _chosen(agents) or AGENTS):
        hook, *server = plan_server(plan_uninstall(one), one, None)
        edits += [hook, *(edit for edit in server if edit.changes)]
    _carry_out(context, edits, "uninstall", dry_run=dry_run, yes=yes)


command.add_command(import_command)


@command.command(cls=Command, epilog="\b\nExample:\n  backtrail agents status")
@agents_argument
@with_context
def status(context: CommandContext, agents: tuple[str, ...]) -> None:
    """Say how it stands with each agent: found, version, hook, approval, tools, last event, and what to do."""
    import msgspec

    from backtrail.agents.events import AGENTS
    from backtrail.agents.install.status import report

    found = report(_chosen(agents) or AGENTS)
    if context.json:
        context.print_json(msgspec.to_builtins(found))
        return
    print_line(f"store: {found.store}" + (f": {found.store_error}" if found.store_error else ""))
    for one in found.agents:
        _print_status(one)


def _chosen(names: tuple[str, ...]) -> list[Agent]:
    from backtrail.agents.events import check_agent

    return list(dict.fromkeys(check_agent(name) for name in names))


def _found() -> list[Agent]:
    from backtrail.agents.events import AGENTS
    from backtrail.agents.install.programs import program

    return [agent for agent in AGENTS if program(agent).found]


def _carry_out(context: CommandContext, edits: list[Edit], what: str, *, dry_run: bool, yes: bool) -> None:
    """Show the changes, ask, and make them."""
    from backtrail.agents.install.settings import apply
    from backtrail.model import counted

    changes = [edit for edit in edits if edit.changes]
    if not context.json:
        for edit in edits:
            _print_edit(edit)
    if changes and not dry_run:
        confirm(context, f"{what}: change {counted(len(changes), 'file')}", yes=yes)
        for edit in changes:
            apply(edit)
    if context.json:
        context.print_json({"files": [_edit_json(edit) for edit in edits], "done": not dry_run})


def _edit_json(edit: Edit) -> dict[str, Any]:
    kind = "none" if not edit.changes else "remove" if edit.after is None else "write"
    return {"agent": edit.agent, "path": str(edit.path), "change": kind, "text": edit.after if edit.changes else None}


def _print_edit(edit: Edit) -> None:
    from backtrail.cli.formatting import safe
    from backtrail.sequence_diff import unified

    if not edit.changes:
        print_line(f"{edit.path}: nothing to change")
        return
    print_line(f"{edit.path}: {'removed' if edit.after is None else 'new' if edit.before is None else 'changed'}")
    for line in unified((edit.before or "").splitlines(), (edit.after or "").splitlines(), context=2):
        click.echo(safe(f"  {line}"))


def _print_status(one: AgentStatus) -> None:
    import datetime as dt

    from backtrail.cli.formatting import age

    if not one.found:
        print_line(f"{one.title}: not on this machine")
        return
    print_line(f"{one.title} {one.version or '(version unknown)'}: {one.executable or 'not on the PATH'}")
    hook = "installed" if one.installed else "incomplete" if one.command else "not installed"
    approval = {"trusted": ", approved", "untrusted": ", not approved", "unknown": ", approval unknown"}
    _print_fact(f"hook: {hook}{approval[one.trusted] if one.trusted else ''} ({one.file})")
    tools = "registered" if one.tools else "not registered"
    _print_fact(f"tools for the agent (MCP): {tools} ({one.tools_file})")
    fired = "never" if one.last_fired is None else age(dt.datetime.fromisoformat(one.last_fired))
    _print_fact(f"last event: {fired}{f', which failed: {one.last_error}' if one.last_error else ''}")
    if one.session is not None:
        behind = "" if one.behind is None else f", {one.behind:,} bytes of its transcript behind"
        _print_fact(f"newest session: {one.session}{behind}")
    if one.files_missing is not None:
        _print_fact(f"files: {one.files_missing}")
    for line in one.to_do:
        _print_fact(f"to do: {line}")


def _print_fact(text: str) -> None:
    """Print one line that belongs to the agent above it."""
    from backtrail.cli.formatting import one_line

    click.echo(f"  {one_line(text)}")
