"""S4, openrouter-agent-sdk: each operation of its sessions on conversations, and the traps they had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import backtrail


def test_a_session_exists_once_it_was_saved(store: Any) -> None:
    assert not store.session("s").exists()
    store.session("s").save()
    assert store.session("s").exists()
    assert store.session("s").messages() == []


def test_the_list_is_newest_first_and_holds_no_live_objects(store: Any) -> None:
    for name in ("a", "b", "c"):
        store.session(name).add("user", name)
    store.session("a").add("user", "again")
    listed = store.sessions()
    assert [info.id for info in listed] == ["a", "c", "b"]
    with pytest.raises(AttributeError):
        listed[0].messages = 7


def test_set_state_replaces_messages_and_turns_and_copies_deeply(store: Any) -> None:
    session = store.session("s")
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    session.replace(messages, user_turns=5)
    messages[0]["content"][0]["text"] = "changed"  # type: ignore[index]
    session.messages()[0]["content"][0]["text"] = "changed"
    assert session.messages() == [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
    assert session.user_turns == 5


def test_a_clone_has_the_messages_turns_and_snapshots_of_its_source(store: Any) -> None:
    session = store.session("s")
    session.add("user", "one")
    session.snapshot("m1")
    session.add("user", "two")
    clone = session.fork("t")
    assert (clone.messages(), clone.user_turns) == (session.messages(), 2)
    clone.rewind("m1")
    assert (clone.user_turns, session.user_turns) == (1, 2)


def test_fork_names_are_counted_up_and_never_collide(store: Any) -> None:
    session = store.session("s")
    session.add("user", "x")
    store.session("s#fork-2").add("user", "was here before")
    assert [session.fork().id for _ in range(3)] == ["s#fork-1", "s#fork-3", "s#fork-4"]
    assert store.session("s#fork-2").messages()[0]["content"] == "was here before"


def test_rewind_takes_later_snapshots_and_turns_back_and_can_be_undone(store: Any) -> None:
    session = store.session("s")
    session.add("user", "one")
    session.snapshot("m1")
    session.add("user", "two")
    session.snapshot("m2")
    session.rewind("m1")
    assert ([m["content"] for m in session.messages()], session.user_turns) == (["one"], 1)
    with pytest.raises(backtrail.NoCheckpoint):
        session.rewind("m2")
    session.thread.undo()
    session.rewind("m2")
    assert session.user_turns == 2


def test_a_message_without_a_snapshot_is_an_error_with_its_own_name(store: Any) -> None:
    store.session("s").add("user", "x")
    with pytest.raises(backtrail.NoCheckpoint, match="unknown"):
        store.session("s").rewind("unknown")


def test_a_change_writes_one_session_and_not_all_of_them(store: Any) -> None:
    for number in range(20):
        store.session(f"s{number}").add("user", "x" * 2000)
    assert store.session("s3").add("user", "y").written < 500


def test_its_one_file_is_imported_with_turns_and_snapshots(store: Any, tmp_path: Path) -> None:
    first = [{"role": "user", "content": "one"}]
    both = [*first, {"role": "assistant", "content": "two"}, {"role": "user", "content": "three"}]
    saved = {
        "sessions": {
            "s1": {
                "ID": "s1",
                "CreatedAt": "2026-04-01T10:00:00Z",
                "UpdatedAt": "2026-04-01T11:00:00Z",
                "Messages": both,
                "UserTurns": 7,
                "Checkpoints": {"m1": first, "m2": both},
                "FileCheckpoints": {"m1": {"a.txt": "x"}},
            },
            "s2": {"ID": "s2", "Messages": None, "UserTurns": 0, "Checkpoints": {}, "FileCheckpoints": {}},
        },
        "fork_counters": {"s1": 1},
    }
    (tmp_path / "sessions.json").write_text(json.dumps(saved))
    store.import_(tmp_path / "sessions.json")
    session = store.session("s1")
    assert (session.messages(), session.user_turns) == (both, 7)
    assert store.session("s2").messages() == []
    session.rewind("m1")
    assert session.messages() == first
    assert store.import_(tmp_path / "sessions.json").imported == ()
    assert session.messages() == first
