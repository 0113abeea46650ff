"""`backtrail mcp`: the tools of `session_tools` for the agent that started it, over stdio.

The server knows whose session it is: from the metadata of a call (Codex), from its environment (Claude Code), or else
the session of that agent that was used last in its directory. Nothing but the protocol goes to stdout. The store is
opened for each call, so that a server that runs for days holds nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from backtrail import __version__
from backtrail.agents import session_tools
from backtrail.agents.events import Agent, is_session_id
from backtrail.agents.sessions import AgentSession, newest_session, session_of
from backtrail.errors import BacktrailError, NotFound

if TYPE_CHECKING:
    from backtrail.store import Store

OpenStore = Callable[[], AbstractContextManager["Store"]]

_INSTRUCTIONS = """\
backtrail keeps this session from outside: the conversation and all files of the project, at each prompt and at the end
of each turn, also what shell commands changed. Turns are numbered from 1. `list` shows them, `show` and `diff` what one
did. `restore_files`, `revert_turn` and `undo` first answer with a plan and a token; show the plan to the person, and
call again with the token to carry it out. `rewind_conversation` only prepares: the person runs the command."""

_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_MARKS = ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False)
_CHANGES = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)

TurnNumber = Annotated[int, Field(strict=True, ge=1, description="The number of a turn, from 1 on.")]
SomeTurn = Annotated[
    int | None, Field(strict=True, ge=1, description="The number of a turn; without it, the newest one.")
]
Limit = Annotated[int, Field(strict=True, ge=1, le=200, description="At most so many.")]
Token = Annotated[
    str | None, Field(description="Without it, the plan is told and nothing is done. The plan's token carries it out.")
]
Session = Annotated[
    str | None, Field(description="Another session, as `find` names it: agent/id. Without it, the present one.")
]


class Whose:
    """Tells whose session a call is about."""

    def __init__(self, agent: Agent | None = None, environment: Mapping[str, str] = os.environ) -> None:
        self._agent = agent
        self._environment = environment

    def session(self, store: Store, named: str | None, meta: Mapping[str, Any] | None) -> AgentSession:
        """The session; `NotFound` says what to do if none was captured."""
        for thread in (named, self._of_call(meta), self._of_environment()):
            found = None if thread is None else session_of(store, thread)
            if found is not None and found.thread.exists():
                return found
            if thread is not None and thread == named:
                raise NotFound(
                    f"no session {thread[:200]!r} was captured: `find` and `backtrail log` name those there are"
                )
        directory = self._environment.get("CLAUDE_PROJECT_DIR") or os.curdir
        newest = newest_session(store, directory, self._agent)
        if newest is None:
            raise NotFound(
                f"no session was captured in {os.path.realpath(directory)}: "
                "`backtrail agents install` makes the agent tell of its turns, from its next start on"
            )
        return newest

    def _of_call(self, meta: Mapping[str, Any] | None) -> str | None:
        """Codex tells the session with each call."""
        told = (meta or {}).get("x-codex-turn-metadata")
        if isinstance(told, str):
            try:
                told = json.loads(told)
            except (ValueError, RecursionError):
                return None
        ids = (told.get("session_id"), told.get("thread_id")) if isinstance(told, dict) else ()
        return next((f"codex/{id}" for id in ids if isinstance(id, str) and is_session_id(id)), None)

    def _of_environment(self) -> str | None:
        """Claude Code tells the session when it starts the server."""
        id = self._environment.get("CLAUDE_CODE_SESSION_ID", "")
        return f"claude/{id}" if is_session_id(id) else None


def make_server(open_store: OpenStore, whose: Whose) -> MCPServer[Any]:
    """The server with its tools."""
    server: MCPServer[Any] = MCPServer(
        "backtrail", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING"
    )
    tool = server.tool

    @contextmanager
    def asked(ctx: Context[Any, Any], named: str | None = None) -> Iterator[tuple[Store, AgentSession]]:
        """The store and the session of a call. An error of ours is an answer that the model can read."""
        try:
            with open_store() as store:
                meta = ctx.request_context.meta
                yield store, whose.session(store, named, meta if isinstance(meta, Mapping) else None)
        except (BacktrailError, OSError) as error:
            raise ToolError(str(error)) from error

    @tool("list", annotations=_READS, structured_output=False)
    def list_(ctx: Context[Any, Any], limit: Limit = 30, session: Session = None) -> str:
        """List the turns of this session, oldest first, and the checkpoints that were labelled."""
        with asked(ctx, session) as (_, found):
            return session_tools.list_turns(found, limit)

    @tool(annotations=_READS, structured_output=False)
    def show(ctx: Context[Any, Any], turn: SomeTurn = None, session: Session = None) -> str:
        """Show a turn: its prompt, tools by name with results, answer, tokens, duration, and files that it changed."""
        with asked(ctx, session) as (_, found):
            return session_tools.show_turn(found, turn)

    @tool(annotations=_READS, structured_output=False)
    def diff(ctx: Context[Any, Any], turn: SomeTurn = None, until_now: bool = False, session: Session = None) -> str:
        """Show what a turn changed in the files, as a diff; with until_now, everything since before that turn."""
        with asked(ctx, session) as (_, found):
            return session_tools.diff(found, turn, until_now=until_now)

    @tool(annotations=_READS, structured_output=False)
    def find(ctx: Context[Any, Any], text: str, everywhere: bool = False, limit: Limit = 20) -> str:
        """Find a text in the messages of this session, or with everywhere in the 100 sessions that were used last, of
        all agents and projects."""
        with asked(ctx) as (store, found):
            return session_tools.find(store, found, text, everywhere=everywhere, limit=limit)

    @tool(annotations=_MARKS, structured_output=False)
    def checkpoint(ctx: Context[Any, Any], label: str) -> str:
        """Save all files of the project as they are now, under a label. Nothing in the project changes."""
        with asked(ctx) as (_, found):
            return session_tools.checkpoint(found, label)

    @tool(annotations=_MARKS, structured_output=False)
    def label(ctx: Context[Any, Any], at: str, text: str) -> str:
        """Name a checkpoint. at: 'turn 3' for the end of that turn, an id or the start of one, or an older label."""
        with asked(ctx) as (_, found):
            return session_tools.label(found, at, text)

    @tool(annotations=_CHANGES, structured_output=False)
    def restore_files(ctx: Context[Any, Any], turn: TurnNumber, token: Token = None) -> str:
        """Bring all files back to what they were before a turn. Call it without a token first, for the plan."""
        with asked(ctx) as (store, found):
            return session_tools.restore_files(store, found, turn, token)

    @tool(annotations=_CHANGES, structured_output=False)
    def revert_turn(ctx: Context[Any, Any], turn: TurnNumber, token: Token = None) -> str:
        """Take back what one turn did to the files, keeping later work. Call it without a token first, for the plan."""
        with asked(ctx) as (store, found):
            return session_tools.revert_turn(store, found, turn, token)

    @tool(annotations=_CHANGES, structured_output=False)
    def undo(ctx: Context[Any, Any], token: Token = None) -> str:
        """Take back the newest restore or revert in this project. Call it without a token first, for the plan."""
        with asked(ctx) as (store, found):
            return session_tools.undo(store, found, token)

    @tool(annotations=_MARKS, structured_output=False)
    def rewind_conversation(ctx: Context[Any, Any], turn: TurnNumber) -> str:
        """Prepare a session that ends before a turn, and return the command with which the person goes on there. The
        present conversation and the files stay as they are."""
        with asked(ctx) as (store, found):
            return session_tools.rewind_conversation(store, found, turn)

    return server


def serve(open_store: OpenStore, agent: Agent | None = None) -> None:
    """Serve over stdin and stdout until the client closes them."""
    make_server(open_store, Whose(agent)).run("stdio")
