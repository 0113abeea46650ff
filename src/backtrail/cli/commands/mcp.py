"""`backtrail mcp`: serve the session of a coding agent to that agent, over the Model Context Protocol."""

from __future__ import annotations

import click

from backtrail.cli.context import Command, CommandContext, with_context
from backtrail.errors import MissingExtra


@click.command(
    cls=Command, epilog="\b\nExample:\n  claude mcp add --scope user backtrail -- backtrail mcp --agent claude"
)
@click.option("--agent", help="Whose server this is: claude, codex, gemini or opencode.")
@with_context
def command(context: CommandContext, agent: str | None) -> None:
    """Serve tools over stdin and stdout with which an agent looks at its own session, and goes back.

    The agent starts it; `backtrail agents install --mcp` tells the agent to.
    """
    from backtrail.agents.events import check_agent

    try:
        from backtrail.agents.mcp_server import serve
    except ModuleNotFoundError as error:
        raise MissingExtra("backtrail mcp", "mcp") from error
    serve(context.agents_store, None if agent is None else check_agent(agent))
