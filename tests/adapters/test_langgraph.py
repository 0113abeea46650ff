"""LangGraph graphs on backtrail: behaviour beyond the conformance suite."""

from __future__ import annotations

import asyncio
import operator
import threading
import uuid
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt

import backtrail
from backtrail.adapters.langgraph import BacktrailSaver
from backtrail.adapters.thread_ids import escape_part
from backtrail.errors import InvalidInput
from fix_graphs import Chat, at, chat, say


def test_stored_bytes_grow_linearly_with_a_conversation(tmp_path: Any) -> None:
    sizes = []
    for turns in (20, 80):
        with backtrail.open(tmp_path / f"{turns}.db", durability="normal") as store:
            graph = chat(BacktrailSaver(store), lambda state: AIMessage("a" * 1000))
            for i in range(turns):
                say(graph, f"{i} " + "q" * 1000)
            sizes.append(sum(c.written for name in ("t", "t//writes") for c in store.thread(name).history()))
            assert len(store.thread("t").load()["messages"]) == 2 * turns
    assert sizes[1] < 4.5 * sizes[0]
    assert sizes[1] < 80 * 8_000


def test_messages_of_a_graph_are_messages_to_backtrail(store: Any) -> None:
    say(chat(BacktrailSaver(store)), "hello")
    human, ai = store.thread("t").load()["messages"]
    assert (human["type"], human["content"]) == ("human", "hello")
    assert (ai["type"], ai["content"]) == ("ai", "yes " * 100)
    history = store.thread("t").history()
    assert [c.custom["source"] for c in history] == ["input", "loop", "loop"]
    assert "messages[1]" in str(store.thread("t").diff(history[1], history[2]))


def test_a_restarted_process_continues_the_conversation(reopen_store: Callable[[], Any]) -> None:
    first = reopen_store()
    say(chat(BacktrailSaver(first)), "one")
    first.close()
    result = say(chat(BacktrailSaver(reopen_store())), "two")
    assert [m.content for m in result["messages"]][::2] == ["one", "two"]


def test_a_message_changed_in_place_is_saved_as_changed(store: Any) -> None:
    def meddle(state: Any) -> Any:
        state["messages"][0].content = "changed"
        state["messages"][0].response_metadata["n"] = True
        return AIMessage("ok")

    saver = BacktrailSaver(store)
    say(chat(saver), "first " * 100)
    before = store.thread("t").head.id
    say(chat(saver, meddle), "second")
    fresh = chat(BacktrailSaver(store)).get_state(at()).values["messages"]
    assert fresh[0].content == "changed"
    assert fresh[0].response_metadata == {"n": True}
    assert store.thread("t").load(at=before)["messages"][0]["content"] == "first " * 100


def test_changing_a_loaded_message_changes_nothing_stored(store: Any) -> None:
    saver = BacktrailSaver(store)
    graph = chat(saver, lambda state: AIMessage("x", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "1"}]))
    say(graph, "hello")
    one = graph.get_state(at()).values["messages"]
    one[0].content = "meddled"
    one[1].tool_calls[0]["args"]["a"] = 2
    other = graph.get_state(at()).values["messages"]
    assert other[0].content == "hello"
    assert other[1].tool_calls[0]["args"] == {"a": 1}
    assert say(graph, "again")["messages"][0].content == "hello"


def test_detect_identity_gives_the_same_message_objects_back(store: Any) -> None:
    graph = chat(BacktrailSaver(store, detect="identity"))
    for i in range(3):
        say(graph, f"{i} " * 100)
    one, other = (graph.get_state(at()).values["messages"] for _ in range(2))
    assert all(a is b for a, b in zip(one, other, strict=True))
    graph.update_state(at(), {"messages": [HumanMessage("instead", id=one[0].id)]})
    fresh = chat(BacktrailSaver(store)).get_state(at()).values["messages"]
    assert [m.content for m in fresh][:2] == ["instead", "yes " * 100]
    assert len(say(graph, "more")["messages"]) == 8
    assert len(store.thread("t").load()["messages"]) == 8
    with pytest.raises(InvalidInput, match="identity"):
        BacktrailSaver(store, detect="sometimes")  # type: ignore[arg-type]


def test_a_removed_message_is_gone_and_the_rest_is_shared(store: Any) -> None:
    saver = BacktrailSaver(store)
    graph = chat(saver)
    for i in range(20):
        say(graph, f"{i} " * 100)
    first = graph.get_state(at()).values["messages"][0].id
    graph.update_state(at(), {"messages": [RemoveMessage(first)]})
    head = store.thread("t").head
    assert head.custom["source"] == "update"
    assert head.written < 3_000
    assert len(chat(BacktrailSaver(store)).get_state(at()).values["messages"]) == 39


