"""Going back in a captured session: files, conversation, revert, undo, and what a person is told."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.agents import going_back
from backtrail.agents.conversations import CannotFork
from backtrail.agents.going_back_text import outcome_json, outcome_lines
from backtrail.agents.sessions import newest_session
from backtrail.errors import Conflict, InvalidInput, NoCheckpoint, NotFound
from fix_stores import EVERY_ENGINE, open_stores

from .conftest import FakeAgent


class FakeClaude(FakeAgent):
    """Claude Code, with a transcript in its own form."""

    def __init__(self, base: Path, session: str = "11111111-1111-4111-8111-111111111111") -> None:
        super().__init__(base, "claude", session)
        self.transcript = base / f"{session}.jsonl"
        self._last: str | None = None

    def turn(self, store: backtrail.Store, number: int, files: dict[str, str | None]) -> None:
        """One turn, in which the agent writes or deletes files."""
        self.begin(store, number)
        for path, text in files.items():
            if text is None:
                (self.project / path).unlink()
            else:
                self.write(path, text)
        self._line("assistant", {"role": "assistant", "content": f"answer {number}"})
        self.tell(store, "Stop", prompt_id=f"id-{number}")

    def begin(self, store: backtrail.Store, number: int) -> None:
        self.tell(store, "UserPromptSubmit", prompt=f"prompt {number}", prompt_id=f"id-{number}")
        self._line("user", {"role": "user", "content": f"prompt {number}"}, promptId=f"id-{number}")

    def _line(self, kind: str, message: dict[str, Any], **fields: Any) -> None:
        entry = {"type": kind, "uuid": str(uuid.uuid4()), "parentUuid": self._last, "sessionId": self.session_id}
        with self.transcript.open("a") as file:
            file.write(json.dumps({**entry, "message": message, **fields}) + "\n")
        self._last = entry["uuid"]

    def contents(self) -> dict[str, str]:
        files = (path for path in self.project.rglob("*") if path.is_file())
        return {str(path.relative_to(self.project)): path.read_text() for path in files}


@pytest.fixture
def claude(tmp_path: Path, user_store: backtrail.Store) -> FakeClaude:
    """A session of three turns."""
    return three_turns(FakeClaude(tmp_path), user_store)


def three_turns(claude: FakeClaude, store: backtrail.Store) -> FakeClaude:
    claude.write(".gitignore", ".env\nbuild/\n")
    claude.write(".env", "SECRET")
    claude.write("own.txt", "mine")
    claude.turn(store, 1, {"a.txt": "one", "b.txt": "b"})
    claude.turn(store, 2, {"a.txt": "two", "d/new.txt": "new", "build/out": "built"})
    claude.write("own.txt", "mine, edited")
    claude.turn(store, 3, {"a.txt": "three", "own.txt": None, "late.txt": "late"})
    return claude


IGNORED = {".gitignore": ".env\nbuild/\n", ".env": "SECRET", "build/out": "built"}
AFTER_TWO = {"a.txt": "two", "b.txt": "b", "d/new.txt": "new", "own.txt": "mine, edited", **IGNORED}
AFTER_THREE = {"a.txt": "three", "b.txt": "b", "d/new.txt": "new", "late.txt": "late", **IGNORED}


def transcripts(claude: FakeClaude) -> list[str]:
    return sorted(path.stem for path in claude.transcript.parent.glob("*.jsonl"))


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_a_rewind_and_its_undo_on_every_engine(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    for opener in open_stores(engine, "blocking", tmp_path, request):
        store = opener()
        claude = three_turns(FakeClaude(tmp_path), store)
        original = claude.transcript.read_bytes()
        session = claude.read(store)
        done = going_back.rewind(store, session, 3)
        assert claude.contents() == AFTER_TWO
        assert claude.transcript.read_bytes() == original
        assert done.prompt == "prompt 3"
        assert done.fork is not None and done.fork.session_id is not None
        new = newest_session(store, claude.project)
        assert new is not None and new.session_id == done.fork.session_id == done.session.session_id
        assert [turn.prompt for turn in new.turns()] == ["prompt 1", "prompt 2"]
        assert [turn.prompt for turn in session.turns()] == ["prompt 1", "prompt 2", "prompt 3"]
        back = going_back.undo(store, claude.project)
        assert claude.contents() == AFTER_THREE
        assert back.session.thread_id == session.thread_id
        assert back.fork is not None and back.fork.resume == ("claude", "--resume", claude.session_id)
        again = newest_session(store, claude.project)
        assert again is not None and again.thread_id == session.thread_id


def test_a_dry_run_tells_what_changes_what_is_removed_and_what_is_kept_and_does_nothing(
    claude: FakeClaude, user_store: backtrail.Store
) -> None:
    session = claude.read(user_store)
    heads = user_store.count()
    plan = going_back.rewind(user_store, session, 3, dry_run=True)
    assert plan.changes is not None
    kinds = {change.path: change.kind for change in plan.changes.changes}
    assert kinds == {"a.txt": "changed", "own.txt": "added", "late.txt": "removed"}
    assert {kept.path: kept.reason for kept in plan.changes.kept} == {
        ".env": "ignored by rule",
        "build": "ignored by rule",
    }
    text = "\n".join(outcome_lines(plan))
    for line in ("~ a.txt", "+ own.txt", "- late.txt", "= .env   (kept: ignored by rule)", "  prompt 3"):
        assert line in text
    assert outcome_json(plan)["done"] is False
    assert claude.contents() == AFTER_THREE
    assert (user_store.count(), transcripts(claude)) == (heads, [claude.session_id])


def test_a_plan_is_carried_out_only_if_it_is_still_the_same(claude: FakeClaude, user_store: backtrail.Store) -> None:
    session = claude.read(user_store)
    plan = going_back.rewind(user_store, session, 2, dry_run=True)
    claude.write("a.txt", "eerht")  # the same files would change, but one of them is another by now
    with pytest.raises(Conflict, match="the plan is another one by now"):
        going_back.rewind(user_store, session, 2, token=plan.token)
    assert claude.contents() == AFTER_THREE | {"a.txt": "eerht"}
    claude.write("a.txt", "edited meanwhile")
    claude.write("more.txt", "made meanwhile")
    with pytest.raises(Conflict, match="the plan is another one by now"):
        going_back.rewind(user_store, session, 2, token=plan.token)
    assert claude.contents() == AFTER_THREE | {"a.txt": "edited meanwhile", "more.txt": "made meanwhile"}
    assert transcripts(claude) == [claude.session_id]
    plan = going_back.rewind(user_store, session, 2, dry_run=True)
    going_back.rewind(user_store, session, 2, token=plan.token)
    assert claude.contents()["a.txt"] == "one"


def test_only_the_files_or_only_the_conversation_go_back(claude: FakeClaude, user_store: backtrail.Store) -> None:
    session = claude.read(user_store)
    done = going_back.rewind(user_store, session, 3, conversation=False)
    assert (done.fork, done.session.thread_id, transcripts(claude)) == (None, session.thread_id, [claude.session_id])
    assert claude.contents() == AFTER_TWO
    assert len(session.turns()) == 3
    going_back.undo(user_store, claude.project)
    assert claude.contents() == AFTER_THREE
    done = going_back.rewind(user_store, session, 2, files=False)
    assert done.changes is None and done.fork is not None
    assert claude.contents() == AFTER_THREE
    claude.write("a.txt", "worked on")
    going_back.undo(user_store, claude.project)
    assert claude.contents() == AFTER_THREE | {"a.txt": "worked on"}, (
        "a conversation that comes back takes no file along"
    )
    newest = newest_session(user_store, claude.project)
    assert newest is not None and newest.thread_id == session.thread_id
    with pytest.raises(InvalidInput, match="neither"):
        going_back.rewind(user_store, session, 2, files=False, conversation=False)


def test_before_the_first_turn_a_new_session_is_begun(claude: FakeClaude, user_store: backtrail.Store) -> None:
    done = going_back.rewind(user_store, claude.read(user_store), 1)
    assert done.fork is not None and (done.fork.session_id, done.fork.resume) == (None, ("claude",))
    assert claude.contents() == {"own.txt": "mine", **IGNORED}
    assert len(claude.read(user_store).turns()) == 3
    going_back.undo(user_store, claude.project)
    assert claude.contents() == AFTER_THREE


def test_a_conversation_in_another_format_degrades_to_files_only_and_says_why(
    claude: FakeClaude, user_store: backtrail.Store
) -> None:
    claude.transcript.write_text("a new format\n")
    session = claude.read(user_store)
    done = going_back.rewind(user_store, session, 3)
    assert done.fork is None
    assert any("only the files go back" in note and "not JSON" in note for note in done.notes)
    assert claude.contents() == AFTER_TWO
    with pytest.raises(CannotFork, match="not JSON"):
        going_back.rewind(user_store, session, 2, files=False)
    going_back.undo(user_store, claude.project)
    assert claude.contents() == AFTER_THREE


def test_a_turn_that_was_not_captured_and_files_that_were_not_are_refused(
    claude: FakeClaude, user_store: backtrail.Store
) -> None:
    session = claude.read(user_store)
    with pytest.raises(NotFound, match="has no turn 4: it has turns 1 to 3"):
        going_back.rewind(user_store, session, 4)
    session.thread.update(
        {}, custom={**session.head.custom, "event": "prompt", "turn": 4, "files_missing": "too large"}
    )
    with pytest.raises(NoCheckpoint, match=r"files before turn 4 .* are missing: too large"):
        going_back.rewind(user_store, session, 4)
    with pytest.raises(NoCheckpoint, match="nothing to undo"):
        going_back.undo(user_store, claude.project)
    with pytest.raises(NoCheckpoint, match="no session of a coding agent"):
        going_back.undo(user_store, claude.project.parent)


def test_a_revert_takes_back_one_turn_and_keeps_later_work(tmp_path: Path, user_store: backtrail.Store) -> None:
    claude = FakeClaude(tmp_path)
    text = [f"line {number}\n" for number in range(30)]
    claude.write("text", "".join(text))
    claude.write("same", "1\n")
    claude.write("data", "\0one")
    claude.write("gone", "1\n")
    claude.write("again", "1\n")
    text[4] = "turn one\n"
    first = {"text": "".join(text), "same": "2\n", "data": "\0two", "made": "x", "alone": "a"}
    claude.turn(user_store, 1, {**first, "gone": "2\n", "again": None})
    text[20] = "turn two\n"
    second = {"text": "".join(text), "same": "3\n", "data": "\0three", "made": "y"}
    claude.turn(user_store, 2, {**second, "gone": None, "again": "3\n"})
    session = claude.read(user_store)
    plan = going_back.revert(user_store, session, 1, dry_run=True)
    before = claude.contents()
    done = going_back.revert(user_store, session, 1, token=plan.token)
    text[4] = "line 4\n"
    assert done.changes is not None and plan.changes is not None
    assert done.changes.changes == plan.changes.changes
    assert done.changes.merged == ("text",)
    assert {kept.path: kept.reason for kept in done.changes.kept} == {
        "same": "changed since in the same lines",
        "data": "changed since, and cannot be merged: not a text, or too large",
        "made": "was made then, and changed since",
        "gone": "deleted since",
        "again": "was deleted then, and made again since",
    }
    assert claude.contents() == {**second, "text": "".join(text), "again": "3\n"}
    assert any("later changes are kept" in line for line in outcome_lines(done))
    going_back.undo(user_store, claude.project)
    assert claude.contents() == before
    assert len(session.turns()) == 2


def test_a_revert_of_a_turn_that_goes_on_is_refused(claude: FakeClaude, user_store: backtrail.Store) -> None:
    claude.begin(user_store, 4)
    session = claude.read(user_store)
    with pytest.raises(NoCheckpoint, match=r"turn 4 .* goes on"):
        going_back.revert(user_store, session, 4)
    plan = going_back.rewind(user_store, session, 4, dry_run=True)
    assert any("turn 4 has not ended" in note for note in plan.notes)


def test_sessions_that_worked_in_the_same_directory_are_named(claude: FakeClaude, user_store: backtrail.Store) -> None:
    other = FakeAgent(claude.project.parent, "codex", "session-2")
    other.tell(user_store, "UserPromptSubmit", prompt="p", turn_id="t-1")
    other.write("codex.txt", "x")
    other.tell(user_store, "Stop", turn_id="t-1")
    session = claude.read(user_store)
    plan = going_back.rewind(user_store, session, 3, dry_run=True)
    assert any("codex/session-2 worked in this directory since then" in note for note in plan.notes)
    going_back.rewind(user_store, session, 3)
    plan = going_back.rewind(user_store, other.read(user_store), 1, dry_run=True)
    assert not any(session.thread_id in note for note in plan.notes)


def test_undo_takes_back_one_step_after_the_other(claude: FakeClaude, user_store: backtrail.Store) -> None:
    first = claude.read(user_store)
    second = going_back.rewind(user_store, first, 3).session
    third = going_back.rewind(user_store, second, 2).session
    assert [turn.number for turn in third.turns()] == [1]
    assert claude.contents()["a.txt"] == "one"
    assert going_back.undo(user_store, claude.project).session.thread_id == second.thread_id
    assert claude.contents() == AFTER_TWO
    assert going_back.undo(user_store, claude.project).session.thread_id == first.thread_id
    assert claude.contents() == AFTER_THREE
    with pytest.raises(NoCheckpoint, match="nothing to undo"):
        going_back.undo(user_store, claude.project)


def test_a_restore_by_other_means_is_undone_as_well(claude: FakeClaude, user_store: backtrail.Store) -> None:
    session = claude.read(user_store)
    before = session.turn(2).before
    assert before is not None
    session.workspace().restore(before)
    done = going_back.undo(user_store, claude.project)
    assert (claude.contents(), done.fork) == (AFTER_THREE, None)


def test_a_transcript_that_the_agent_has_deleted_is_written_again_as_captured(
    claude: FakeClaude, user_store: backtrail.Store
) -> None:
    session = claude.read(user_store)
    original = [json.loads(line) for line in claude.transcript.read_text().splitlines()]
    claude.transcript.unlink()
    done = going_back.rewind(user_store, session, 3)
    assert done.fork is not None and done.fork.session_id is not None
    assert any("had deleted the transcript" in note for note in done.notes)
    claude.transcript.unlink()
    done = going_back.undo(user_store, claude.project)
    assert any("had deleted the transcript" in note for note in done.notes)
    assert [json.loads(line) for line in claude.transcript.read_text().splitlines()] == original
