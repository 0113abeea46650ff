"""Finds the sessions that coding agents have left on this machine, each in the agent's own directory.

Only names are looked at here; `import_sessions` reads the files. The transcripts of sub-agents are left out: their work
is a tool call of the session that started them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from backtrail.agents.events import Agent
from backtrail.agents.transcripts import first_lines
from backtrail.errors import UnsafePath
from backtrail.owned_files import open_regular

_COMPRESSED = ".zst"
_LONGEST_PATH = 4096  # bytes


class OldSession(msgspec.Struct, frozen=True):
    """A session on disk. `session_id` is None if the file does not tell it."""

    agent: Agent
    path: str
    session_id: str | None
    cwd: str | None
    sub_agent: bool = False


def home_of(agent: Agent) -> Path:
    """The directory in which an agent keeps its sessions."""
    home = Path("~").expanduser()
    if agent == "claude":
        return Path(os.environ.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"
    if agent == "codex":
        return Path(os.environ.get("CODEX_HOME") or home / ".codex")
    if agent == "gemini":
        return Path(os.environ.get("GEMINI_CLI_HOME") or home) / ".gemini" / "tmp"
    return Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"


def find_transcripts(agent: Agent, directory: Path | None = None) -> list[str]:
    """The transcripts of an agent: files of lines, and for opencode its database. Links are not followed."""
    root = home_of(agent) if directory is None else directory
    if agent == "opencode":
        return [str(path) for path in (root / "opencode.db",) if path.is_file()]
    return sorted(path for path in _files_below(root) if _is_transcript(agent, path))


def _files_below(root: Path) -> Iterator[str]:
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)  # noqa: PTH118  # there may be many thousands
            yield path.removesuffix(_COMPRESSED)


def _is_transcript(agent: Agent, path: str) -> bool:
    folder, name = os.path.split(path)
    if agent == "claude":
        return name.endswith(".jsonl") and not name.startswith("agent-") and "subagents" not in Path(folder).parts
    if agent == "codex":
        return name.startswith("rollout-") and name.endswith(".jsonl")
    return Path(folder).name == "chats" and name.startswith("session-") and name.endswith((".jsonl", ".json"))


def describe(agent: Agent, path: str) -> OldSession:
    """The session of a transcript, as its first lines tell it."""
    lines = first_lines(path)
    if agent == "claude":
        cwd = next((cwd for line in lines if (cwd := _text(line, "cwd")) is not None), None)
        return OldSession(agent, path, Path(path).stem, cwd)
    if agent == "codex":
        meta: dict[str, Any] = next((line["payload"] for line in lines if _is_codex_meta(line)), {})
        source = meta.get("source")
        spawned = type(source) is dict and "subagent" in source
        return OldSession(agent, path, _text(meta, "id") or _text(meta, "session_id"), _text(meta, "cwd"), spawned)
    header = next((line for line in lines if "sessionId" in line), {})
    return OldSession(agent, path, _text(header, "sessionId"), _project_root(path), header.get("kind") == "subagent")


def _is_codex_meta(line: dict[str, Any]) -> bool:
    return line.get("type") == "session_meta" and type(line.get("payload")) is dict


def _text(value: dict[str, Any], key: str) -> str | None:
    found = value.get(key)
    return found if type(found) is str and found else None


def _project_root(path: str) -> str | None:
    """The directory of a session of Gemini CLI, which notes it beside the chats."""
    try:
        with os.fdopen(open_regular(Path(path).parent.parent / ".project_root"), "rb") as file:
            text = file.read(_LONGEST_PATH).decode().strip()
    except (OSError, UnsafePath, UnicodeDecodeError):
        return None  # older versions have only a digest of it
    return text if text.startswith("/") and "\0" not in text else None
