"""Transcripts as the real agents wrote them (claude-code 2.1.325, codex 0.166.0, gemini-cli 0.61.0, opencode 1.18.34):
two or three turns each, of which the first runs a command. Long texts are replaced by their length."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "coding_agents" / "transcripts"
SESSIONS = {
    "claude": "11111111-1111-4111-8111-111111111111",
    "codex": "01a1e3a7-5db1-79d1-971b-7d90c6b2aacc",
    "gemini": "a165e671-7f68-46d1-a27c-e50665fa8401",
    "opencode": "ses_e138d7318ffewQn0ah1p4wvlZe",
}
PROMPTS = {
    "claude": [
        "FIRST RUN:echo one > a.txt; echo new > b.txtENDRUN",
        "SECOND RUN:echo two > a.txtENDRUN",
        "THIRD just talk",
        "IN-TUI RUN:echo tui > a.txtENDRUN",
    ],
    "codex": [
        "FIRST RUN:echo one > a.txt; echo new > b.txtENDRUN",
        "SECOND RUN:echo two > a.txtENDRUN",
        "THIRD just talk",
    ],
    "gemini": ["FIRST RUN:echo one > a.txt; echo new > b.txtENDRUN", "SECOND RUN:echo two > a.txtENDRUN"],
    "opencode": ['"FIRST RUN:echo one > a.txt ENDRUN"', '"SECOND RUN:ls /nonexistent; exit 3 ENDRUN"'],
}


def recorded_lines(agent: str) -> list[dict[str, Any]]:
    """The lines of an agent's transcript."""
    return [json.loads(line) for line in (RECORDED / f"{agent}.jsonl").read_text().splitlines()]


def recorded_path(agent: str, home: Path) -> Path:
    """Where an agent with this home directory keeps that session."""
    session = SESSIONS[agent]
    return {
        "claude": home / ".claude/projects/-home-user-project" / f"{session}.jsonl",
        "codex": home / f".codex/sessions/2026/11/16/rollout-2026-11-16T09-19-18-{session}.jsonl",
        "gemini": home / f".gemini/tmp/project/chats/session-2026-11-16T09-21-{session[:8]}.jsonl",
        "opencode": home / ".local/share/opencode/opencode.db",
    }[agent]


def put_session(agent: str, home: Path, lines: list[dict[str, Any]] | None = None) -> Path:
    """Write the session, or these lines of it, where the agent keeps it."""
    lines = recorded_lines(agent) if lines is None else lines
    path = recorded_path(agent, home)
    path.parent.mkdir(parents=True, exist_ok=True)
    if agent == "opencode":
        _put_database(path, lines)
    else:
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if agent == "gemini":
        (path.parent.parent / ".project_root").write_text("/home/user/project")
    return path


def _put_database(path: Path, messages: list[dict[str, Any]]) -> None:
    """The columns of opencode's tables that are read, with these messages."""
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as database:
        database.executescript(
            "CREATE TABLE session (id TEXT PRIMARY KEY, directory TEXT, parent_id TEXT, time_created INTEGER);"
            "CREATE TABLE message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, data TEXT);"
            "CREATE TABLE part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, data TEXT);"
        )
        session = SESSIONS["opencode"]
        database.execute("INSERT INTO session VALUES (?, '/home/user/project', NULL, 1)", (session,))
        for message in messages:
            info = message["info"]
            row = (info["id"], session, info["time"]["created"], json.dumps(_without(info, "id", "sessionID")))
            database.execute("INSERT INTO message VALUES (?, ?, ?, ?)", row)
            for part in message["parts"]:
                data = json.dumps(_without(part, "id", "sessionID", "messageID"))
                database.execute("INSERT INTO part VALUES (?, ?, ?, ?)", (part["id"], info["id"], session, data))
    database.close()


def _without(value: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key not in keys}