def test_a_run_from_an_older_checkpoint_begins_a_branch(store: Any) -> None:
    graph = chat(BacktrailSaver(store), lambda state: AIMessage(f"answer {len(state['messages'])}"))
    say(graph, "one")
    say(graph, "two")
    end = graph.get_state(at()).config
    past = next(s for s in graph.get_state_history(at()) if len(s.values["messages"]) == 2 and not s.next)
    graph.invoke({"messages": [HumanMessage("other")]}, past.config)
    assert [m.content for m in graph.get_state(at()).values["messages"]] == ["one", "answer 1", "other", "answer 3"]
    assert [m.content for m in graph.get_state(end).values["messages"]] == ["one", "answer 1", "two", "answer 3"]
    thread = store.thread("t")
    assert len(thread.history(all=True)) == len(thread.history()) + 3
    thread.rewind(end["configurable"]["checkpoint_id"])
    assert graph.get_state(at()).config == end


def test_a_backtrail_fork_is_a_langgraph_thread(store: Any) -> None:
    graph = chat(BacktrailSaver(store))
    say(graph, "one")
    store.thread("t").fork("other")
    say(graph, "two", "other")
    assert len(graph.get_state(at("other")).values["messages"]) == 4
    assert len(graph.get_state(at()).values["messages"]) == 2


def test_copying_a_thread_copies_its_branches(store: Any) -> None:
    saver = BacktrailSaver(store)
    graph = chat(saver)
    say(graph, "one")
    past = graph.get_state(at()).config
    say(graph, "two")
    graph.invoke({"messages": [HumanMessage("other")]}, past)
    saver.copy_thread("t", "copy")
    ids = [[s.config["configurable"]["checkpoint_id"] for s in graph.get_state_history(at(t))] for t in ("t", "copy")]
    assert ids[0] == ids[1]
    assert len(ids[0]) == 9
    assert graph.get_state(at("copy")).values == graph.get_state(at()).values
    saver.delete_thread("t")
    assert len(graph.get_state(at("copy")).values["messages"]) == 4


def test_an_interrupted_run_is_resumed_by_another_process(reopen_store: Callable[[], Any]) -> None:
    def ask(state: Any) -> Any:
        return {"messages": [AIMessage(f"you said {interrupt('sure?')}")]}

    def build(saver: Any) -> Any:
        builder = StateGraph(Chat)
        builder.add_node("ask", ask)
        builder.add_edge(START, "ask")
        return builder.compile(checkpointer=saver)

    first = reopen_store()
    assert "__interrupt__" in say(build(BacktrailSaver(first)), "hello")
    first.close()
    graph = build(BacktrailSaver(reopen_store()))
    assert graph.get_state(at()).interrupts[0].value == "sure?"
    assert graph.invoke(Command(resume="yes"), at())["messages"][-1].content == "you said yes"


def test_the_results_of_parallel_tasks_come_in_order(store: Any) -> None:
    class Tally(TypedDict):
        seen: Annotated[list[int], operator.add]

    builder = StateGraph(Tally)
    builder.add_node("spread", lambda state: {})
    builder.add_node("work", lambda part: {"seen": [part["n"]]})
    builder.add_edge(START, "spread")
    builder.add_conditional_edges("spread", lambda state: [Send("work", {"n": n}) for n in range(12)])
    graph = builder.compile(checkpointer=BacktrailSaver(store))
    assert graph.invoke({"seen": []}, at())["seen"] == list(range(12))
    step = next(s for s in graph.get_state_history(at()) if len(s.tasks) == 12)
    assert [task.result["seen"] for task in step.tasks] == [[n] for n in range(12)]


def test_a_subgraph_has_its_own_namespace(store: Any) -> None:
    inner = StateGraph(Chat)
    inner.add_node("ask", lambda state: {"messages": [AIMessage(str(interrupt("name?")))]})
    inner.add_edge(START, "ask")
    builder = StateGraph(Chat)
    builder.add_node("child", inner.compile())
    builder.add_edge(START, "child")
    graph = builder.compile(checkpointer=BacktrailSaver(store))
    say(graph, "hello")
    names = [info.id for info in store.threads()]
    assert any(name.startswith("t/child:") for name in names)
    assert graph.get_state(at(), subgraphs=True).tasks[0].state.values["messages"][0].content == "hello"
    assert graph.invoke(Command(resume="Ann"), at())["messages"][-1].content == "Ann"
    BacktrailSaver(store).delete_thread("t")
    assert store.threads() == []


