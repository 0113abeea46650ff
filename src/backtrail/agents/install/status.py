"""How it stands with each agent: is it here, does it run our hook, when did it last, and what is to be done."""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib.util
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from backtrail.agents import hook_log
from backtrail.agents.capture import TRANSCRIPT
from backtrail.agents.events import AGENTS, HOOK_EVENTS, Agent
from backtrail.agents.install import json_text
from backtrail.agents.install.codex_trust import Trust, trust
from backtrail.agents.install.mcp_servers import server_file, server_words
from backtrail.agents.install.programs import TITLES, Program, command_exists, hook_command, program
from backtrail.agents.install.settings import our_commands, our_events, read_text
from backtrail.agents.sessions import AgentSession, sessions
from backtrail.agents.user_store import open_user_store
from backtrail.errors import BacktrailError, InvalidInput, NotFound

if TYPE_CHECKING:
    from backtrail.store import Store


class AgentStatus(msgspec.Struct, kw_only=True):
    """How it stands with one agent."""

    agent: Agent
    title: str
    found: bool
    executable: str | None
    version: str | None
    file: str  #: the settings that tell it to run the hook
    installed: bool  #: at every event that we need
    command: str | None  #: that is run now
    trusted: Trust | None  #: of Codex only
    tools: bool = False  #: it starts our MCP server
    tools_file: str  #: the settings that tell it to
    last_fired: str | None = None
    last_error: str | None = None  #: if the newest event failed
    session: str | None = None  #: the thread of the newest session
    behind: int | None = None  #: bytes of its transcript that are not captured yet
    files_missing: str | None = None  #: why its newest checkpoint has no files, or not all
    to_do: list[str] = []


class Report(msgspec.Struct, kw_only=True):
    """How it stands with all of them."""

    store: str
    store_error: str | None
    agents: list[AgentStatus]


def report(agents: Iterable[Agent] = AGENTS) -> Report:
    """Look at the agents, their settings, the hook's log and the store."""
    from backtrail.agents.user_store import store_target
    from backtrail.engines.server_url import public_url

    log = hook_log.read()
    error = None
    with contextlib.ExitStack() as stack:
        store: Store | None = None
        try:
            store = stack.enter_context(open_user_store(create=False))
        except NotFound:
            pass  # nothing was captured yet
        except (BacktrailError, OSError) as problem:
            error = str(problem)
        found = [_status(program(agent), log, store) for agent in agents]
    return Report(store=public_url(store_target()), store_error=error, agents=found)


def _status(one: Program, log: list[dict[str, Any]], store: Store | None) -> AgentStatus:
    to_do: list[str] = []
    commands, events, off = _settings(one, to_do)
    complete = set(events) == set(HOOK_EVENTS[one.agent]) and len(commands) == 1
    status = AgentStatus(
        agent=one.agent,
        title=TITLES[one.agent],
        found=one.found,
        executable=one.executable,
        version=one.version(),
        file=str(one.file),
        installed=complete,
        command=commands[0] if commands else None,
        trusted=trust(one, str(Path.cwd())) if one.agent == "codex" and commands else None,
        tools_file=str(server_file(one)),
        to_do=to_do,
    )
    _add_tools(status)
    _add_log(status, log)
    if store is not None:
        _add_session(status, store)
    if one.found and not complete:
        to_do.append(f"backtrail agents install {one.agent}")
    elif complete:
        to_do += off
        to_do += _command_problems(one, commands[0])
        if status.trusted == "untrusted":
            to_do.append("start `codex`, type /hooks, and approve the hooks of backtrail: until then Codex skips them")
        if status.last_fired is None:
            to_do.append(f"start {one.agent} and send a prompt: the hook has not run yet")
    return status


def _add_tools(status: AgentStatus) -> None:
    """Whether the agent's settings start our MCP server, and why that would fail."""
    try:
        text = read_text(Path(status.tools_file)) or ""
        words = server_words(text, status.agent, status.tools_file)
    except (InvalidInput, OSError) as error:
        if str(error) not in status.to_do:  # the hook may be in the same file
            status.to_do.append(str(error))
        return
    if words is None:
        return
    status.tools = True
    if not os.access(words[0], os.X_OK):
        again = f"backtrail agents install {status.agent} --mcp"
        status.to_do.append(f"{again}: the program that the tools are started with is gone ({words[0]})")
    elif importlib.util.find_spec("mcp") is None:
        status.to_do.append('pip install "backtrail[mcp]": the tools are registered, and cannot start without it')


def _settings(one: Program, to_do: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Our commands and events in an agent's settings, and why the agent would not run them."""
    try:
        text = read_text(one.file)
        if text is None or not text.strip():
            return [], [], []
        return our_commands(one, text), our_events(one, text), _switched_off(one, text)
    except (InvalidInput, OSError) as error:
        to_do.append(str(error))
        return [], [], []


def _switched_off(one: Program, text: str) -> list[str]:
    """What to do if the settings switch all hooks off."""
    if one.agent not in ("claude", "gemini"):
        return []
    settings = json_text.parse(text, str(one.file)).plain()
    config = settings.get("hooksConfig") if isinstance(settings, dict) else None
    config = config if isinstance(config, dict) else {}
    if one.agent == "claude" and settings.get("disableAllHooks") is True:
        return [f"remove disableAllHooks from {one.file}: it switches the hook off"]
    if one.agent == "gemini" and config.get("enabled") is False:
        return [f"remove hooksConfig.enabled from {one.file}: it switches the hook off"]
    if one.agent == "gemini" and "backtrail" in (config.get("disabled") or ()):
        return [f"remove backtrail from hooksConfig.disabled in {one.file}, or type /hooks enable backtrail"]
    return []


def _command_problems(one: Program, command: str) -> list[str]:
    if not command_exists(command):
        return [f"backtrail agents install {one.agent}: the program in the hook is gone ({command})"]
    if command != hook_command(one.agent):
        return [f"backtrail agents install {one.agent}, if this backtrail is to be run instead of {command}"]
    return []


def _add_log(status: AgentStatus, log: list[dict[str, Any]]) -> None:
    """The newest event in the hook's log."""
    for entry in reversed(log):
        if entry.get("agent") == status.agent and isinstance(entry.get("time"), str):
            with contextlib.suppress(ValueError):
                status.last_fired = dt.datetime.fromisoformat(entry["time"]).isoformat()
                error = entry.get("error")
                status.last_error = error if isinstance(error, str) else None
                return


def _add_session(status: AgentStatus, store: Store) -> None:
    """The newest session in the store, and how far behind its transcript is."""
    try:
        newest = next(sessions(store, status.agent), None)
        if newest is None:
            return
        status.session = newest.thread_id
        missing = newest.head.custom.get("files_missing")
        status.files_missing = missing if isinstance(missing, str) else None
        status.behind = _behind(newest)
    except BacktrailError as error:
        status.to_do.append(f"backtrail verify -s with the store of the agents: {error}")


def _behind(session: AgentSession) -> int | None:
    known = session.thread.pick([TRANSCRIPT]).get(TRANSCRIPT)
    if not isinstance(known, dict) or not isinstance(known.get("path"), str):
        return None
    try:
        return max(0, os.stat(known["path"]).st_size - int(known.get("offset", 0)))  # noqa: PTH116  # a text
    except (OSError, ValueError):
        return None
