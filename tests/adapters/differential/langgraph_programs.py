"""One small program for each feature of LangGraph that a checkpointer takes part in.

A program gets a driver with a saver and the id of a thread, and returns everything that its user could see.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import operator
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, NamedTuple, TypedDict

import pydantic
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.types import Command, Send, StateUpdate, interrupt

from .driver import Driver

Program = Callable[[Driver, str], Awaitable[Any]]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def on(thread: str, **more: Any) -> Any:
    return {"configurable": {"thread_id": thread, **more}}


def seen(snapshot: Any) -> Any:
    """What a user sees of a state."""
    tasks = [(one.name, one.error, in_order(one.interrupts), one.result) for one in snapshot.tasks]
    metadata = (
        {key: value for key, value in snapshot.metadata.items() if key != "run_id"} if snapshot.metadata else None
    )
    configs = (snapshot.config, snapshot.parent_config)
    return snapshot.values, snapshot.next, configs, metadata, tasks, in_order(snapshot.interrupts)


def in_order(interrupts: Any) -> list[Any]:
    """Interrupts of nodes that ran at once, in an order that does not depend on which was first."""
    return sorted(interrupts, key=lambda one: str(one.value))


async def history(driver: Driver, graph: Any, config: Any, **how: Any) -> list[Any]:
    return [seen(one) for one in await driver.all("get_state_history", graph, config, **how)]


class Chat(TypedDict):
    messages: Annotated[list[Any], add_messages]


def chat(saver: Any) -> Any:
    def answer(state: Chat) -> Any:
        count = len(state["messages"])
        return {"messages": [AIMessage(f"answer {count}", id=f"a{count}", additional_kwargs={"n": [count, (1, 2)]})]}

    builder = StateGraph(Chat)
    builder.add_node("agent", answer)
    builder.add_edge(START, "agent")
    return builder.compile(checkpointer=saver)


def human(text: str) -> Any:
    return {"messages": [HumanMessage(text, id=f"h-{text}")]}


@program
async def conversation(driver: Driver, thread: str) -> Any:
    graph = chat(driver.saver)
    results = [await driver.invoke(graph, human(text), on(thread)) for text in ("one", "two")]
    await driver.update_state(graph, on(thread), {"messages": [RemoveMessage("h-one"), HumanMessage("2!", id="h-two")]})
    results.append(await driver.invoke(graph, human("four"), on(thread)))
    await driver.update_state(graph, on(thread), {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES)]})
    results.append(await driver.invoke(graph, {"messages": [ToolMessage("t", tool_call_id="c", id="t")]}, on(thread)))
    return results, await history(driver, graph, on(thread))


@program
async def interrupts(driver: Driver, thread: str) -> Any:
    class State(TypedDict):
        log: Annotated[list[Any], operator.add]

    def ask(state: State) -> Any:
        first = interrupt({"question": 1})
        return {"log": [first, interrupt(("question", 2))]}

    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_node("other", lambda state: {"log": [interrupt("other?")]})
    builder.add_edge(START, "ask")
    builder.add_edge(START, "other")
    graph = builder.compile(checkpointer=driver.saver, interrupt_after=["other"])
    result = await driver.invoke(graph, {"log": ["in"]}, on(thread))
    found: list[Any] = []
    for _ in range(4):
        waiting = in_order((await driver.get_state(graph, on(thread))).interrupts)
        found += [result["log"], in_order(result.get("__interrupt__", ())), waiting]
        answers = {one.id: {"to": one.value} for one in waiting}
        result = await driver.invoke(graph, Command(resume=answers) if answers else None, on(thread))
    return found, await history(driver, graph, on(thread))


@program
async def subgraphs(driver: Driver, thread: str) -> Any:
    class State(TypedDict):
        log: Annotated[list[Any], operator.add]

    def inner_node(state: State) -> Any:
        return {"log": [len(state["log"]), interrupt("inside")]}

    def inner(checkpointer: Any) -> Any:
        builder = StateGraph(State)
        builder.add_node("count", lambda state: {"log": ["counted"]})
        builder.add_node("wait", inner_node)
        builder.add_edge(START, "count")
        builder.add_edge("count", "wait")
        return builder.compile(checkpointer=checkpointer)

    builder = StateGraph(State)
    builder.add_node("stateless", inner(None))
    builder.add_node("stateful", inner(True))
    builder.add_edge(START, "stateless")
    builder.add_edge("stateless", "stateful")
    graph = builder.compile(checkpointer=driver.saver)
    found = [await driver.invoke(graph, {"log": ["a"]}, on(thread))]
    for turn in range(2):
        for _ in range(2):
            state = await driver.get_state(graph, on(thread), subgraphs=True)
            found.append([seen(one.state) for one in state.tasks])
            found.append(await driver.invoke(graph, Command(resume=f"go {turn}"), on(thread)))
        found.append(await driver.invoke(graph, {"log": ["b"]}, on(thread)))
    namespaces = [
        one.config["configurable"]["checkpoint_ns"] for one in await driver.all("list", driver.saver, on(thread))
    ]
    return found, await history(driver, graph, on(thread)), sorted(ns.partition(":")[0] for ns in namespaces)


@program
async def sends(driver: Driver, thread: str) -> Any:
    class State(TypedDict):
        log: Annotated[list[Any], operator.add]

    builder = StateGraph(State)
    builder.add_node("plan", lambda state: {"log": ["planned"]})
    builder.add_node("work", lambda state: {"log": [("worked on", state["n"])]})
    builder.add_node("join", lambda state: {"log": [len(state["log"])]})
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", lambda state: [Send("work", {"n": n}) for n in range(4)], ["work"])
    builder.add_edge("work", "join")
    graph = builder.compile(checkpointer=driver.saver, interrupt_before=["work"])
    found = [await driver.invoke(graph, {"log": []}, on(thread)), seen(await driver.get_state(graph, on(thread)))]
    found.append(await driver.invoke(graph, None, on(thread)))
    return found, await history(driver, graph, on(thread))


@program
async def time_travel(driver: Driver, thread: str) -> Any:
    graph = chat(driver.saver)
    for text in ("one", "two"):
        await driver.invoke(graph, human(text), on(thread))
    past = [one for one in await driver.all("get_state_history", graph, on(thread)) if one.next == ("agent",)]
    found = [await driver.invoke(graph, None, past[-1].config)]
    found.append(await driver.invoke(graph, human("branch"), past[0].config))
    edited = await driver.update_state(graph, past[0].config, human("edited"), as_node="agent")
    found.append(seen(await driver.get_state(graph, edited)))
    found.append(await driver.invoke(graph, human("after the edit"), edited))
    found.append(seen(await driver.get_state(graph, on(thread, checkpoint_id=""))))
    return found, await history(driver, graph, on(thread)), await history(driver, graph, past[0].config)


@program
async def streaming(driver: Driver, thread: str) -> Any:
    graph = chat(driver.saver)
    ways = [{"stream_mode": mode} for mode in ("values", "updates", "checkpoints", "tasks")]
    ways += [{"durability": durability} for durability in ("sync", "async", "exit")]
    found = [await driver.all("stream", graph, human(str(way)), on(thread), **way) for way in ways]
    return found, await history(driver, graph, on(thread))


@program
async def crash_and_resume(driver: Driver, thread: str) -> Any:
    class State(TypedDict):
        log: Annotated[list[Any], operator.add]

    ran: collections.Counter[str] = collections.Counter()

    def good(state: State) -> Any:
        ran["good"] += 1
        return {"log": ["good"]}

    def bad(state: State) -> Any:
        ran["bad"] += 1
        if ran["bad"] == 1:
            time.sleep(0.2)  # the other node is done by then
            raise ValueError("the first time")
        return {"log": ["bad"]}

    builder = StateGraph(State)
    for name, node in (("good", good), ("bad", bad)):
        builder.add_node(name, node)
        builder.add_edge(START, name)
    graph = builder.compile(checkpointer=driver.saver)
    found: list[Any] = []
    try:
        await driver.invoke(graph, {"log": ["in"]}, on(thread), durability="sync")
    except ValueError as error:
        found.append(error)
    found.append(seen(await driver.get_state(graph, on(thread))))
    found.append(await driver.invoke(graph, None, on(thread)))
    return found, dict(sorted(ran.items())), await history(driver, graph, on(thread))


class Plan(pydantic.BaseModel):
    goal: str
    due: dt.date
    steps: list[str] = []


@dataclasses.dataclass
class Point:
    x: int
    y: Any = None


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 2


class Pair(NamedTuple):
    left: int
    right: Any


class Text(str):
    __slots__ = ()


VALUES: dict[str, Any] = {
    "plan": Plan(goal="g", due=dt.date(2024, 5, 1)),
    "points": [Point(1, Point(2)), {"deep": Point(3, Color.RED)}],
    "enums": [Color.RED, Level.HIGH],
    "pair": Pair(1, (2, 3)),
    "tuple": (1, ("two", [3, (4,)])),
    "sets": [{1, 2}, frozenset({"a"}), {(1, 2)}],
    "deque": collections.deque([1, 2]),
    "numbers": [1, 1.0, True, -0.0, 2**63, decimal.Decimal("1.10")],
    "times": [dt.datetime(2024, 5, 1, tzinfo=dt.UTC), dt.date(2024, 5, 1), dt.timedelta(3), dt.time(1, 2)],
    "bytes": [b"\0\xff", bytearray(b"x"), {"b": b"y"}],
    "keys": {1: "int", "a": {None: "none", 2.5: "float"}, (1, 2): "tuple"},
    "ids": uuid.UUID(int=5),
    "text": Text("sub"),
    "ordered": collections.OrderedDict(a=1),
    "message": AIMessage(
        "hi", id="m", response_metadata={"t": (1, 2)}, tool_calls=[{"name": "f", "args": {}, "id": "c"}]
    ),
    "artifact": ToolMessage("r", tool_call_id="c", id="t", artifact={"point": Point(1), "plan": (1,)}),
    "none": None,
    "odd": {"__langgraph__": "ours?", "lc": 1, "type": "constructor"},
}


@program
async def custom_types(driver: Driver, thread: str) -> Any:
    class State(TypedDict):
        values: dict[str, Any]
        plan: Any
        turns: Annotated[list[Any], operator.add]

    def node(state: State) -> Any:
        plan = state.get("plan")
        done = plan.model_copy(update={"steps": [*plan.steps, "more"]}) if plan else VALUES["plan"]
        return {"values": VALUES, "plan": done, "turns": [Point(len(state["turns"]))]}

    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    graph = builder.compile(checkpointer=driver.saver)
    for _ in range(2):
        await driver.invoke(graph, {"turns": [Color.RED]}, on(thread))
    listed = await driver.all("list", driver.saver, on(thread))
    saved = [dict(sorted(one.checkpoint["channel_values"].items())) for one in listed]  # savers order them differently
    writes = [one.pending_writes for one in listed]
    return await history(driver, graph, on(thread)), saved, [[w[1:] for w in ws or ()] for ws in writes]


@program
async def concurrency(driver: Driver, thread: str) -> Any:
    class State(TypedDict):
        log: Annotated[list[Any], operator.add]

    builder = StateGraph(State)
    for name in "abc":
        builder.add_node(name, lambda state, name=name: {"log": [name]})
        builder.add_edge(START, name)
        builder.add_edge(name, END)
    graph = builder.compile(checkpointer=driver.saver)
    threads = [f"{thread}-{n}" for n in range(3)]

    async def run(one: str) -> Any:
        for turn in range(2):
            await driver.invoke(graph, {"log": [turn]}, on(one))
        return await history(driver, graph, on(one))

    return await asyncio.gather(*map(run, threads))


@program
async def redaction(driver: Driver, thread: str) -> Any:
    graph = chat(driver.saver)
    await driver.invoke(graph, human("public"), on(thread))
    await driver.invoke(graph, human("secret"), on(thread))
    found = await driver.get_tuple(driver.saver, on(thread))
    edited = [
        m.model_copy(update={"content": "[removed]"}) if m.id == "h-secret" else m
        for m in found.checkpoint["channel_values"]["messages"]
    ]
    versions = {**found.checkpoint["channel_versions"]}
    versions["messages"] = driver.saver.get_next_version(versions["messages"], None)
    checkpoint = {
        **found.checkpoint,
        "channel_values": {**found.checkpoint["channel_values"], "messages": edited},
        "channel_versions": versions,
    }
    await driver.put(driver.saver, found.parent_config, checkpoint, found.metadata, {"messages": versions["messages"]})
    after = await driver.invoke(graph, human("next"), on(thread))
    return after, await history(driver, graph, on(thread))


class Reversing(JsonPlusSerializer):
    """Stands for a serializer that encrypts."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        kind, data = super().dumps_typed(obj)
        return f"{kind}+reversed", bytes(data)[::-1]

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return super().loads_typed((data[0].removesuffix("+reversed"), bytes(data[1])[::-1]))