@pytest.mark.parametrize(
    "thread", ["a/b", "%2F", "ü/%00\n", "a//writes", "../../etc", "x" * 300, "'; DROP TABLE heads"]
)
def test_any_thread_id_works_and_no_two_are_mixed_up(store: Any, thread: str) -> None:
    saver = BacktrailSaver(store)
    graph = chat(saver)
    for name in (thread, "a", "a/", thread + "/"):
        say(graph, f"I am {name}", name)
    assert graph.get_state(at(thread)).values["messages"][0].content == f"I am {thread}"
    assert {t.config["configurable"]["thread_id"] for t in saver.list(None)} == {thread, "a", "a/", thread + "/"}
    saver.delete_thread("a")
    assert graph.get_state(at("a")).values == {}
    assert graph.get_state(at("a/")).values["messages"][0].content == "I am a/"


def test_a_filter_is_compared_as_data_and_never_interpreted(store: Any) -> None:
    saver = BacktrailSaver(store)
    say(chat(saver), "hello")
    assert len(list(saver.list(at(), filter={"source": "loop"}))) == 2
    assert len(list(saver.list(at(), filter={"step": 1}))) == 1
    for hostile in ({"source') OR 1=1 --": "x"}, {"parents": {"$ne": 1}}, {"source.loop": "x"}, {"": "x"}):
        assert list(saver.list(at(), filter=hostile)) == []


def test_a_filter_finds_what_langgraphs_own_saver_finds(store: Any) -> None:
    ours, theirs = BacktrailSaver(store), InMemorySaver()
    for saver in (ours, theirs):
        say(chat(saver), "hello")
    for wanted in ({"step": True}, {"step": 1.0}, {"missing": None}, {"source": None}, {"parents": {}}, {}):
        assert len(list(ours.list(at(), filter=wanted))) == len(list(theirs.list(at(), filter=wanted)))


def test_a_checkpoint_that_does_not_exist_is_none(store: Any) -> None:
    saver = BacktrailSaver(store)
    assert saver.get_tuple(at("nobody")) is None
    say(chat(saver), "hello")
    for wrong in ("nonsense", "", str(uuid.uuid4()), "1ef"):
        assert saver.get_tuple(at(checkpoint_id=wrong or "x")) is None
    config = saver.put(at(checkpoint_ns="", checkpoint_id=str(uuid.uuid4())), empty_checkpoint(), {}, {})
    assert saver.get_tuple(config) is not None


def test_ids_that_are_no_uuids_are_kept(store: Any) -> None:
    saver = BacktrailSaver(store)
    first = saver.put(at(checkpoint_ns=""), {**empty_checkpoint(), "id": "step-1"}, {"source": "input"}, {})
    saver.put_writes(first, [("a", 1)], "task")
    second = saver.put(first, {**empty_checkpoint(), "id": "step-2"}, {"source": "loop"}, {})
    assert saver.get_tuple(first).pending_writes == [("task", "a", 1)]
    assert saver.get_tuple(second).parent_config["configurable"]["checkpoint_id"] == "step-1"
    assert [t.checkpoint["id"] for t in saver.list(at())] == ["step-2", "step-1"]


def test_a_checkpoint_saved_late_does_not_become_the_newest(store: Any) -> None:
    saver = BacktrailSaver(store)
    old, new = sorted((empty_checkpoint() for _ in range(2)), key=lambda c: c["id"])
    saver.put(at(checkpoint_ns=""), new, {}, {})
    saver.put(at(checkpoint_ns=""), old, {}, {})
    assert saver.get_tuple(at()).checkpoint["id"] == new["id"]
    assert len(list(saver.list(at()))) == 2


