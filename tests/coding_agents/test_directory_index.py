"""Which sessions worked in a directory is known without looking through all sessions, and always right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.agents import directory_index, going_back
from backtrail.agents.sessions import newest_session, sessions

from .conftest import FakeAgent


def newest(store: backtrail.Store, directory: Path, agent: Any = None) -> str | None:
    found = newest_session(store, directory, agent)
    return None if found is None else found.thread_id


@pytest.fixture
def refuse_to_look_through(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, no session may be looked for but by the notes."""

    def looked_through(*_: Any) -> Any:
        raise AssertionError("all sessions were looked through")

    def refuse() -> None:
        for name in ("_newest_first", "_look_through"):
            monkeypatch.setattr(f"backtrail.agents.sessions.{name}", looked_through)

    return refuse


def test_the_newest_session_is_found_without_reading_the_others(
    tmp_path: Path, user_store: backtrail.Store, refuse_to_look_through: Callable[[], None]
) -> None:
    wanted = FakeAgent(tmp_path, "gemini", "wanted", "wanted")
    wanted.tell(user_store, "BeforeAgent", prompt="x")
    for number in range(5):
        FakeAgent(tmp_path, "claude", f"other-{number}", f"other-{number}").tell(user_store, "UserPromptSubmit")
    refuse_to_look_through()
    assert newest(user_store, wanted.project) == "gemini/wanted"
    assert newest(user_store, wanted.project / "below" / "it") == "gemini/wanted"
    assert newest(user_store, wanted.project, "claude") is None
    assert newest(user_store, tmp_path / "nobody was here") is None


def test_the_session_that_was_used_last_is_the_newest_however_many_there_are(
    tmp_path: Path, user_store: backtrail.Store
) -> None:
    first = FakeAgent(tmp_path, session="first")
    first.tell(user_store, "UserPromptSubmit")
    for number in range(directory_index.MOST + 3):
        FakeAgent(tmp_path, session=f"session-{number}").tell(user_store, "UserPromptSubmit")
    assert newest(user_store, first.project) == f"claude/session-{directory_index.MOST + 2}"
    first.tell(user_store, "Stop")
    assert newest(user_store, first.project) == "claude/first"


def test_a_rewind_reads_the_sessions_of_its_directory_only(
    tmp_path: Path, user_store: backtrail.Store, refuse_to_look_through: Callable[[], None]
) -> None:
    agents = [FakeAgent(tmp_path, session=name) for name in ("mine", "beside-it")]
    agents[0].tell(user_store, "UserPromptSubmit", prompt="x", prompt_id="id-1")
    FakeAgent(tmp_path, "codex", "other", "elsewhere").tell(user_store, "UserPromptSubmit", prompt="x")
    agents[0].write("a.txt", "x")
    for agent in agents:
        agent.tell(user_store, "Stop", prompt_id="id-1")
    refuse_to_look_through()
    plan = going_back.rewind(user_store, agents[0].read(user_store), 1, conversation=False, dry_run=True)
    (note,) = plan.notes
    assert note.startswith("claude/beside-it worked in this directory since then")


def test_sessions_that_were_deleted_are_passed_over(
    tmp_path: Path, user_store: backtrail.Store, refuse_to_look_through: Callable[[], None]
) -> None:
    refuse_to_look_through()
    for name in ("old", "new"):
        FakeAgent(tmp_path, session=name).tell(user_store, "UserPromptSubmit")
    user_store.thread("claude/new").delete()
    assert newest(user_store, tmp_path / "project") == "claude/old"
    user_store.thread("claude/old").delete()
    assert newest(user_store, tmp_path / "project") is None


def test_if_all_sessions_that_are_noted_were_deleted_an_older_one_is_found(
    tmp_path: Path, user_store: backtrail.Store
) -> None:
    for number in range(directory_index.MOST + 2):
        FakeAgent(tmp_path, session=f"session-{number}").tell(user_store, "UserPromptSubmit")
    for number in range(2, directory_index.MOST + 2):
        user_store.thread(f"claude/session-{number}").delete()
    assert newest(user_store, tmp_path / "project") == "claude/session-1"
    assert newest(user_store, tmp_path / "project", "codex") is None


def test_a_store_without_notes_gets_them_from_its_sessions(tmp_path: Path, user_store: backtrail.Store) -> None:
    for name in ("one", "two"):
        FakeAgent(tmp_path, session=name, project=f"in-{name}").tell(user_store, "UserPromptSubmit")
    for info in user_store.threads(directory_index.COMPLETE):
        user_store.thread(info.id).delete()
    assert newest(user_store, tmp_path / "in-one") == "claude/one"
    FakeAgent(tmp_path, "codex", "three", "in-three").tell(user_store, "UserPromptSubmit")
    assert directory_index.find(user_store, str(tmp_path / "in-one")) == (["claude/one"], True)
    assert directory_index.find(user_store, str(tmp_path / "in-three")) == (["codex/three"], True)


def test_a_session_that_was_noted_and_never_saved_hides_no_other(tmp_path: Path, user_store: backtrail.Store) -> None:
    agent = FakeAgent(tmp_path, session="real")
    agent.tell(user_store, "UserPromptSubmit")
    directory_index.note(user_store, str(agent.project), "claude/killed")
    assert newest(user_store, agent.project) == "claude/real"


def test_the_notes_are_no_session(tmp_path: Path, user_store: backtrail.Store) -> None:
    FakeAgent(tmp_path).tell(user_store, "UserPromptSubmit")
    assert [session.thread_id for session in sessions(user_store)] == ["claude/session-1"]