@program
async def encryption_by_a_serializer(driver: Driver, thread: str) -> Any:
    before, driver.saver.serde = driver.saver.serde, Reversing()
    try:
        return await interrupts(driver, thread), await custom_types(driver, f"{thread}-types")
    finally:
        driver.saver.serde = before


def _extend(values: list[Any], writes: list[list[Any]]) -> list[Any]:
    return [*values, *(item for write in writes for item in write)]


@program
async def delta_channels(driver: Driver, thread: str) -> Any:
    class State(TypedDict):
        log: Annotated[list[Any], DeltaChannel(_extend, snapshot_frequency=3)]
        other: Annotated[list[Any], DeltaChannel(_extend)]
        plain: Annotated[list[Any], operator.add]

    builder = StateGraph(State)
    builder.add_node("one", lambda state: {"log": [len(state["log"])], "plain": [1]})
    builder.add_node("two", lambda state: {"log": [("two", len(state["log"]))], "other": ["two"]})
    builder.add_edge(START, "one")
    builder.add_edge("one", "two")
    graph = builder.compile(checkpointer=driver.saver)
    found = []
    for turn in range(3):
        found.append(await driver.invoke(graph, {"log": [f"turn {turn}"]}, on(thread)))
        found.append(seen(await driver.get_state(graph, on(thread))))
    await driver.update_state(graph, on(thread), {"log": ["edited"], "other": ["edited too"]})
    past = (await driver.all("get_state_history", graph, on(thread)))[5]
    found.append(await driver.invoke(graph, {"log": ["from the past"]}, past.config))
    return found, await history(driver, graph, on(thread))


