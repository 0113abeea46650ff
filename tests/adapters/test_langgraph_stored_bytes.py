"""The bytes that a LangGraph graph leaves in a store: a serializer sees all of them, and what is replaced goes."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import string
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt

import backtrail
import backtrail.aio
from backtrail.adapters.langgraph import BacktrailSaver
from backtrail.adapters.langgraph.bookkeeping import pack_bookkeeping, unpack_bookkeeping
from fix_graphs import at
from fix_store_bytes import StoreOnDisk, store_on_disk
from fix_stores import APIS, EVERY_ENGINE

SECRET = "planted-secret"
WHERE = [f"{engine}-{api}" for engine in EVERY_ENGINE for api in APIS]


class Reversed(JsonPlusSerializer):
    """Stands for a serializer that encrypts: what it writes cannot be read in the store."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        kind, data = super().dumps_typed(obj)
        return f"{kind}+reversed", bytes(data)[::-1]

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return super().loads_typed((data[0].removesuffix("+reversed"), data[1][::-1]))


@pytest.fixture(params=WHERE)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    engine, _, api = request.param.partition("-")
    return Disk(store_on_disk(engine, api, tmp_path, request), api)


class Disk:
    """A store that is opened more than once, by one API."""

    def __init__(self, where: StoreOnDisk, api: str) -> None:
        self._where, self._api = where, api
        self.contents = where.contents

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Any]:
        target, options, _ = self._where
        store: Any = (
            backtrail.open(target, **options)
            if self._api == "blocking"
            else await backtrail.aio.open(target, **options)
        )
        yield store
        if isinstance(target, str | Path):  # a store in memory is gone when it is closed
            await done(store.close())


async def done(result: Any) -> Any:
    return await result if isinstance(result, Awaitable) else result


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]
    note: str


def graph(saver: Any) -> Any:
    """Every way for a value into a store: channels, a subgraph's channels, tasks' writes, interrupts, answers."""
    inner = StateGraph(State)
    inner.add_node("think", lambda state: {"note": f"{SECRET}-inner"})
    inner.add_edge(START, "think")

    def ask(state: State) -> Any:
        return {"messages": [AIMessage(interrupt({"ask": f"{SECRET}-question"}))]}

    builder = StateGraph(State)
    builder.add_node("inner", inner.compile(checkpointer=True))
    builder.add_node("ask", ask)
    builder.add_edge(START, "inner")
    builder.add_edge("inner", "ask")
    return builder.compile(checkpointer=saver)


def test_a_serializer_that_extends_langgraphs_sees_every_value(disk: Disk) -> None:
    async def program() -> None:
        async with disk.opened() as store:
            saver = BacktrailSaver(store, serde=Reversed())
            run = graph(saver)
            config = {**at(), "metadata": {"who": f"{SECRET}-metadata"}}
            await run.ainvoke({"messages": [HumanMessage(f"{SECRET}-input")], "note": ""}, config)
            await run.ainvoke(Command(resume=f"{SECRET}-answer"), config)
            await run.aupdate_state(config, {"note": f"{SECRET}-update"})
            state = await run.aget_state(config)
            assert [m.content for m in state.values["messages"]] == [f"{SECRET}-input", f"{SECRET}-answer"]
            assert state.metadata["who"] == f"{SECRET}-metadata"
            found = [one async for one in saver.alist(at(), filter={"who": f"{SECRET}-metadata"})]
            assert len(found) > 3

    asyncio.run(program())
    contents = disk.contents()
    assert SECRET.encode()[::-1] in contents  # the search sees what is there
    assert SECRET.encode() not in contents


def test_the_search_finds_what_the_stock_serializer_writes(disk: Disk) -> None:
    async def program() -> None:
        async with disk.opened() as store:
            await graph(BacktrailSaver(store)).ainvoke({"messages": [HumanMessage(SECRET)], "note": ""}, at())

    asyncio.run(program())
    assert SECRET.encode() in disk.contents()


