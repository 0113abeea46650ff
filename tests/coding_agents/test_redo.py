"""Redo: what an undo took back is brought back, files and conversation, and can be undone again."""

from __future__ import annotations

from pathlib import Path

import pytest

import backtrail
from backtrail.agents import going_back
from backtrail.agents.sessions import newest_session
from backtrail.errors import NoCheckpoint
from fix_stores import EVERY_ENGINE, open_stores

from .test_going_back import AFTER_THREE, AFTER_TWO, FakeClaude, three_turns


@pytest.fixture
def claude(tmp_path: Path, user_store: backtrail.Store) -> FakeClaude:
    return three_turns(FakeClaude(tmp_path), user_store)


def newest(store: backtrail.Store, claude: FakeClaude) -> str:
    found = newest_session(store, claude.project)
    assert found is not None
    return found.session_id


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_a_rewind_that_was_undone_is_done_again_and_undone_again(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for opener in open_stores(engine, "blocking", tmp_path, request):
        store = opener()
        claude = three_turns(FakeClaude(tmp_path), store)
        made = going_back.rewind(store, claude.read(store), 3)
        assert made.fork is not None
        for _ in range(2):
            back = going_back.undo(store, claude.project)
            assert (claude.contents(), newest(store, claude)) == (AFTER_THREE, claude.session_id)
            assert back.fork is not None and back.fork.session_id == claude.session_id
            again = going_back.redo(store, claude.project)
            assert (claude.contents(), newest(store, claude)) == (AFTER_TWO, made.fork.session_id)
            assert again.fork is not None and again.fork.resume == made.fork.resume
            assert [turn.number for turn in again.session.turns()] == [1, 2]


def test_redo_brings_back_what_was_written_between_the_rewind_and_its_undo(
    claude: FakeClaude, user_store: backtrail.Store
) -> None:
    going_back.rewind(user_store, claude.read(user_store), 3)
    claude.write("after.txt", "work after the rewind")
    going_back.undo(user_store, claude.project)
    claude.write("between.txt", "work after the undo")
    going_back.redo(user_store, claude.project)
    assert claude.contents() == AFTER_TWO | {"after.txt": "work after the rewind"}
    going_back.undo(user_store, claude.project)
    assert claude.contents() == AFTER_THREE | {"between.txt": "work after the undo"}


def test_several_undos_are_done_again_in_the_opposite_order(claude: FakeClaude, user_store: backtrail.Store) -> None:
    going_back.rewind(user_store, claude.read(user_store), 3, conversation=False)
    going_back.revert(user_store, claude.read(user_store), 1)
    reverted = claude.contents()
    going_back.undo(user_store, claude.project)
    going_back.undo(user_store, claude.project)
    assert claude.contents() == AFTER_THREE
    going_back.redo(user_store, claude.project)
    assert claude.contents() == AFTER_TWO
    going_back.redo(user_store, claude.project)
    assert claude.contents() == reverted
    with pytest.raises(NoCheckpoint, match="nothing to redo"):
        going_back.redo(user_store, claude.project)


def test_after_another_rewind_there_is_nothing_to_redo(claude: FakeClaude, user_store: backtrail.Store) -> None:
    going_back.rewind(user_store, claude.read(user_store), 3)
    going_back.undo(user_store, claude.project)
    going_back.rewind(user_store, claude.read(user_store), 2, conversation=False)
    before = claude.contents()
    with pytest.raises(NoCheckpoint, match="nothing to redo"):
        going_back.redo(user_store, claude.project)
    assert claude.contents() == before


def test_the_plan_of_a_redo_does_nothing_and_its_token_is_bound_to_the_files(
    claude: FakeClaude, user_store: backtrail.Store
) -> None:
    going_back.rewind(user_store, claude.read(user_store), 3)
    going_back.undo(user_store, claude.project)
    plan = going_back.redo(user_store, claude.project, dry_run=True)
    assert (claude.contents(), newest(user_store, claude)) == (AFTER_THREE, claude.session_id)
    claude.write("a.txt", "thr33")
    with pytest.raises(backtrail.Conflict, match="another one by now"):
        going_back.redo(user_store, claude.project, token=plan.token)
    assert claude.contents() == AFTER_THREE | {"a.txt": "thr33"}


def test_a_rewind_to_the_very_beginning_is_done_again_with_a_new_session(
    claude: FakeClaude, user_store: backtrail.Store
) -> None:
    made = going_back.rewind(user_store, claude.read(user_store), 1)
    assert made.fork is not None and made.fork.session_id is None
    going_back.undo(user_store, claude.project)
    again = going_back.redo(user_store, claude.project)
    assert again.fork is not None and again.fork.resume == ("claude",)


def test_an_agent_that_is_left_after_a_rewind_does_not_bring_its_old_session_to_the_front(
    claude: FakeClaude, user_store: backtrail.Store
) -> None:
    made = going_back.rewind(user_store, claude.read(user_store), 3)
    assert made.fork is not None and made.fork.session_id is not None
    claude.tell(user_store, "SessionEnd", reason="prompt_input_exit")
    assert newest(user_store, claude) == made.fork.session_id
    going_back.undo(user_store, claude.project)
    assert newest(user_store, claude) == claude.session_id
    going_back.redo(user_store, claude.project)
    claude.tell(user_store, "SessionEnd", reason="prompt_input_exit")
    assert newest(user_store, claude) == made.fork.session_id
    claude.turn(user_store, 4, {"a.txt": "the old session goes on"})
    assert newest(user_store, claude) == claude.session_id
    claude.tell(user_store, "SessionEnd", reason="prompt_input_exit")
    assert newest(user_store, claude) == claude.session_id
