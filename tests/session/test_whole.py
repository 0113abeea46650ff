"""Windows and cuts that never part a tool call from its result; summaries without races; mending in place."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import backtrail
import backtrail.aio


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


def test_nested_pairs_are_followed_as_far_as_they_go(store: Any) -> None:
    session = store.session("s")
    said = [user("q"), call("a"), call("b"), result("a"), user("meanwhile"), result("b")]
    session.extend(said)
    assert session.messages(last=1) == said[1:]


def test_an_orphan_result_does_not_drag_the_whole_history_along(store: Any) -> None:
    session = store.session("s")
    session.extend([user(f"{number}") for number in range(600)])
    session.append(result("nobody"))
    assert session.messages(last=1) == [result("nobody")]


@pytest.mark.parametrize("keep", range(8))
def test_no_truncation_leaves_a_problem_that_was_not_there(store: Any, keep: int) -> None:
    session = store.session("s")
    session.extend([user("1"), call("a"), result("a"), user("2"), call("b", "c"), result("c"), result("b")])
    session.truncate(keep_last=keep)
    assert session.repair() == []


def test_a_cut_looks_only_around_itself(store: Any) -> None:
    session = store.session("s")
    for number in range(40):
        session.extend([user(f"{number}"), call(f"c{number}"), result(f"c{number}")] * 10)
    engine = store._core.context.engine
    payloads, read = engine.payloads, list[int]()

    async def counting(lineage: str, branch: bytes, first: int, last: int) -> Any:
        read.append(last - first + 1)
        return await payloads(lineage, branch, first, last)

    engine.payloads = counting
    try:
        session.truncate(keep_last=1099)
    finally:
        del engine.payloads
    assert session.count() == 1100
    assert sum(read) < 12


def test_truncate_before_a_result_keeps_its_call(store: Any) -> None:
    session = store.session("s")
    session.extend([user("1"), call("a"), {**result("a"), "id": "r1"}, user("2")])
    session.truncate(before="r1")
    assert session.messages()[0] == call("a")


def test_repair_tells_first_and_mends_when_asked(store: Any) -> None:
    session = store.session("s")
    session.extend([user("1"), call("a")])
    told = session.repair()
    assert [(p.kind, p.call_id, p.message_id) for p in told] == [("unanswered call", "a", "#2")]
    assert len(session.messages()) == 2
    assert session.repair(fix=True) == told
    assert session.repair() == []
    assert session.messages()[:2] == [user("1"), call("a")]
    assert session.messages()[2]["tool_call_id"] == "a"


def test_repair_in_the_middle_keeps_what_is_around_it_and_the_history(store: Any) -> None:
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


def test_compact_puts_a_summary_in_the_place_of_what_it_read(blocking_store: Any) -> None:
    session = blocking_store.session("s")
    said = [user(f"{number} " + "x" * 50) for number in range(30)]
    for message in said:
        session.append(message)
    full = session.thread.head
    asked: list[Any] = []

    def summarize(messages: list[Any]) -> str:
        asked.append(messages)
        session.add("user", "meanwhile")
        return "thirty, less ten"

    session.compact(summarize=summarize, keep_last=10)
    assert asked == [said[:20]]
    assert session.summary == "thirty, less ten"
    assert session.messages() == [*said[20:], user("meanwhile")]
    assert session.messages(at=full) == said
    assert session.user_turns == 31


def test_compact_has_nothing_to_do_where_nothing_would_go(store: Any) -> None:
    session = store.session("s")
    assert session.compact(summarize=lambda _: "never", keep_last=1) is None
    session.add("user", "x")
    assert session.compact(summarize=lambda _: "never", keep_last=1) is None
    assert session.summary == ""
    with pytest.raises(backtrail.InvalidInput):
        session.compact(summarize="no callable")


def test_a_summary_that_failed_changes_nothing(store: Any) -> None:
    session = store.session("s")
    session.extend([user("a"), user("b")])

    def fails(messages: list[Any]) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        session.compact(fails, keep_last=1)
    with pytest.raises(backtrail.InvalidInput, match="str"):
        session.compact(lambda _: 3, keep_last=1)
    assert (len(session.messages()), session.summary) == (2, "")


@pytest.mark.parametrize("length", [3, 40])
@pytest.mark.parametrize("meanwhile", ["replace", "truncate", "clear", "set_summary", "rewind and add"])
def test_a_summary_of_what_has_changed_meanwhile_is_not_applied(
    blocking_store: Any, meanwhile: str, length: int
) -> None:
    session, other = blocking_store.session("s"), blocking_store.session("s")
    session.snapshot("begin")
    session.extend([user(f"{number}") for number in range(length)])

    def summarize(messages: list[Any]) -> str:
        if meanwhile == "replace":
            other.replace([user("other")] * length)
        elif meanwhile == "truncate":
            other.truncate(keep_last=2)
        elif meanwhile == "clear":
            other.clear()
        elif meanwhile == "set_summary":
            other.set_summary("mine")
        else:
            other.rewind("begin")
            other.extend([user(f"else {number}") for number in range(length)])
        return "stale"

    with pytest.raises(backtrail.Conflict, match="nothing was applied"):
        session.compact(summarize, keep_last=1)
    assert session.summary != "stale"


def test_a_slow_summary_and_a_busy_writer_lose_nothing(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "s.db", durability="normal") as store:
        session = store.session("s")
        session.extend([user(f"old {number}") for number in range(50)])

        def summarize(messages: list[Any]) -> str:
            def write() -> None:
                for number in range(100):
                    store.session("s").add("user", f"new {number}")

            writer = threading.Thread(target=write)
            writer.start()
            writer.join()
            return "fifty"

        session.compact(summarize, keep_last=0)
        assert [m["content"] for m in session.messages()] == [f"new {number}" for number in range(100)]


def test_an_async_summary_is_awaited(tmp_path: Path) -> None:
    async def main() -> None:
        async with await backtrail.aio.open(tmp_path / "s.db") as store:
            session = store.session("s")
            await session.extend([user("a"), user("b"), user("c")])

            async def summarize(messages: list[Any]) -> str:
                await session.add("user", "meanwhile")
                return f"{len(messages)} messages"

            await session.compact(summarize, keep_last=1)
            assert await session.summary == "2 messages"
            assert [m["content"] for m in await session.messages()] == ["c", "meanwhile"]

    asyncio.run(main())