def redacted(value: Any) -> Any:
    """A value of a checkpoint, with the secret removed from messages and text."""
    if isinstance(value, HumanMessage):
        return value.model_copy(update={"content": value.content.replace(SECRET, "[removed]")})
    if isinstance(value, dict):
        return {key: redacted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [redacted(item) for item in value]
    return value.replace(SECRET, "[removed]") if isinstance(value, str) else value


def chat(saver: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("agent", lambda state: {"messages": [AIMessage(f"{len(state['messages'])} so far")]})
    builder.add_edge(START, "agent")
    return builder.compile(checkpointer=saver)


async def redact(saver: Any, found: Any) -> None:
    configurable = dict(found.config["configurable"])
    configurable.pop("checkpoint_id")
    if found.parent_config is not None:
        configurable["checkpoint_id"] = found.parent_config["configurable"]["checkpoint_id"]
    await saver.aput({"configurable": configurable}, redacted(found.checkpoint), found.metadata, {})


@pytest.mark.parametrize("prune", ["keep_latest", "delete nothing"])
@pytest.mark.parametrize("first_texts", [["before"], []], ids=["a later one", "the first one"])
def test_a_checkpoint_that_is_put_again_replaces_the_first_and_its_content_goes(
    disk: Disk, first_texts: list[str], prune: str
) -> None:
    async def first() -> list[Any]:
        async with disk.opened() as store, disk.opened() as elsewhere:
            saver, reader = BacktrailSaver(store), BacktrailSaver(elsewhere)
            run = chat(saver)
            for text in first_texts:
                await run.ainvoke({"messages": [HumanMessage(text, id="0")]}, at())
            await run.ainvoke({"messages": [HumanMessage(f"my number is {SECRET}", id="1")]}, at(), durability="exit")
            before = [one async for one in reader.alist(at())]
            for one in before:
                if SECRET in repr(one.checkpoint):
                    await redact(saver, one)
            expected = [one._replace(checkpoint=redacted(one.checkpoint)) for one in before]
            for each in (saver, reader, BacktrailSaver(store)):
                assert [one async for one in each.alist(at())] == expected
                assert (await each.aget_tuple(at())) == expected[0]
                for one in expected:
                    assert (await each.aget_tuple(one.config)) == one
            await run.ainvoke({"messages": [HumanMessage("after", id="2")]}, at())
            texts = [m.content for m in (await chat(reader).aget_state(at())).values["messages"] if m.type == "human"]
            assert texts == [*first_texts, "my number is [removed]", "after"]
            return [one async for one in reader.alist(at())]

    async def second(expected: list[Any]) -> None:
        async with disk.opened() as store:
            saver = BacktrailSaver(store)
            assert [one async for one in saver.alist(at())] == expected
            assert SECRET not in repr(expected)
            if prune == "keep_latest":
                await saver.aprune(["t"])
            await done(store.prune())
            await done(store.compact())
            left = [one async for one in saver.alist(at())]
            if prune == "keep_latest":
                assert [one.checkpoint for one in left] == [expected[0].checkpoint]
            else:
                assert left == expected
            assert (await done(store.verify())).ok

    expected = asyncio.run(first())
    asyncio.run(second(expected))
    contents = disk.contents()
    assert b"my number is [removed]" in contents
    assert SECRET.encode() not in contents


def test_a_replaced_checkpoint_is_found_whenever_the_replacement_is_interrupted(store: Any) -> None:
    saver = BacktrailSaver(store)
    run = chat(saver)
    run.invoke({"messages": [HumanMessage(f"say {SECRET}", id="1")]}, at())
    head = saver.get_tuple(at())
    old, new = head.checkpoint, redacted(head.checkpoint)
    methods = ("save", "update", "delete")
    steps = 0
    for stop_after in range(20):
        fresh = BacktrailSaver(_Stopping(store, methods, stop_after))
        try:
            asyncio.run(redact(fresh, head))
        except _Stopped:
            found = BacktrailSaver(store).get_tuple(head.config)
            assert found.checkpoint in (old, new)
            listed = list(BacktrailSaver(store).list(at()))
            assert [one.config for one in listed].count(head.config) == 1
            assert listed[0].checkpoint in (old, new)
            steps += 1
            continue
        break
    assert steps >= 4
    assert BacktrailSaver(store).get_tuple(at()).checkpoint == new
    assert SECRET not in repr([one.checkpoint for one in BacktrailSaver(store).list(at(), limit=1)])


class _Stopped(Exception):
    """The process ended here."""


class _Stopping(backtrail.Store):
    """A store whose process ends after so many writes."""

    def __init__(self, store: Any, methods: tuple[str, ...], after: int) -> None:
        self.__dict__.update(store.__dict__)
        self._store, self._methods, self._left = store, methods, after

    def thread(self, *args: Any, **kwargs: Any) -> Any:
        outer, inner = self, self._store.thread(*args, **kwargs)

        class Handle:
            def __getattr__(self, name: str) -> Any:
                if name in outer._methods:
                    if outer._left == 0:
                        raise _Stopped
                    outer._left -= 1
                return getattr(inner, name)

        return Handle()


def test_a_fork_replaces_what_it_inherited_and_its_source_keeps_it(store: Any) -> None:
    saver = BacktrailSaver(store)
    run = chat(saver)
    run.invoke({"messages": [HumanMessage(f"say {SECRET}", id="1")]}, at())
    saver.copy_thread("t", "copy")
    inherited = saver.get_tuple(at("copy"))
    asyncio.run(redact(saver, inherited))
    for each in (saver, BacktrailSaver(store)):
        assert each.get_tuple(at("copy")).checkpoint == redacted(inherited.checkpoint)
        assert each.get_tuple(inherited.config).checkpoint == redacted(inherited.checkpoint)
        assert next(iter(each.list(at("copy")))).checkpoint == redacted(inherited.checkpoint)
        assert SECRET in repr(each.get_tuple(at("t")).checkpoint)
    assert run.invoke({"messages": [HumanMessage("on", id="2")]}, at("copy"))["messages"][0].content == "say [removed]"


def test_writes_that_came_before_a_replacement_stay(store: Any) -> None:
    saver = BacktrailSaver(store)

    def node(state: State) -> Any:
        interrupt("wait")

    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    run = builder.compile(checkpointer=saver)
    run.invoke({"messages": [HumanMessage(f"say {SECRET}", id="1")]}, at())
    for before in list(saver.list(at())):
        asyncio.run(redact(saver, before))
        assert BacktrailSaver(store).get_tuple(before.config).pending_writes == before.pending_writes


def test_the_bookkeeping_of_a_checkpoint_takes_few_bytes_and_comes_back_exactly(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "store.db") as store:
        builder = StateGraph(State)
        builder.add_node("agent", lambda _: {"messages": [AIMessage("yes")]})
        builder.add_edge(START, "agent")
        chat: Any = builder.compile(checkpointer=BacktrailSaver(store))
        for _ in range(5):
            chat.invoke({"messages": [HumanMessage("now?")]}, at("t"))
        kept = chat.checkpointer.get_tuple(at("t")).checkpoint
        stored = store.thread("t").load()["__langgraph__"]
        again = BacktrailSaver(store).get_tuple(at("t"))  # type: ignore[arg-type]
    assert type(stored) is bytes and len(stored) < 100
    assert again is not None and again.checkpoint == kept
    assert {"v", "ts", "channel_versions", "versions_seen", "updated_channels"} <= kept.keys()


@pytest.mark.parametrize("odd", [{"a": (1, 2)}, {"a": 2**70}, {1: "b"}, {"a": "\ud800"}, {}, {"a": b"\0" * 9}])
def test_bookkeeping_that_msgpack_would_change_is_kept_as_it_is(odd: dict[Any, Any]) -> None:
    assert unpack_bookkeeping(pack_bookkeeping(odd)) == odd


@pytest.mark.parametrize(
    "moment",
    [
        "2026-11-18T14:51:51.374343+00:00",
        "2026-11-18T14:51:51+00:00",
        "2026-11-18T14:51:51.000000+00:00",
        "2026-11-18T14:51:51.374343",
        "2026-11-18T14:51:51.374343+02:00",
        "1969-12-31T23:59:59.999999+00:00",
        "0001-01-01T00:00:00+02:00",
        "yesterday",
        "",
        7,
        None,
    ],
)
@pytest.mark.parametrize(
    "version", ["000004afa1ef89", "000004AFA1EF89", "000004afa1ef8", "1.0.5", 3, 0.5, "\u0660" * 14]
)
def test_any_timestamp_and_version_of_the_bookkeeping_comes_back_exactly(moment: Any, version: Any) -> None:
    plain = {"v": 4, "ts": moment, "channel_versions": {"messages": version}, "updated_channels": ["messages", version]}
    again = unpack_bookkeeping(pack_bookkeeping(plain))
    assert repr(again) == repr(plain)


@pytest.mark.parametrize(
    "metadata",
    [
        {"source": "loop", "step": 3, "parents": {}},
        {"source": "loop", "step": 3, "parents": {}, "who": "me"},
        {"source": "loop", "step": 3, "parents": {"": "1ef"}},
        {"source": "loop", "step": 3, "parents": None},
        {"source": "loop", "step": 3},
        {"parents": {}, "source": "loop", "step": 3},
        {"source": "loop", "parents": {}},
        {"parents": {}},
        {},
    ],
)
def test_metadata_comes_back_as_it_was_in_the_same_order(store: Any, metadata: Any) -> None:
    saver = BacktrailSaver(store)
    config: Any = at(checkpoint_ns="")
    for _ in range(2):  # one without a parent, and one with
        config = saver.put(config, empty_checkpoint(), metadata, {})
        found = BacktrailSaver(store).get_tuple(config)
        assert found is not None
        assert list(found.metadata.items()) == list(metadata.items())


def test_a_turn_of_messages_that_do_not_compress_takes_little_more_than_each_message_twice(tmp_path: Path) -> None:
    source, turns = random.Random(7), 20

    def noise() -> str:
        return "".join(source.choices(string.printable[:94], k=1024))

    with backtrail.open(tmp_path / "store.db") as store:
        builder = StateGraph(State)
        builder.add_node("agent", lambda _: {"messages": [AIMessage(noise())]})
        builder.add_edge(START, "agent")
        run: Any = builder.compile(checkpointer=BacktrailSaver(store))
        for _ in range(turns):
            run.invoke({"messages": [HumanMessage(noise())]}, at("t"))
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        query = "SELECT sum(length(meta) + length(root) + length(payload)) FROM steps"
        (stored,) = connection.execute(query).fetchone()
    assert stored / turns < 4 * 1024 + 1300