@program
async def updates(driver: Driver, thread: str) -> Any:
    graph = chat(driver.saver)
    config = await driver.update_state(graph, on(thread), human("first"), as_node="agent")
    config = await driver.update_state(graph, config, human("second"))
    many = [
        [StateUpdate(human("bulk 1"), "agent")],
        [StateUpdate(human("bulk 2"), "agent"), StateUpdate(human("3"), "agent")],
    ]
    await driver.bulk_update_state(graph, on(thread), many)
    await driver.update_state(graph, on(thread), None, as_node=END)
    return await driver.invoke(graph, human("last"), on(thread)), await history(driver, graph, on(thread))


@program
async def functional_tasks(driver: Driver, thread: str) -> Any:
    ran: collections.Counter[int] = collections.Counter()

    @task
    async def double(n: int) -> Any:
        ran[n] += 1
        return Point(n, n * 2)

    @entrypoint(checkpointer=driver.saver)
    async def flow(n: int, *, previous: Any = None) -> Any:
        points = await asyncio.gather(*(double(i) for i in range(n)))
        answer = interrupt({"sum": sum(p.y for p in points)})
        return entrypoint.final(value=(previous, answer), save=[*(previous or []), *points])

    @task
    def double_sync(n: int) -> Any:
        ran[n] += 1
        return Point(n, n * 2)

    @entrypoint(checkpointer=driver.saver)
    def flow_sync(n: int, *, previous: Any = None) -> Any:
        points = [one.result() for one in [double_sync(i) for i in range(n)]]
        answer = interrupt({"sum": sum(p.y for p in points)})
        return entrypoint.final(value=(previous, answer), save=[*(previous or []), *points])

    graph = flow_sync if driver.sync else flow
    found = []
    for turn in range(2):
        found.append(await driver.invoke(graph, 3, on(thread)))
        found.append(await driver.invoke(graph, Command(resume=f"yes {turn}"), on(thread)))
    return found, dict(sorted(ran.items())), (await driver.get_state(graph, on(thread))).values


