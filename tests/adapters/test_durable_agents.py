"""Agents in a durable run: their calls are steps, done once, on every engine that outlives a process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agents import Agent as OpenAIAgent
from agents import function_tool, set_tracing_disabled
from agents.items import ModelResponse as ModelResponse_
from agents.models.interface import Model as OpenAIModel
from agents.usage import Usage
from claude_agent_sdk import tool as claude_tool
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import interrupt
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import backtrail
import backtrail.aio
from backtrail.adapters.claude import durable_tool as durable_claude_tool
from backtrail.adapters.langgraph import BacktrailSaver, arun_graph, run_graph
from backtrail.adapters.langgraph import durable_tool as durable_graph_tool
from backtrail.adapters.openai_agents import durable_tool as durable_openai_tool
from backtrail.adapters.openai_agents import run_with_approvals
from backtrail.adapters.pydantic_ai import BacktrailDurability
from fix_stores import EVERY_ENGINE, address


class Place:
    """A store that is opened again and again, as by one process after another."""

    def __init__(self, url: Any, options: dict[str, Any]) -> None:
        self.url, self.options = url, options

    def open(self) -> backtrail.Store:
        return backtrail.open(self.url, **self.options)

    async def open_async(self) -> backtrail.aio.AsyncStore:
        return await backtrail.aio.open(self.url, **self.options)


@pytest.fixture(params=[engine for engine in EVERY_ENGINE if engine != "memory"])  # that is gone with its process
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(*address(request.param, "durable", tmp_path, request))


class Crash(BaseException):
    """The process dies here: nothing of it is recorded, as of no other BaseException."""


def make_agent(calls: list[str], crash: set[str]) -> Agent[None, str]:
    """An agent that looks up two cities at once, and then a third."""

    def respond(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        returned = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        calls.append(f"model {len(returned)}")
        if not returned:
            return ModelResponse([ToolCallPart("look_up", {"city": city}) for city in ("Rome", "Oslo")])
        if len(returned) == 2:
            return ModelResponse([ToolCallPart("look_up", {"city": "Lima"})])
        return ModelResponse([TextPart(", ".join(str(part.content) for part in returned))])

    agent = Agent(FunctionModel(respond), name="weather", capabilities=[BacktrailDurability()])

    @agent.tool_plain
    def look_up(city: str) -> str:
        calls.append(city)
        if city in crash:
            raise Crash
        return f"{city}: {len(city)}"

    return agent


EVERYTHING = ["model 0", "Rome", "Oslo", "model 2", "Lima", "model 3"]


def test_a_resumed_agent_goes_on_after_its_last_call_in_an_async_run(place: Place) -> None:
    calls: list[str] = []

    async def life(crash: set[str]) -> Any:
        async with await place.open_async() as store, store.run("r") as run:
            run.result = (await make_agent(calls, crash).run("weather?")).output
        return run.result

    with pytest.raises(Crash):
        asyncio.run(life({"Lima"}))
    assert sorted(calls) == sorted(EVERYTHING[:5])  # Rome and Oslo are looked up at once
    assert asyncio.run(life(set())) == "Rome: 4, Oslo: 4, Lima: 4"
    assert sorted(calls[:5]) == sorted(EVERYTHING[:5])
    assert calls[5:] == EVERYTHING[4:]


def test_a_resumed_agent_goes_on_after_its_last_call_in_a_sync_run(place: Place) -> None:
    calls: list[str] = []

    def life(crash: set[str]) -> Any:
        with place.open() as store, store.run("r") as run:
            run.result = make_agent(calls, crash).run_sync("weather?").output
        return run.result

    with pytest.raises(Crash):
        life({"Lima"})
    assert life(set()) == "Rome: 4, Oslo: 4, Lima: 4"
    assert sorted(calls[:5]) == sorted(EVERYTHING[:5])
    assert calls[5:] == EVERYTHING[4:]
    with place.open() as store:
        names = [step.name for step in store.run("r").steps()]
    assert sum("model.request" in name for name in names) == 3
    assert sum("call_tool:look_up" in name for name in names) == 3


def test_a_changed_prompt_is_refused_and_not_answered_with_the_old_response(place: Place) -> None:
    async def life(prompt: str, crash: set[str]) -> None:
        async with await place.open_async() as store, store.run("r"):
            await make_agent([], crash).run(prompt)

    with pytest.raises(Crash):
        asyncio.run(life("weather?", {"Lima"}))
    with pytest.raises(backtrail.StepChanged):
        asyncio.run(life("something else?", set()))


def test_two_runs_of_one_agent_in_a_run_are_told_apart(place: Place) -> None:
    calls: list[str] = []

    async def life() -> list[str]:
        async with await place.open_async() as store, store.run("r") as run:
            agent = make_agent(calls, set())
            both = await asyncio.gather(agent.run("weather?"), agent.run("weather?"))
            outputs = [one.output for one in both]
            await run.ask("enough?", "Enough?")
        return outputs

    for _ in range(2):
        with pytest.raises(backtrail.Suspended):
            asyncio.run(life())
    assert sorted(calls) == sorted(2 * EVERYTHING)


def test_outside_of_a_run_an_agent_is_as_it_was() -> None:
    calls: list[str] = []
    assert make_agent(calls, set()).run_sync("weather?").output == "Rome: 4, Oslo: 4, Lima: 4"
    assert sorted(calls) == sorted(EVERYTHING)


# -- OpenAI Agents -----------------------------------------------------------------------------------------------------


class ScriptedModel(OpenAIModel):
    """A model that makes a call of each given tool at once, then answers with their outputs."""

    def __init__(self, tools: list[str], asked: list[str]) -> None:
        self.tools, self.asked = tools, asked

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse_:
        outputs = [item["output"] for item in input if isinstance(item, dict) and "output" in item]
        self.asked.append(f"{len(outputs)} outputs")
        output: list[Any] = (
            [ResponseOutputMessage.model_validate(_message("; ".join(outputs)))]
            if outputs
            else [
                ResponseFunctionToolCall(
                    arguments='{"order": 12}', call_id=f"call-{len(self.asked)}-{n}", name=name, type="function_call"
                )
                for n, name in enumerate(self.tools)
            ]
        )
        return ModelResponse_(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def _message(text: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": content}


def shop(calls: list[str], crash: bool = False) -> Any:
    """A tool that needs an approval, and one that does not."""

    def pay(order: int) -> str:
        calls.append(f"pay {order}")
        return f"paid {order}"

    def ship(order: int) -> str:
        calls.append(f"ship {order}")
        if crash:
            raise Crash
        return f"shipped {order}"

    pay_tool = function_tool(pay, needs_approval=True)
    return [durable_openai_tool(pay_tool), durable_openai_tool(function_tool(ship, needs_approval=True))]


@pytest.mark.parametrize("api", ["sync", "async"])
def test_approvals_of_the_openai_sdk_are_pending_questions_and_are_answered_from_the_store(
    place: Place, api: str
) -> None:
    calls: list[str] = []
    asked: list[str] = []

    async def life_async(agent: OpenAIAgent[Any]) -> str:
        async with await place.open_async() as store, store.run("r") as run:
            result = await run_with_approvals(run, agent, "order 12")
            run.result = result.final_output
        return str(run.result)

    def life(crash: bool = False) -> str:
        agent = OpenAIAgent("shop", model=ScriptedModel(["pay", "ship"], asked), tools=shop(calls, crash))
        if api == "async":
            return asyncio.run(life_async(agent))
        with place.open() as store, store.run("r") as run:
            result = asyncio.run(run_with_approvals(run, agent, "order 12"))
            run.result = result.final_output
        return str(run.result)

    set_tracing_disabled(True)
    with pytest.raises(backtrail.Suspended):
        life()
    assert calls == []
    with place.open() as store:
        pending = store.pending()
        assert [one.about["tool"] for one in sorted(pending, key=lambda one: one.name)] == ["pay", "ship"]
        assert all(one.about["arguments"] == '{"order": 12}' for one in pending)
        for one in pending:
            store.answer("r", one.name, True, by="ann", digest=one.digest)
    with pytest.raises(Crash):
        life(crash=True)
    assert life() == "paid 12; shipped 12"
    assert calls.count("pay 12") == 1
    assert asked == ["0 outputs", "2 outputs"]


def test_a_rejected_call_of_the_openai_sdk_is_not_made(place: Place) -> None:
    calls: list[str] = []

    async def life() -> str:
        agent = OpenAIAgent("shop", model=ScriptedModel(["pay"], []), tools=shop(calls))
        async with await place.open_async() as store, store.run("r") as run:
            return str((await run_with_approvals(run, agent, "order 12")).final_output)

    set_tracing_disabled(True)
    with pytest.raises(backtrail.Suspended):
        asyncio.run(life())
    with place.open() as store:
        (one,) = store.pending()
        store.answer("r", one.name, False)
    assert "paid" not in asyncio.run(life())
    assert calls == []


# -- LangGraph ---------------------------------------------------------------------------------------------------------


def make_graph(saver: Any, calls: list[str], crash: bool = False) -> Any:
    @tool
    def pay(order: int) -> str:
        """Pay an order."""
        calls.append(f"pay {order}")
        return f"paid {order}"

    def model(state: Any) -> Any:
        call = {"name": "pay", "args": {"order": 12}, "id": "call-1", "type": "tool_call"}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    def approve(state: Any) -> Any:
        return {"messages": [HumanMessage(str(interrupt({"pay": 12})))]}

    def end(state: Any) -> None:
        if crash:
            raise Crash

    tools = ToolNode([durable_graph_tool(pay)])

    def both(state: Any, config: RunnableConfig) -> Any:
        found = tools.invoke({"messages": state["messages"][:1]}, config)
        end(state)
        return found

    async def both_async(state: Any, config: RunnableConfig) -> Any:
        found = await tools.ainvoke({"messages": state["messages"][:1]}, config)
        end(state)
        return found

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("approve", approve)
    builder.add_node("tools", RunnableLambda(both, both_async))
    builder.add_edge(START, "model")
    builder.add_edge("model", "approve")
    builder.add_edge("approve", "tools")
    return builder.compile(checkpointer=saver)


@pytest.mark.parametrize("api", ["sync", "async"])
def test_interrupts_of_a_graph_are_pending_questions_and_a_durable_tool_is_called_once(place: Place, api: str) -> None:
    calls: list[str] = []
    config: Any = {"configurable": {"thread_id": "t"}}

    def life(crash: bool = False) -> list[str]:
        with place.open() as store, store.run("r") as run:
            values = run_graph(run, make_graph(BacktrailSaver(store), calls, crash), {"messages": []}, config)
            return [message.content for message in values["messages"]]

    async def life_async(crash: bool = False) -> list[str]:
        async with await place.open_async() as store, store.run("r") as run:
            values = await arun_graph(run, make_graph(BacktrailSaver(store), calls, crash), {"messages": []}, config)
            return [message.content for message in values["messages"]]

    def play(crash: bool = False) -> list[str]:
        return life(crash) if api == "sync" else asyncio.run(life_async(crash))

    for _ in range(2):  # the second process finds the same question
        with pytest.raises(backtrail.Suspended):
            play()
    with place.open() as store:
        (one,) = store.pending()
        assert one.question == {"pay": 12}
        store.answer("r", one.name, "go on", by="ann")
    with pytest.raises(Crash):
        play(crash=True)
    assert play() == ["", "go on", "paid 12"]
    assert calls == ["pay 12"]


# -- Claude Agent SDK --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", ["sync", "async"])
def test_a_durable_tool_of_the_claude_sdk_is_called_once_for_its_key(place: Place, api: str) -> None:
    calls: list[Any] = []

    @claude_tool("pay", "Pays an order.", {"order": int, "note": str})
    async def pay(given: dict[str, Any]) -> dict[str, Any]:
        calls.append(given["order"])
        return {"content": [{"type": "text", "text": f"paid {given['order']}"}]}

    durable = durable_claude_tool(pay, key=lambda given: given["order"])

    async def pay_all(orders: list[int]) -> list[str]:
        found = await asyncio.gather(*(durable.handler({"order": order, "note": "n"}) for order in orders))
        return [one["content"][0]["text"] for one in found]

    async def life_async(orders: list[int]) -> None:
        async with await place.open_async() as store, store.run("r") as run:
            assert await pay_all(orders) == [f"paid {order}" for order in orders]
            await run.ask("more?", "More?")

    def life(orders: list[int]) -> None:
        with place.open() as store, store.run("r") as run:
            assert asyncio.run(pay_all(orders)) == [f"paid {order}" for order in orders]
            run.ask("more?", "More?")

    for orders in ([1, 2], [2, 3, 1]):
        with pytest.raises(backtrail.Suspended):
            asyncio.run(life_async(orders)) if api == "async" else life(orders)
    assert sorted(calls) == [1, 2, 3]


# -- misuse ------------------------------------------------------------------------------------------------------------


def test_a_durable_tool_outside_of_a_run_says_what_to_do() -> None:
    @tool
    def pay(order: int) -> str:
        """Pay an order."""
        return "paid"

    with pytest.raises(backtrail.InvalidInput, match="outside of a run"):
        durable_graph_tool(pay).invoke({"order": 1})


@pytest.mark.parametrize("wrap", [durable_openai_tool, durable_graph_tool, durable_claude_tool])
def test_what_is_no_tool_is_refused(wrap: Any) -> None:
    with pytest.raises(backtrail.InvalidInput, match="durable_tool"):
        wrap(print)
