"""Retention of sessions: old checkpoints may be dropped, but never a message that is still in the session."""

from __future__ import annotations

from typing import Any

import pytest

import backtrail


def test_a_pruned_session_keeps_its_messages_and_goes_on(store: Any) -> None:
    session = store.session("s")
    said = [{"role": "user", "content": f"{number} " + "x" * 300} for number in range(40)]
    for number, message in enumerate(said):
        session.append(message)
        if number == 10:
            session.snapshot("early")
    session.truncate(keep_last=20)
    store.prune(retention=backtrail.Retention(keep_last=1))
    assert session.messages() == said[20:]
    assert session.messages(last=3) == said[-3:]
    with pytest.raises(backtrail.NoCheckpoint):
        session.rewind("early")
    session.add("user", "after")
    assert session.pop() == {"role": "user", "content": "after"}
    assert (session.user_turns, session.ids()[0]) == (40, "#21")
    assert store.sessions()[0].messages == 20


def test_a_truncated_message_is_freed_once_nothing_holds_it(store: Any) -> None:
    session = store.session("s")
    for number in range(30):
        session.add("user", f"{number} " + "x" * 5000)
    session.truncate(keep_last=2)
    store.prune(retention=backtrail.Retention(keep_last=1))
    assert [m["content"][:3] for m in session.messages()] == ["28 ", "29 "]
    assert store.stats()["rows"] < 30
