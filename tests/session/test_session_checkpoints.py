"""A session has what a thread has: checkpoints with labels and files, undo and redo, differences, going back a turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import backtrail

QUESTION = {"role": "user", "content": "who built the labyrinth?"}


def talk(store: Any, turns: int = 3) -> Any:
    """A session of some turns, each a question and an answer."""
    session = store.session("talk")
    for n in range(1, turns + 1):
        session.add("user", f"question {n}", label=f"turn {n}")
        session.add("assistant", f"answer {n}")
    return session


def test_added_messages_take_label_tags_and_custom_fields(store: Any) -> None:
    session = store.session("talk")
    added = session.add("user", "hello", label="start", tags=["a"], custom={"n": 1}, name="ada")
    assert (added.label, added.tags, added.custom) == ("start", ("a",), {"n": 1})
    assert session.messages() == [{"role": "user", "content": "hello", "name": "ada"}]
    assert session.append(QUESTION, label="ask", tags=["b"]).label == "ask"
    assert session.extend([QUESTION, QUESTION], custom={"n": 2}).custom == {"n": 2}
    assert session.messages(at="ask")[-1] == QUESTION
    assert session.get("start").id == added.id
    assert session.annotate("@", label="end").label == "end"
    with pytest.raises(backtrail.InvalidInput, match="label"):
        session.add("user", "hello", label="")
    assert len(session.history()) == 3


def test_added_messages_take_files_and_the_session_goes_back_with_them(blocking_store: Any, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("one")
    workspace = blocking_store.workspace(project)
    session = blocking_store.session("talk")
    session.add("user", "one", files=workspace)
    (project / "a.txt").write_text("two")
    session.append({"role": "user", "content": "two"}, files=workspace)
    (project / "a.txt").write_text("three")
    assert session.save(label="three", files=workspace).files is not None
    session.rewind(turn=2, files=True)
    assert ((project / "a.txt").read_text(), len(session)) == ("one", 1)


def test_an_append_that_is_repeated_under_its_id_is_made_once(store: Any) -> None:
    session = store.session("talk")
    id = "01234567-89ab-7def-8123-456789abcdef"
    first = session.append(QUESTION, id=id)
    assert session.append(QUESTION, id=id) == first
    assert store.session("talk").extend([QUESTION], id=id) == first
    assert (session.count(), session.user_turns) == (1, 1)


def test_a_session_is_loaded_compared_and_moved_like_a_thread(store: Any) -> None:
    session = talk(store)
    assert session.load()["user_turns"] == 3
    assert session.load("turn 2") == session.thread.load("turn 2")
    assert [c.step for c in session.history(limit=2)] == [5, 6]
    assert [change.path for change in session.diff("@~1").changes] == ["messages[5]"]
    assert session.undo().step == 5
    assert session.undo().step == 4
    assert (session.count(), session.user_turns) == (4, 2)
    assert session.redo().step == 5
    session.add("assistant", "another answer")
    assert [message["content"] for message in session.messages(last=2)] == ["question 3", "another answer"]
    with pytest.raises(backtrail.NoCheckpoint):
        session.redo()
    fork = session.fork(at="turn 1")
    fork.add("assistant", "a third")
    assert [change.path for change in session.diff("@", fork.get("@"), since_fork=True).changes] == ["messages[1]"]


@pytest.mark.parametrize(
    ("turn", "left"), [(-1, ["question 1", "answer 1", "question 2", "answer 2"]), (-2, ["question 1", "answer 1"])]
)
def test_a_session_goes_back_to_before_a_turn(store: Any, turn: int, left: list[str]) -> None:
    session = talk(store)
    session.rewind(turn=turn)
    assert [message["content"] for message in session.messages()] == left
    assert session.user_turns == len(left) // 2
    session.undo()
    session.rewind(turn=4 + turn)
    assert [message["content"] for message in session.messages()] == left


def test_a_turn_is_taken_back_again_and_again_and_after_truncation(store: Any) -> None:
    session = talk(store, 5)
    session.truncate(keep_last=2)
    assert session.rewind(turn=-1).step == 8
    session.rewind(turn=-1)
    session.rewind(turn=-1)
    session.add("user", "another third")
    session.rewind(turn=3)
    assert [message["content"] for message in session.messages()] == [
        "question 1",
        "answer 1",
        "question 2",
        "answer 2",
    ]


def test_a_session_goes_back_to_any_checkpoint(store: Any) -> None:
    session = talk(store)
    assert session.rewind(at="turn 2").label == "turn 2"
    assert session.rewind(at=1).step == 1


def test_a_turn_that_cannot_be_gone_back_to_is_explained_and_nothing_changes(store: Any) -> None:
    session = talk(store, 2)
    for turn, said in [(3, "has no user turn 3: it has 2"), (-3, "no user turn -3"), (1, "no checkpoint from before")]:
        with pytest.raises(backtrail.NoCheckpoint, match=said):
            session.rewind(turn=turn)
    for wrong in (0, 1.5, "1", True):
        with pytest.raises(backtrail.InvalidInput, match="numbered from 1"):
            session.rewind(turn=wrong)
    with pytest.raises(backtrail.InvalidInput, match="say turn=-1"):
        session.rewind(-1)
    for given in ({}, {"turn": 1, "at": 1}, {"message_id": "m", "turn": 1}):
        with pytest.raises(backtrail.InvalidInput, match="exactly one"):
            session.rewind(**given)
    session.extend([{"role": "user", "content": text} for text in ("three", "four", "five")])
    with pytest.raises(backtrail.NoCheckpoint, match=r"turns 3 to 5 were saved as one checkpoint; rewind\(turn=3\)"):
        session.rewind(turn=-1)
    assert session.count() == 7
    assert session.rewind(turn=3).step == 4
    with pytest.raises(backtrail.NoCheckpoint, match="does not exist"):
        store.session("nobody").rewind(turn=-1)
