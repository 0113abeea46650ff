"""The entry in an agent's user-level settings that makes it start `backtrail mcp`: put in, and taken out again.

Pure functions of the file's text, as in `settings`. Claude Code, Gemini CLI and opencode have JSON; Codex has TOML, to
which a table is added at the end.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from backtrail.agents.events import Agent
from backtrail.agents.install import json_text
from backtrail.agents.install.programs import Program
from backtrail.errors import InvalidInput

NAME = "backtrail"
_KEYS: dict[Agent, str] = {"claude": "mcpServers", "gemini": "mcpServers", "opencode": "mcp"}
_HEADER = f"[mcp_servers.{NAME}]"
_TABLE = re.compile(rf"^\[mcp_servers\.{NAME}\][ \t]*\n(?:[^\[\n][^\n]*\n?)*", re.MULTILINE)


def server_file(program: Program) -> Path:
    """The file in which an agent looks for a user's MCP servers."""
    if program.agent == "claude":  # beside the directory of its settings, unless that was moved
        default = Path("~/.claude").expanduser()
        return default.with_name(".claude.json") if program.home == default else program.home / ".claude.json"
    if program.agent == "codex":
        return program.home / "config.toml"
    if program.agent == "gemini":
        return program.file
    with_comments = program.home / "opencode.jsonc"
    return with_comments if with_comments.exists() else program.home / "opencode.json"


def with_server(text: str, agent: Agent, words: list[str], where: str) -> str:
    """The settings with our server. `InvalidInput` if they have another one of that name."""
    if _found(text, agent, where) == _entry(agent, words):
        return text
    text = without_server(text, agent, where)
    if agent == "codex":
        return _with_table(text, words, where)
    text = text if text.strip() else "{}\n"
    root = json_text.parse(text, where)
    if not root.is_object:
        raise InvalidInput(f"{where} does not hold an object: correct it first; nothing was changed")
    servers = root.get(_KEYS[agent])
    if servers is None:
        if text == "{}\n":  # there is no layout to keep
            return json.dumps({_KEYS[agent]: {NAME: _entry(agent, words)}}, indent=2) + "\n"
        return json_text.add_item(text, root, _KEYS[agent], {NAME: _entry(agent, words)})
    if not servers.is_object:
        raise InvalidInput(f"{where}: `{_KEYS[agent]}` is not an object: correct it first; nothing was changed")
    if servers.get(NAME) is not None:
        raise InvalidInput(f"{where} has another MCP server named {NAME!r}: rename it first; nothing was changed")
    return json_text.add_item(text, servers, NAME, _entry(agent, words))


def without_server(text: str, agent: Agent, where: str) -> str:
    """The settings without our server, and without what is empty then."""
    if not text.strip() or not has_server(text, agent, where):
        return text
    if agent == "codex":
        rest = _TABLE.sub("", text, count=1)
        return rest.rstrip("\n") + "\n" if rest.strip() else ""
    root = json_text.parse(text, where)
    servers = root.get(_KEYS[agent])
    assert servers is not None
    container, key = (root, _KEYS[agent]) if len(servers.items or ()) == 1 else (servers, NAME)
    return json_text.remove_item(text, container, [item.key for item in container.items or ()].index(key))


def has_server(text: str, agent: Agent, where: str) -> bool:
    """True if the settings start our server."""
    return server_words(text, agent, where) is not None


def server_words(text: str, agent: Agent, where: str) -> list[str] | None:
    """The command with which the settings start our server; None if they do not."""
    entry = _found(text, agent, where)
    if not isinstance(entry, dict):
        return None
    words = entry.get("command") if agent == "opencode" else [entry.get("command"), *(entry.get("args") or ())]
    ours = isinstance(words, list) and words[-3:] == ["mcp", "--agent", agent] and type(words[0]) is str
    return words if ours else None


def _found(text: str, agent: Agent, where: str) -> Any:
    """The entry of our name; None if there is none."""
    if not text.strip():
        return None
    if agent == "codex":
        servers = _toml(text, where).get("mcp_servers")
        return servers.get(NAME) if isinstance(servers, dict) else None
    listed = json_text.parse(text, where).get(_KEYS[agent])
    found = None if listed is None else listed.get(NAME)
    return None if found is None else found.plain()


def _entry(agent: Agent, words: list[str]) -> dict[str, Any]:
    if agent == "opencode":
        return {"type": "local", "command": words, "enabled": True}
    entry = {"command": words[0], "args": words[1:]}
    return {"type": "stdio", **entry} if agent == "claude" else entry


def _with_table(text: str, words: list[str], where: str) -> str:
    servers = _toml(text, where).get("mcp_servers", {})
    if not isinstance(servers, dict) or NAME in servers:
        raise InvalidInput(f"{where} has another MCP server named {NAME!r}: rename it first; nothing was changed")
    table = f"{_HEADER}\ncommand = {json.dumps(words[0])}\nargs = {json.dumps(words[1:])}\n"
    joined = f"{text.rstrip(chr(10))}\n\n{table}" if text.strip() else table
    _toml(joined, where)  # a table cannot be added to one that stands on a line
    return joined


def _toml(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(f"{where} is not TOML ({error}): correct it first; nothing was changed") from None