@program
async def listing(driver: Driver, thread: str) -> Any:
    graph = chat(driver.saver)
    for n, text in enumerate(("one", "two", "three")):
        config = {**on(thread, user=f"u{n % 2}"), "metadata": {"tier": n, "flag": n > 0, "deep": {"x": n}}}
        await driver.invoke(graph, human(text), config)
    every = await driver.all("get_state_history", graph, on(thread))
    found: list[Any] = [await history(driver, graph, on(thread), limit=limit) for limit in (0, 2)]
    filters = [
        {"source": "loop"},
        {"source": "input", "step": -1},
        {"user": "u1"},
        {"tier": 1},
        {"none": None},
        {"tier": 9},
    ]
    lists = [await driver.all("list", driver.saver, on(thread), filter=wanted) for wanted in filters]
    found += [[one.metadata["step"] for one in each] for each in lists]
    bounds = (every[0].config, every[3].config, every[-1].config)
    found += [await history(driver, graph, on(thread), before=bound, limit=2) for bound in bounds]
    found.append(await history(driver, graph, on(thread), filter={"source": "loop"}))
    found.append(await history(driver, graph, every[2].config))
    await driver.delete_thread(driver.saver, thread)
    return found, await history(driver, graph, on(thread)), await driver.get_tuple(driver.saver, on(thread))
