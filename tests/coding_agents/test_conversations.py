"""Forks of recorded conversations: what the copy holds, that the original stays, and what is refused."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from backtrail.agents.conversations import CannotFork, CutPoint, Fork, discard, fork, resumed
from backtrail.agents.events import AGENTS
from fix_transcripts import PROMPTS, SESSIONS, put_session, recorded_lines

CLAUDE_TURNS = [
    "9a5d7dea-efb8-467f-9a24-7ab4abce89c3",
    "62458bcc-4b41-4358-957b-996f6b1322f7",
    "f168dac7-a832-43fe-8e65-880f374161c3",
]
GEMINI_TURNS = ["72ff4773-70d2-4bbc-a01c-0dfa0b4164d3", "b0b64391-15db-4b3d-b556-c8a2a1803845"]


def point(path: Path, agent: str, first_dropped: str | None, last_kept: str | None) -> CutPoint:
    dropped, kept = (() if id is None else (id,) for id in (first_dropped, last_kept))
    return CutPoint(SESSIONS[agent], str(path), str(path.parent), dropped, kept)


def lines_of(made: Fork) -> list[dict[str, Any]]:
    assert made.path is not None
    return [json.loads(line) for line in Path(made.path).read_text().splitlines()]


def prompts_in(lines: list[dict[str, Any]]) -> list[str]:
    texts = [line["message"]["content"] for line in lines if line.get("type") == "user" and not line.get("isMeta")]
    return [text for text in texts if isinstance(text, str)]


def nothing(_: Fork) -> None:
    """An announcement that nobody needs."""


@pytest.mark.parametrize("dropped", [1, 2])
def test_a_copy_of_claudes_transcript_ends_before_the_turn(dropped: int, home: Path) -> None:
    path = put_session("claude", home)
    original = path.read_bytes()
    announced: list[tuple[Fork, bool]] = []

    def announce(made: Fork) -> None:
        announced.append((made, Path(str(made.path)).exists()))

    made = fork("claude", point(path, "claude", CLAUDE_TURNS[dropped], CLAUDE_TURNS[dropped - 1]), announce)
    assert announced == [(made, False)], "it is announced before it is there"
    assert path.read_bytes() == original
    lines = lines_of(made)
    assert prompts_in(lines) == PROMPTS["claude"][:dropped]
    assert {line["sessionId"] for line in lines if "sessionId" in line} == {made.session_id}
    assert {line["entrypoint"] for line in lines if "entrypoint" in line} == {"cli"}
    uuids = {line["uuid"] for line in lines if "uuid" in line}
    assert {line["parentUuid"] for line in lines if line.get("parentUuid")} <= uuids
    assert lines[-1].get("type") != "queue-operation"
    assert made.resume == ("claude", "--resume", made.session_id)
    assert stat.S_IMODE(Path(str(made.path)).stat().st_mode) == 0o600
    discard(made)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_branch_that_was_left_inside_claude_code_is_not_in_the_copy(home: Path) -> None:
    lines = recorded_lines("claude")
    second = next(line for line in lines if line.get("promptId") == CLAUDE_TURNS[1])
    third = next(line for line in lines if line.get("promptId") == CLAUDE_TURNS[2])
    third["parentUuid"] = second["parentUuid"]  # the person went back to before the second prompt
    path = put_session("claude", home, lines)
    made = fork("claude", point(path, "claude", CLAUDE_TURNS[2], CLAUDE_TURNS[0]), nothing)
    assert prompts_in(lines_of(made)) == PROMPTS["claude"][:1]


def test_turns_before_the_first_that_was_captured_are_kept(home: Path) -> None:
    path = put_session("claude", home)
    made = fork("claude", point(path, "claude", CLAUDE_TURNS[1], None), nothing)
    assert prompts_in(lines_of(made)) == PROMPTS["claude"][:1]


@pytest.mark.parametrize(("agent", "first"), [("claude", CLAUDE_TURNS[0]), ("gemini", GEMINI_TURNS[0])])
def test_before_the_first_turn_of_all_there_is_nothing_to_copy(agent: Any, first: str, home: Path) -> None:
    path = put_session(agent, home)
    made = fork(agent, point(path, agent, first, None), nothing)
    assert (made.session_id, made.resume, made.path) == (None, (agent,), None)
    assert [each for each in path.parent.iterdir() if each.suffix == ".jsonl"] == [path]


def test_codex_is_not_asked_before_the_first_turn_of_all(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    path = put_session("codex", home)
    lines = recorded_lines("codex")
    turns = [line["payload"]["turn_id"] for line in lines if line["payload"].get("type") == "task_started"]
    assert fork("codex", point(path, "codex", turns[0], None), nothing).session_id is None
    with pytest.raises(CannotFork, match="no program codex on the path"):
        fork("codex", point(path, "codex", turns[1], None), nothing)
    with pytest.raises(CannotFork, match="has no turn nosuch"):
        fork("codex", point(path, "codex", "nosuch", None), nothing)


def test_a_copy_of_geminis_transcript_drops_the_turn_by_geminis_own_line(home: Path) -> None:
    path = put_session("gemini", home)
    original = path.read_bytes()
    made = fork("gemini", point(path, "gemini", GEMINI_TURNS[1], GEMINI_TURNS[0]), nothing)
    assert path.read_bytes() == original
    lines = lines_of(made)
    assert lines[-1] == {"$rewindTo": GEMINI_TURNS[1]}
    assert len(lines) == len(recorded_lines("gemini")) + 1
    assert SESSIONS["gemini"] not in Path(str(made.path)).read_text()
    assert Path(str(made.path)).name.endswith(f"-{str(made.session_id)[:8]}.jsonl")


def test_a_session_of_gemini_that_was_resumed_in_a_later_minute_is_found_in_its_first_transcript(home: Path) -> None:
    path = put_session("gemini", home)
    stub = path.with_name(f"session-2026-11-19T00-00-{SESSIONS['gemini'][:8]}.jsonl")
    stub.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    made = fork("gemini", point(stub, "gemini", GEMINI_TURNS[1], GEMINI_TURNS[0]), nothing)
    assert lines_of(made)[-1] == {"$rewindTo": GEMINI_TURNS[1]}
    assert len(lines_of(made)) == len(recorded_lines("gemini")) + 1


def test_a_turn_that_gemini_has_dropped_already_is_refused(home: Path) -> None:
    lines = [*recorded_lines("gemini"), {"$rewindTo": GEMINI_TURNS[1]}]
    path = put_session("gemini", home, lines)
    with pytest.raises(CannotFork, match="has no message"):
        fork("gemini", point(path, "gemini", GEMINI_TURNS[1], GEMINI_TURNS[0]), nothing)


@pytest.mark.parametrize("agent", ["claude", "gemini"])
@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (b'{"type": "user"\n', "not JSON"),
        (b"[1, 2]\n", "not a JSON object"),
        (b"\xff\xfe\n", "not JSON"),
    ],
)
def test_a_transcript_in_another_form_is_refused_and_nothing_is_made(
    agent: Any, damage: bytes, told: str, home: Path
) -> None:
    path = put_session(agent, home)
    path.write_bytes(damage + path.read_bytes())
    before = sorted(path.parent.iterdir())
    turns = CLAUDE_TURNS if agent == "claude" else GEMINI_TURNS
    with pytest.raises(CannotFork, match=told):
        fork(agent, point(path, agent, turns[1], turns[0]), nothing)
    assert sorted(path.parent.iterdir()) == before


@pytest.mark.parametrize("agent", ["claude", "gemini"])
def test_a_turn_or_a_transcript_that_is_not_there_is_refused(agent: Any, home: Path) -> None:
    path = put_session(agent, home)
    turns = CLAUDE_TURNS if agent == "claude" else GEMINI_TURNS
    for cut in (("nosuch", turns[0]), (turns[1], "nosuch"), (None, turns[0]), ("nosuch", None)):
        with pytest.raises(CannotFork, match="transcript"):
            fork(agent, point(path, agent, *cut), nothing)
    path.unlink()
    with pytest.raises(CannotFork, match="is gone"):
        fork(agent, point(path, agent, turns[1], turns[0]), nothing)
    path.symlink_to("/etc/passwd")
    with pytest.raises(CannotFork, match="cannot be read"):
        fork(agent, point(path, agent, turns[1], turns[0]), nothing)


@pytest.mark.parametrize("agent", ["claude", "gemini"])
def test_a_turn_that_the_agent_was_killed_in_before_it_wrote_it_down_leaves_all_before_it(
    agent: Any, home: Path
) -> None:
    lines = recorded_lines(agent)
    turns = CLAUDE_TURNS if agent == "claude" else GEMINI_TURNS
    second = next(i for i, line in enumerate(lines) if turns[1] in (line.get("promptId"), line.get("id")))
    path = put_session(agent, home, lines[:second])
    made = fork(agent, point(path, agent, None if agent == "gemini" else turns[1], turns[0]), nothing)
    queued = 2 if agent == "claude" else 0  # the lines that queue the prompt
    assert len(lines_of(made)) == second - queued


@pytest.mark.parametrize("agent", ["claude", "gemini"])
def test_turns_that_the_agent_never_wrote_down_are_passed_over_on_both_sides_of_the_cut(agent: Any, home: Path) -> None:
    path = put_session(agent, home)
    turns = CLAUDE_TURNS if agent == "claude" else GEMINI_TURNS
    wanted = _anonymous(fork(agent, point(path, agent, turns[1], turns[0]), nothing))
    for dropped, kept in ((("never", turns[1]), (turns[0],)), ((turns[1],), (turns[0], "never"))):
        made = fork(agent, CutPoint(SESSIONS[agent], str(path), str(path.parent), dropped, kept), nothing)
        assert _anonymous(made) == wanted


def _anonymous(made: Any) -> str:
    return Path(made.path).read_text().replace(made.session_id, "the session")


def test_a_session_that_somebody_has_continued_is_not_discarded(home: Path) -> None:
    path = put_session("claude", home)
    made = fork("claude", point(path, "claude", CLAUDE_TURNS[1], CLAUDE_TURNS[0]), nothing)
    with Path(str(made.path)).open("a") as file:
        file.write("{}\n")
    discard(made)
    assert Path(str(made.path)).exists()


@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_has_a_command_that_resumes_a_session_and_one_that_begins_one(agent: Any) -> None:
    assert resumed(agent, "id-1").resume[-1] == "id-1"
    assert resumed(agent, None).resume == (agent,)


PROGRAM = """#!{python}
import json, sys
mode = {mode!r}
if mode == "silent":
    sys.exit(0)
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    print("not of the protocol")
    print(json.dumps({{"method": "some/notification"}}))
    result = {{"thread": {{"id": "new-thread"}}}} if asked["method"] == "thread/fork" else {{}}
    if mode == "refuses" and asked["method"] == "thread/fork":
        print(json.dumps({{"id": asked["id"], "error": {{"message": "no such turn"}}}}), flush=True)
    elif mode == "other" and asked["method"] == "thread/fork":
        print(json.dumps({{"id": asked["id"], "result": {{"threads": []}}}}), flush=True)
    else:
        print(json.dumps({{"id": asked["id"], "result": result}}), flush=True)
"""


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("answers", None),
        ("refuses", "refused thread/fork: no such turn"),
        ("other", "did not say which thread"),
        ("silent", "ended"),
    ],
)
def test_codex_is_asked_for_the_fork_and_its_refusal_is_told(
    mode: str, told: str | None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    program = home / "codex"
    program.write_text(PROGRAM.format(python=sys.executable, mode=mode))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(home))
    cut = CutPoint("old-thread", None, str(home), ("turn-2",), ("turn-1",))
    if told is None:
        assert fork("codex", cut, nothing).resume == ("codex", "resume", "new-thread")
    else:
        with pytest.raises(CannotFork, match=told):
            fork("codex", cut, nothing)


def test_opencode_that_does_not_start_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = home / "opencode"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(home))
    with pytest.raises(CannotFork, match="ended before it said where it listens"):
        fork("opencode", CutPoint("ses_1", None, str(home), ("msg_2",), ("msg_1",)), nothing)
