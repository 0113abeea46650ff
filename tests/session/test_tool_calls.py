"""Tool calls in a session: no window or cut separates a call from its result, and repair closes what is open."""

from __future__ import annotations

from typing import Any

import pytest


def call(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id, "function": {"name": "f"}} for id in ids]}


def result(id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": "r" * 200}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_a_window_that_begins_with_a_result_reaches_back_to_its_call(store: Any) -> None:
    session = store.session("s")
    said = [user("q"), call("a", "b"), result("a"), result("b"), {"role": "assistant", "content": "done"}]
    session.extend(said)
    assert session.messages(last=1) == said[4:]
    assert session.messages(last=2) == said[1:]
    assert session.messages(last=3) == said[1:]
    assert session.messages(last=2, whole=False) == said[3:]


def test_a_hundred_parallel_calls_stay_with_their_results(store: Any) -> None:
    session = store.session("s")
    ids = [f"c{number}" for number in range(100)]
    said = [user("q"), call(*ids), *map(result, ids)]
    for message in said:
        session.append(message)
    assert session.messages(last=1) == said[1:]
    session.truncate(keep_last=1)
    assert session.messages() == said[1:]


def test_a_window_reaches_back_over_interleaved_calls(store: Any) -> None:
    session = store.session("s")
    said = [user("q"), call("a"), call("b"), result("a"), user("meanwhile"), result("b")]
    session.extend(said)
    assert session.messages(last=1) == said[1:]


def test_an_orphan_result_does_not_extend_a_window_over_the_whole_history(store: Any) -> None:
    session = store.session("s")
    session.extend([user(f"{number}") for number in range(600)])
    session.append(result("nobody"))
    assert session.messages(last=1) == [result("nobody")]


@pytest.mark.parametrize("keep", range(8))
def test_truncate_makes_no_problem_that_was_not_there(store: Any, keep: int) -> None:
    session = store.session("s")
    session.extend([user("1"), call("a"), result("a"), user("2"), call("b", "c"), result("c"), result("b")])
    session.truncate(keep_last=keep)
    assert session.repair() == []


def test_truncate_reads_only_messages_around_the_cut(store: Any, payload_reads: Any) -> None:
    session = store.session("s")
    for number in range(40):
        session.extend([user(f"{number}"), call(f"c{number}"), result(f"c{number}")] * 10)
    with payload_reads(store) as reads:
        session.truncate(keep_last=1099)
    assert session.count() == 1100
    assert sum(rows for rows, _ in reads) < 12


def test_truncate_before_a_result_keeps_its_call(store: Any) -> None:
    session = store.session("s")
    session.extend([user("1"), call("a"), {**result("a"), "id": "r1"}, user("2")])
    session.truncate(before="r1")
    assert session.messages()[0] == call("a")


def test_repair_only_reports_until_it_is_asked_to_fix(store: Any) -> None:
    session = store.session("s")
    session.extend([user("1"), call("a")])
    found = session.repair()
    assert [(p.kind, p.call_id, p.message_id) for p in found] == [("unanswered call", "a", "#2")]
    assert len(session.messages()) == 2
    assert session.repair(fix=True) == found
    assert session.repair() == []
    assert session.messages()[:2] == [user("1"), call("a")]
    assert session.messages()[2]["tool_call_id"] == "a"


def test_repair_in_the_middle_keeps_the_other_messages_and_the_history(store: Any) -> None:
    session = store.session("s")
    said = [user("1"), call("a", "b"), result("b"), user("2"), result("ghost"), user("3")]
    session.extend(said)
    before = session.thread.head
    session.repair(fix=True, alternating=True)
    assert session.repair(alternating=True) == []
    kept = session.messages()
    assert [m for m in kept if m in said] == [said[0], said[1], said[2], said[3], said[5]]
    assert session.messages(at=before) == said
    assert session.user_turns == 3
