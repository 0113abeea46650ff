"""Compaction: a summary replaces old messages, and no writer loses anything meanwhile."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import backtrail
import backtrail.aio


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def test_compact_replaces_the_messages_it_read_with_a_summary(blocking_store: Any) -> None:
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


def test_compact_does_nothing_if_there_is_nothing_to_summarise(store: Any) -> None:
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
def test_a_summary_of_messages_that_changed_meanwhile_is_not_applied(
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
