"""OpenAI Agents sessions on backtrail, run with the SDK's scripted model."""

from __future__ import annotations

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


def test_a_limit_gives_the_newest_items_and_never_separates_a_call_from_its_output(
    store: Any, run_async: Callable[[Any], Any]
) -> None:
    async def session() -> None:
        one = BacktrailSession(store, "s")
        await one.add_items([user("1"), call("a"), output("a"), user("2"), user("3")])
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
