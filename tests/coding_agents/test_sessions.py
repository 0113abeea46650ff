"""Finding captured sessions again: by thread, by directory, and their turns."""

from __future__ import annotations

from pathlib import Path

import pytest

import backtrail
from backtrail.agents.sessions import newest_session, session_of, sessions
from backtrail.errors import NotFound

from .conftest import FakeAgent


def test_the_newest_session_of_a_directory_is_the_one_that_was_used_last(
    tmp_path: Path, user_store: backtrail.Store
) -> None:
    claude, codex = FakeAgent(tmp_path), FakeAgent(tmp_path, "codex")
    elsewhere = FakeAgent(tmp_path, "gemini", project="elsewhere")
    for agent in (claude, codex, claude, elsewhere):
        agent.tell(user_store, "SessionStart")
    (claude.project / "sub").mkdir()
    for directory in (claude.project, claude.project / "sub"):
        found = newest_session(user_store, directory)
        assert found is not None and found.agent == "claude"
    found = newest_session(user_store, claude.project, "codex")
    assert found is not None and found.agent == "codex"
    assert newest_session(user_store, tmp_path) is None
    assert newest_session(user_store, tmp_path / "project-2") is None
    assert [session.agent for session in sessions(user_store)] == ["gemini", "claude", "codex"]


def test_a_directory_behind_a_link_is_the_same_directory(tmp_path: Path, user_store: backtrail.Store) -> None:
    agent = FakeAgent(tmp_path)
    agent.tell(user_store, "SessionStart")
    (tmp_path / "link").symlink_to(agent.project)
    assert newest_session(user_store, tmp_path / "link") is not None


def test_many_sessions_are_listed_newest_first(
    tmp_path: Path, user_store: backtrail.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from backtrail.agents import sessions as module

    monkeypatch.setattr(module, "_PAGE", 3)
    for number in range(10):
        for name in ("claude", "codex"):
            user_store.thread(f"{name}/s{number}").save({"messages": []}, custom={"cwd": "/x", "event": "prompt"})
    expected = [f"{name}/s{number}" for number in reversed(range(10)) for name in ("codex", "claude")]
    assert [session.thread_id for session in sessions(user_store)] == expected


def test_only_threads_of_agents_are_sessions(user_store: backtrail.Store) -> None:
    assert session_of(user_store, "support-42") is None
    assert session_of(user_store, "claude/") is None
    assert session_of(user_store, "cursor/x") is None
    found = session_of(user_store, "claude/a/b")
    assert found is not None and found.session_id == "a/b"


def test_a_session_of_which_nothing_was_captured_says_so(user_store: backtrail.Store) -> None:
    session = session_of(user_store, "claude/none")
    assert session is not None and session.turns() == []
    with pytest.raises(NotFound, match="nothing was captured"):
        _ = session.cwd
    with pytest.raises(NotFound, match="no prompt was captured yet"):
        session.turn(1)


def test_a_turn_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path, user_store: backtrail.Store) -> None:
    agent = FakeAgent(tmp_path)
    agent.tell(user_store, "UserPromptSubmit", prompt="one")
    with pytest.raises(NotFound, match="it has turns 1 to 1"):
        agent.read(user_store).turn(3)


def test_turns_after_a_rewind_begin_again_at_the_one_that_was_taken_back(
    tmp_path: Path, user_store: backtrail.Store
) -> None:
    agent = FakeAgent(tmp_path)
    for number in (1, 2, 3):
        agent.tell(user_store, "UserPromptSubmit", prompt=f"old {number}", prompt_id=f"old-{number}")
        agent.tell(user_store, "Stop", prompt_id=f"old-{number}")
    session = agent.read(user_store)
    second = session.turn(2)
    assert second.before is not None
    session.thread.fork("claude/session-2", at=second.before)
    new = FakeAgent(tmp_path, session="session-2")
    custom = {"agent": "claude", "event": "rewind", "turn": 1, "open": False, "cwd": session.cwd}
    user_store.thread("claude/session-2").update({}, custom=custom)
    new.tell(user_store, "UserPromptSubmit", prompt="new 2", prompt_id="new-2")
    assert [(turn.number, turn.prompt) for turn in new.read(user_store).turns()] == [(1, "old 1"), (2, "new 2")]
    assert len(session.turns()) == 3
