"""A hostile client of the MCP server: every odd call gets one clear error, and nothing is changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import backtrail
from fix_captured import CapturedSession

from .conftest import PATIENCE
from .test_mcp import Agent, agent, connected, store, token_in

__all__ = ["agent", "connected", "store"]

HUGE = "x" * 3_000_000
ODD_TEXTS: list[Any] = [
    HUGE,
    "\0",
    "../../../etc/passwd",
    "claude/../../x",
    "{}",
    "%s%n",
    "'; drop table heads; --",
    "",
]
WRONG_TYPES: list[Any] = [None, True, 1.5, "two", "", [], [1], {}, {"turn": 2}, -1, 0, 10**30, "2\n"]


def state(agent: Agent, store: backtrail.Store) -> tuple[Any, ...]:
    """All that a client could have changed."""
    files = {
        str(path.relative_to(agent.project)): path.read_bytes() for path in agent.project.rglob("*") if path.is_file()
    }
    heads = {info.id: (info.head, info.version) for info in store.threads()}
    return files, heads


def test_arguments_of_wrong_types_are_refused_and_nothing_changes(connected: Agent, store: backtrail.Store) -> None:
    before = state(connected, store)
    for odd in WRONG_TYPES:
        for tool in ("restore_files", "revert_turn", "rewind_conversation"):
            told = connected.call(tool, fails=True, turn=odd)
            assert "Traceback" not in told and len(told) < 5000
        for tool in ("show", "diff"):
            if odd is not None:
                connected.call(tool, fails=True, turn=odd)
    for odd in (5, True, [], {"a": 1}):
        connected.call("undo", fails=True, token=odd)
        connected.call("restore_files", fails=True, turn=2, token=odd)
        connected.call("find", fails=True, text=odd)
        connected.call("checkpoint", fails=True, label=odd)
        connected.call("list", fails=True, session=odd)
    connected.call("restore_files", fails=True)
    connected.call("no such tool", fails=True)
    for limit in (0, -1, 10**9, "many", None):
        connected.call("list", fails=True, limit=limit)
    assert state(connected, store) == before


def test_odd_and_huge_texts_are_refused_and_nothing_changes(connected: Agent, store: backtrail.Store) -> None:
    before = state(connected, store)
    for text in ODD_TEXTS:
        told = connected.call("restore_files", fails=True, turn=2, token=text)
        assert "Traceback" not in told and len(told) < 1000
        if text:
            told = connected.call("list", fails=True, session=text)
            assert len(told) < 1000
        assert len(connected.call("label", fails=True, at=text, text="x")) < 1000
    for text in (HUGE, "\0", ""):
        assert len(connected.call("checkpoint", fails=True, label=text)) < 1000
        assert len(connected.call("label", fails=True, at="turn 2", text=text or "\0")) < 1000
    assert state(connected, store) == before
    assert connected.call("find", text=HUGE) == "nothing found"


def test_lines_that_are_not_of_the_protocol_do_not_end_the_server_and_nothing_else_is_on_stdout(
    agent: Agent, store: backtrail.Store
) -> None:
    def request(id: int, method: str, **params: Any) -> bytes:
        return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()

    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    odd_meta = {"x-codex-turn-metadata": "[" * 5000}
    lines = [
        b"garbage",
        b"[" * 100_000,
        b"\xff\xfe\x00",
        request(99, "tools/call", name="list", arguments={"session": "\ud800"}),
        request(1, "initialize", **client),
        b'{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        request(2, "no/such/method"),
        request(3, "tools/call", name="list", arguments=[1, 2]),
        request(4, "tools/call", name="list", arguments={}, _meta=odd_meta),
    ]
    before = state(agent, store)
    server = subprocess.Popen(
        [sys.executable, *agent.arguments],
        cwd=agent.project,
        env={**os.environ, **agent.variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(b"\n".join(lines) + b"\n")
    server.stdin.flush()
    told: dict[int, Any] = {}
    while not told.keys() >= {1, 2, 3, 4}:
        line = json.loads(server.stdout.readline())  # whatever it is, it is JSON
        told[line["id"]] = line
    rest, errors = server.communicate(timeout=PATIENCE)
    assert (rest, b"Traceback" in errors, server.returncode) == (b"", False, 0)
    assert "error" in told[2] and "error" in told[3]
    assert "turn 3" in told[4]["result"]["content"][0]["text"]
    assert state(agent, store) == before


def test_a_plan_is_bound_to_the_contents_of_the_files_and_to_its_own_tool_turn_and_session(
    connected: Agent, store: backtrail.Store, tmp_path: Path
) -> None:
    tokens = {
        ("restore_files", 2): token_in(connected.call("restore_files", turn=2)),
        ("restore_files", 3): token_in(connected.call("restore_files", turn=3)),
        ("revert_turn", 2): token_in(connected.call("revert_turn", turn=2)),
        ("revert_turn", 3): token_in(connected.call("revert_turn", turn=3)),
    }
    before = state(connected, store)
    for tool, turn in tokens:
        for other, token in tokens.items():
            if other != (tool, turn):
                told = connected.call(tool, fails=True, turn=turn, token=token)
                assert "another one by now" in told
    assert state(connected, store) == before
    path = connected.project / "a.txt"
    old = path.stat()
    path.write_text("tw0\n")  # the same size, and soon the same time
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
    changed = state(connected, store)
    for (tool, turn), token in tokens.items():
        if (tool, turn) != ("revert_turn", 3) and (tool, turn) != ("restore_files", 3):  # these do not touch a.txt
            assert "another one by now" in connected.call(tool, fails=True, turn=turn, token=token)
    assert state(connected, store) == changed
    other = CapturedSession(store, "codex", tmp_path / "home", tmp_path / "elsewhere")
    other.play(1, 2)
    meta = {"x-codex-turn-metadata": {"session_id": other.thread_id.partition("/")[2]}}
    told = connected.call("restore_files", meta, True, turn=2, token=tokens["restore_files", 2])
    assert "another one by now" in told


def test_a_session_that_works_elsewhere_cannot_have_files_outside_its_directory_changed(
    connected: Agent, store: backtrail.Store, tmp_path: Path
) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("mine\n")
    (connected.project / "out").symlink_to(outside)
    connected.session.end(3)
    (connected.project / "out").unlink()
    (connected.project / "out").symlink_to(tmp_path)
    connected.call("restore_files", turn=2, token=token_in(connected.call("restore_files", turn=2)))
    assert outside.read_text() == "mine\n"