def test_concurrent_tasks_lose_no_pending_write(store: Any) -> None:
    saver = BacktrailSaver(store)
    config = saver.put(at(checkpoint_ns=""), empty_checkpoint(), {}, {})
    start = threading.Barrier(12)

    def write(n: int) -> None:
        start.wait()
        saver.put_writes(config, [("seen", [n])], f"task-{n:02}", f"path-{n:02}")

    workers = [threading.Thread(target=write, args=(n,)) for n in range(12)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for reader in (saver, BacktrailSaver(store)):
        assert [value for _, _, value in reader.get_tuple(config).pending_writes] == [[n] for n in range(12)]


def test_pending_writes_after_a_load_are_committed_without_a_read(tmp_path: Any, monkeypatch: Any) -> None:
    """A process may die right after a task returned: each read before the commit makes it more likely to lose it."""
    with backtrail.open(tmp_path / "s.db") as store:
        config = BacktrailSaver(store).put(at(checkpoint_ns=""), empty_checkpoint(), {}, {})
        for n in range(3):
            BacktrailSaver(store).put_writes(config, [("seen", n)], f"task-{n}")
    with backtrail.open(tmp_path / "s.db") as store:
        saver, engine, calls = BacktrailSaver(store), store._core.context.engine, list[str]()
        saver.get_tuple(at())

        def counting(name: str, call: Any, *args: Any, **options: Any) -> Any:
            calls.append(name)
            return call(*args, **options)

        for name in ("tip", "head", "row", "rows", "steps", "payloads", "locate", "blobs", "branches", "commit"):
            monkeypatch.setattr(engine, name, partial(counting, name, getattr(engine, name)))
        for n in (3, 4, 5):
            saver.put_writes(config, [("seen", n)], f"task-{n}")
            assert calls == ["commit"] * (n - 2)
        assert [value for _, _, value in BacktrailSaver(store).get_tuple(at()).pending_writes] == [0, 1, 2, 3, 4, 5]


def test_pending_writes_are_in_langgraphs_order_whatever_order_they_came_in(store: Any) -> None:
    saver, stock = BacktrailSaver(store), InMemorySaver()
    checkpoint = empty_checkpoint()
    config = saver.put(at(checkpoint_ns=""), checkpoint, {}, {})
    stock.put(at(checkpoint_ns=""), checkpoint, {}, {})
    for task in ("c", "a", "b"):
        for one in (saver, stock):
            one.put_writes(config, [("x", task), ("__error__", f"{task} failed")], task, task)
    for one in (saver, stock):  # an error replaces the one before, a value does not
        one.put_writes(config, [("x", "late"), ("__error__", "a failed again")], "a", "a")
    expected = [("a", "a failed again"), ("a", "a"), ("b", "b failed"), ("b", "b"), ("c", "c failed"), ("c", "c")]
    for reader in (saver, BacktrailSaver(store)):
        assert [(task, value) for task, _, value in reader.get_tuple(config).pending_writes] == expected
    assert sorted((t, v) for t, _, v in stock.get_tuple(config).pending_writes) == sorted(expected)


def test_writes_after_an_older_checkpoint_do_not_mix_with_those_after_a_newer_one(reopen_store: Any) -> None:
    store = reopen_store()
    saver = BacktrailSaver(store)
    old = saver.put(at(checkpoint_ns=""), empty_checkpoint(), {}, {})
    new = saver.put(old, empty_checkpoint(), {}, {})
    seen: dict[str, list[str]] = {"old": [], "new": []}
    for n, name in enumerate(("old", "new", "old", "old", "new", "new", "old")):
        saver.put_writes(old if name == "old" else new, [("x", f"{name} {n}")], f"task-{n}")
        seen[name].append(f"{name} {n}")
        for reader in (saver, BacktrailSaver(store)):
            assert [value for _, _, value in reader.get_tuple(old).pending_writes] == seen["old"]
            assert [value for _, _, value in reader.get_tuple(new).pending_writes] == seen["new"]
    store.close()
    again = BacktrailSaver(reopen_store())
    again.get_tuple(old)
    again.put_writes(old, [("x", "old 7")], "task-7")
    assert [value for _, _, value in again.get_tuple(old).pending_writes] == [*seen["old"], "old 7"]
    assert [value for _, _, value in again.get_tuple(new).pending_writes] == seen["new"]


def test_pruning_keeps_a_subgraph_that_waits_or_remembers_but_no_finished_call(store: Any) -> None:
    class State(TypedDict):
        log: Annotated[list[Any], operator.add]

    def sub(answer: Any, checkpointer: bool | None) -> Any:
        inner = StateGraph(State)
        inner.add_node("answer", answer)
        inner.add_edge(START, "answer")
        return inner.compile(checkpointer=checkpointer)

    builder = StateGraph(State)
    builder.add_node("remembers", sub(lambda state: {"log": [len(state["log"])]}, True))
    builder.add_node("waits", sub(lambda state: {"log": [interrupt("?")]}, None))
    builder.add_edge(START, "remembers")
    builder.add_edge("remembers", "waits")
    saver = BacktrailSaver(store)
    graph = builder.compile(checkpointer=saver)
    for thread in ("t", "twin"):
        for turn in range(2):
            graph.invoke({"log": [turn]}, at(thread))
            graph.invoke(Command(resume=f"yes {turn}"), at(thread))
        graph.invoke({"log": [2]}, at(thread))

    saver.prune(["t"])
    waiting = graph.get_state(at(), subgraphs=True).tasks[0].state.config["configurable"]["checkpoint_ns"]
    left = {found.config["configurable"]["checkpoint_ns"] for found in saver.list(at())}
    assert left == {"", "remembers", waiting}
    assert {info.id.split("/")[1] for info in store.threads(prefix="t/")} <= {"", *map(escape_part, left)}
    resumed = [graph.invoke(Command(resume="yes 2"), at(thread)) for thread in ("t", "twin")]
    assert resumed[0] == resumed[1]


def test_a_thread_that_another_process_deleted_or_pruned_can_be_continued(store: Any) -> None:
    saver, other = BacktrailSaver(store), BacktrailSaver(store)
    graph = chat(saver)
    say(graph, "one")
    config = graph.get_state(at()).config
    other.delete_thread("t")
    checkpoint = {**empty_checkpoint(), "channel_values": {"a": [1]}, "channel_versions": {"a": "1"}}
    saver.put(config, checkpoint, {"source": "loop", "step": 5, "parents": {}}, {"a": "1"})
    found = other.get_tuple(at())
    assert found.checkpoint["channel_values"] == {"a": [1]}
    assert found.parent_config["configurable"]["checkpoint_id"] == config["configurable"]["checkpoint_id"]
    store.thread("t").delete()
    say(graph, "two", "u")
    say(graph, "three", "u")
    config = graph.get_state(at("u")).config
    say(graph, "four", "u")
    other.prune(["u"])
    graph.invoke({"messages": [HumanMessage("five")]}, at("u"))
    assert len(graph.get_state(at("u")).values["messages"]) == 8
    assert other.get_tuple(config) is None


def test_pending_writes_may_be_saved_before_their_checkpoint(store: Any) -> None:
    saver, checkpoint = BacktrailSaver(store), empty_checkpoint()
    saver.put_writes(at(checkpoint_ns="", checkpoint_id=checkpoint["id"]), [("a", 1)], "task", "path")
    config = saver.put(at(checkpoint_ns=""), checkpoint, {}, {})
    assert BacktrailSaver(store).get_tuple(config).pending_writes == [("task", "a", 1)]


def test_channel_versions_continue_those_of_other_savers(store: Any) -> None:
    saver = BacktrailSaver(store)
    theirs = InMemorySaver().get_next_version(None, None)
    ours = saver.get_next_version(theirs, None)
    assert ours > theirs
    assert saver.get_next_version(None, None)[:8] == "00000001"
    assert saver.get_next_version(7, None)[:8] == "00000008"
    forks = {saver.get_next_version(ours, None) for _ in range(50)}
    assert len(forks) == 50
    assert all(version > ours for version in forks)


def test_pruning_keeps_the_checkpoints_that_a_delta_channel_is_rebuilt_from(store: Any) -> None:
    saver = BacktrailSaver(store)
    config = at(checkpoint_ns="")
    for n in range(5):
        values = {"log": ["full"]} if n == 1 else {"other": n}
        said: Any = {"counters_since_delta_snapshot": {"log": (n, n)}} if n > 1 else {}
        checkpoint = {**empty_checkpoint(), "channel_values": values, "channel_versions": dict.fromkeys(values, str(n))}
        config = saver.put(config, checkpoint, said, dict.fromkeys(values, str(n)))
        saver.put_writes(config, [("log", [f"w{n}"])], f"task-{n}")
    before = saver.get_delta_channel_history(config=config, channels=["log"])["log"]
    saver.prune(["t"])
    assert len(list(saver.list(at()))) == 4
    assert saver.get_delta_channel_history(config=config, channels=["log"])["log"] == before
    assert before["seed"] == ["full"]
    assert [value for _, _, value in before["writes"]] == [["w1"], ["w2"], ["w3"]]


def test_async_graphs_run_on_sync_stores_and_sync_calls_from_another_thread_on_async_stores(
    tmp_path: Any,
) -> None:
    async def both() -> None:
        with backtrail.open(tmp_path / "one.db") as store:
            graph = chat(BacktrailSaver(store))
            await graph.ainvoke({"messages": [HumanMessage("hi")]}, at())
            assert len((await graph.aget_state(at())).values["messages"]) == 2
        async with await backtrail.aio.open(tmp_path / "one.db") as store:
            graph = chat(BacktrailSaver(store))
            await graph.ainvoke({"messages": [HumanMessage("hi")]}, at())
            state = await asyncio.to_thread(graph.get_state, at())
            assert len(state.values["messages"]) == 4
            with pytest.raises(InvalidInput, match="another thread than its event loop"):
                graph.get_state(at())

    asyncio.run(both())
