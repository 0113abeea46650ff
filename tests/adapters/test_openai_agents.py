"""OpenAI Agents sessions on backtrail, run with the SDK's scripted model."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, function_tool
from agents.memory import Session, SessionSettings
from agents.testing import ScriptedModel, assistant_message, function_call

from backtrail.adapters.openai_agents import BacktrailSession
from backtrail.errors import Conflict, InvalidInput

OFFLINE = RunConfig(tracing_disabled=True)


def user(text: str) -> Any:
    return {"role": "user", "content": text}


def call(id: str) -> Any:
    return {"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"}


def output(id: str) -> Any:
    return {"type": "function_call_output", "call_id": id, "output": "done"}


def test_items_come_back_as_they_were_added(open_store: Any, run_async: Callable[[Any], Any]) -> None:
    async def session() -> None:
        async with open_store() as store:
            one = BacktrailSession(store, "s/1 ü")
            assert isinstance(one, Session)
            assert await one.get_items() == []
            assert await one.pop_item() is None
            items = [
                user("hi"),
                call("a"),
                output("a"),
                {"type": "reasoning", "id": "r", "summary": [], "new": {"x": 1}},
            ]
            await one.add_items(items)
            await one.add_items([])
            assert await one.get_items() == items
            assert await BacktrailSession(store, "s/1 ü").get_items(limit=1) == items[-1:]
            assert await one.pop_item() == items[-1]
            assert await one.get_items() == items[:-1]
            await one.clear_session()
            assert await one.get_items() == []
            assert await BacktrailSession(store, "other").get_items() == []

    run_async(session())


def test_a_limit_gives_the_newest_items_and_with_whole_the_calls_of_their_outputs(
    store: Any, run_async: Callable[[Any], Any]
) -> None:
    async def session() -> None:
        items = [user("1"), call("a"), output("a"), user("2"), user("3")]
        exact = BacktrailSession(store, "s")
        await exact.add_items(items)
        for limit in range(7):
            assert await exact.get_items(limit=limit) == items[max(0, 5 - limit) :]
        assert await exact.get_items(limit=-1) == items
        one = BacktrailSession(store, "s", whole=True)
        assert await one.get_items(limit=2) == [user("2"), user("3")]
        assert await one.get_items(limit=3) == [call("a"), output("a"), user("2"), user("3")]
        assert await one.get_items(limit=0) == []
        assert len(await one.get_items(limit=99)) == 5
        limited = BacktrailSession(store, "s", session_settings=SessionSettings(limit=1))
        assert await limited.get_items() == [user("3")]
        assert await limited.get_items(limit=2) == [user("2"), user("3")]

    run_async(session())


def test_replacing_all_items_refuses_to_lose_those_of_another_writer(
    store: Any, run_async: Callable[[Any], Any]
) -> None:
    async def session() -> None:
        one, other = BacktrailSession(store, "s"), BacktrailSession(store, "s")
        await one.add_items([user(str(i)) for i in range(10)])
        await one.get_items()
        await one.replace_items([user("summary"), user("9")])
        assert await other.get_items() == [user("summary"), user("9")]
        await other.add_items([user("10")])
        with pytest.raises(Conflict):
            await one.replace_items([user("lost?")])
        assert len(await one.get_items()) == 3

    run_async(session())


def test_sessions_fork_and_rewind(store: Any, run_async: Callable[[Any], Any]) -> None:
    async def session() -> None:
        one = BacktrailSession(store, "s")
        await one.add_items([user("1")])
        await one.add_items([user("2")])
        first = (await one.checkpoints())[0]
        fork = await one.fork(at=first)
        await fork.add_items([user("other")])
        assert await fork.get_items() == [user("1"), user("other")]
        assert fork.session_id == "s#fork-1"
        await one.rewind(first)
        assert await one.get_items() == [user("1")]

    run_async(session())


def test_a_run_that_failed_in_a_tool_is_continued_by_another_process(
    reopen_store: Callable[[], Any], run_async: Callable[[Any], Any]
) -> None:
    broken = True

    @function_tool(failure_error_function=None)
    def weather(city: str) -> str:
        """Tells the weather."""
        if broken:
            raise ConnectionError("the network is away")
        return f"sunny in {city}"

    def agent(*steps: Any) -> Any:
        return Agent(name="a", model=ScriptedModel([[step] for step in steps]), tools=[weather])

    asks = function_call("weather", {"city": "Rome"}, call_id="call-1")

    async def talk() -> None:
        nonlocal broken
        store = reopen_store()
        session = BacktrailSession(store, "s")
        result = await Runner.run(agent(assistant_message("hello")), "hi", session=session, run_config=OFFLINE)
        await session.store_run_usage(result)
        with pytest.raises(Exception, match="network"):
            await Runner.run(agent(asks), "weather?", session=session, run_config=OFFLINE)
        store.close()
        broken = False
        session = BacktrailSession(reopen_store(), "s")
        kept = await session.get_items()
        assert [item.get("content") for item in kept if item.get("role") == "user"] == ["hi", "weather?"]
        again = agent(asks, assistant_message("It is sunny."))
        result = await Runner.run(again, "and now?", session=session, run_config=OFFLINE)
        assert result.final_output == "It is sunny."
        items = await session.get_items()
        assert [item["type"] for item in items if item.get("call_id") == "call-1"][-2:] == [
            "function_call",
            "function_call_output",
        ]
        assert len(await session.usage()) == 1

    run_async(talk())


def test_a_bad_session_id_is_refused(store: Any) -> None:
    for bad in ("", "a\0b", 7):
        with pytest.raises(InvalidInput):
            BacktrailSession(store, bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="an adapter takes"):
        BacktrailSession.__init__(object.__new__(BacktrailSession), _NotAStore(), "s")  # type: ignore[arg-type]


class _NotAStore:
    def session(self, id: str) -> None:
        return None


def test_a_write_whose_task_is_cancelled_has_happened_when_the_task_ends(
    store: Any, run_async: Callable[[Any], Any]
) -> None:
    begun, allowed = threading.Event(), threading.Event()

    async def session() -> None:
        one = BacktrailSession(store, "s")
        extend = one.session.extend

        def slow_extend(items: Any) -> Any:
            begun.set()
            allowed.wait(10)
            return extend(items)

        one.session.extend = slow_extend
        writing = asyncio.ensure_future(one.add_items([user("1")]))
        await asyncio.to_thread(begun.wait, 10)
        for _ in range(2):  # an impatient caller cancels twice
            writing.cancel()
            await asyncio.sleep(0.01)
        assert not writing.done()
        allowed.set()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert await one.get_items() == [user("1")]

    run_async(session())


def test_the_sdks_compaction_replaces_the_end_in_one_step_unless_another_writer_was_there(
    open_store: Any, run_async: Callable[[Any], Any]
) -> None:
    async def session() -> None:
        async with open_store() as store:
            one, other = BacktrailSession(store, "s"), BacktrailSession(store, "s")
            await one.add_items([user(str(number)) for number in range(6)])
            snapshot: Any = await one._get_compaction_snapshot(3, prune_prefix=lambda item: item["content"] in "02")
            assert (snapshot.items, snapshot.complete) == ([user("3"), user("4"), user("5")], False)
            assert await snapshot.replace_suffix(1, [user("4 and 5")])
            assert [item["content"] for item in await other.get_items()] == ["1", "2", "3", "4 and 5"]
            assert len(await one.checkpoints()) == 2
            assert not await snapshot.replace_suffix(1, [user("again")])  # the end has changed
            whole: Any = await one._get_compaction_snapshot(4)
            assert whole.complete
            await other.add_items([user("late")])
            assert not await whole.replace_suffix(0, [user("summary")])
            assert (await one.get_items())[-1] == user("late")
            assert await one._atomic_replace_items([user("summary")])
            assert await other.get_items() == [user("summary")]

    run_async(session())


def test_a_subclass_that_transforms_items_is_not_bypassed_by_compaction(
    store: Any, run_async: Callable[[Any], Any]
) -> None:
    class Loud(BacktrailSession):
        async def add_items(self, items: list[Any]) -> None:
            await super().add_items([{**item, "content": item["content"].upper()} for item in items])

    async def session() -> None:
        one = Loud(store, "s")
        await one.add_items([user("a")])
        assert await one._get_compaction_snapshot(9) is None
        assert not await one._atomic_replace_items([user("b")])
        assert await one.get_items() == [user("A")]

    run_async(session())


def test_items_are_json_as_in_the_sdks_own_sessions(store: Any, run_async: Callable[[Any], Any]) -> None:
    async def session() -> None:
        one = BacktrailSession(store, "s")
        await one.add_items([{"role": "user", "content": ("a", {1: None})}])
        assert await one.get_items() == [{"role": "user", "content": ["a", {"1": None}]}]
        with pytest.raises(TypeError, match="not JSON serializable"):
            await one.add_items([user("fine"), user(b"bytes")])
        assert len(await one.get_items()) == 1

    run_async(session())
