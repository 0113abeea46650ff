"""LangGraph's pending writes: those that come at once are saved together, and those of every checkpoint are found."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import empty_checkpoint

import backtrail
from backtrail.adapters.langgraph import BacktrailSaver, checkpoints
from backtrail.adapters.langgraph.put_queue import PutQueue, QueuedWrites
from backtrail.adapters.langgraph.write_items import Write
from backtrail.engines.sqlite.engine import SQLiteEngine
from fix_graphs import at

ENGINE_CALLS = ("tip", "head", "row", "rows", "steps", "payloads", "locate", "blobs", "branches", "commit")


def values(saver: Any, config: Any) -> list[Any]:
    return [value for _, _, value in saver.get_tuple(config).pending_writes]


def until(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_writes_that_come_while_others_are_saved_are_one_commit_and_no_read(tmp_path: Path, monkeypatch: Any) -> None:
    with backtrail.open(tmp_path / "s.db", durability="normal") as store:
        saver = BacktrailSaver(store)
        config = saver.put(at(checkpoint_ns=""), empty_checkpoint(), {}, {})
        saver.put_writes(config, [("seen", 0)], "task-00")
        calls: list[str] = []
        engine, go = store._core.context.engine, threading.Event()

        async def call(name: str, method: Any, *args: Any, **options: Any) -> Any:
            calls.append(name)
            assert name != "commit" or go.wait(30)
            return await method(*args, **options)

        for name in ENGINE_CALLS:
            monkeypatch.setattr(engine, name, partial(call, name, getattr(engine, name)))
        tasks = [
            threading.Thread(target=saver.put_writes, args=(config, [("seen", n)], f"task-{n:02}"))
            for n in range(1, 13)
        ]
        tasks[0].start()
        until(lambda: calls)
        (queue,) = saver._cache.put_queue._queues.values()
        for task in tasks[1:]:
            task.start()
        until(lambda: len(queue.calls) == len(tasks))
        go.set()
        for task in tasks:
            task.join()
        assert calls == ["commit", "commit"], "the first one's, and one for all that came meanwhile"
        assert store.thread("t//writes").head.step == 3
        for reader in (saver, BacktrailSaver(store)):
            assert values(reader, config) == list(range(13))


def test_a_save_of_writes_makes_no_call_of_the_system_before_its_commit(tmp_path: Path, monkeypatch: Any) -> None:
    """Such a call lets the other threads of the process run: one of them may end it."""
    with backtrail.open(tmp_path / "s.db", durability="normal") as store:
        saver = BacktrailSaver(store)
        config = saver.put(at(checkpoint_ns=""), empty_checkpoint(), {}, {})
        saver.put_writes(config, [("seen", 0)], "task-0")
        drawn = os.urandom
        monkeypatch.setattr(os, "urandom", lambda size: pytest.fail(f"{size} bytes drawn") or drawn(size))
        saver.put_writes(config, [("seen", 1)], "task-1")
        monkeypatch.undo()
        assert values(saver, config) == [0, 1]


def test_a_save_of_writes_is_one_statement_in_a_process_that_has_just_begun(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "s.db", durability="normal") as store:
        config = BacktrailSaver(store).put(at(checkpoint_ns=""), empty_checkpoint(), {}, {})
        BacktrailSaver(store).put_writes(config, [("seen", 0)], "task-0")
    with backtrail.open(tmp_path / "s.db", durability="normal") as store:
        saver, engine = BacktrailSaver(store), store._core.context.engine
        saver.get_tuple(at())
        assert isinstance(engine, SQLiteEngine)
        assert engine._writer._connection is not None
        statements: list[str] = []
        engine._writer._connection.connection.set_trace_callback(statements.append)
        saver.put_writes(config, [("seen", 1)], "task-1")
        assert len(set(statements)) == 1


class Refusing:
    """Saves lists of writes, but none that has a bad one in it."""

    def __init__(self) -> None:
        self.saved: list[list[str]] = []

    async def save(self, writes: list[Any]) -> None:
        if "bad" in writes:
            raise ValueError("bad")
        self.saved.append(sorted(writes))


def put(queue: PutQueue, store: Refusing, checkpoint: str, write: Any) -> Any:
    return queue.put("thread", QueuedWrites(checkpoint, [write]), store.save)


def test_a_write_that_cannot_be_saved_fails_alone() -> None:
    lock = threading.Lock()
    store, queue, errors = Refusing(), PutQueue(lambda: lock), list[str]()

    def task(write: str) -> None:
        try:
            put(queue, store, "checkpoint", write).send(None)
        except StopIteration:
            return
        except ValueError:
            errors.append(write)

    with lock:
        tasks = [threading.Thread(target=task, args=(write,)) for write in ("one", "bad", "other")]
        for one in tasks:
            one.start()
        until(lambda: queue._queues and all(len(one.calls) == 3 for one in list(queue._queues.values())))
    for one in tasks:
        one.join()
    assert errors == ["bad"]
    assert sorted(write for some in store.saved for write in some) == ["one", "other"]
    assert not queue._queues


def test_tasks_of_an_event_loop_share_a_save_and_a_cancelled_one_leaves_the_queue() -> None:
    async def main() -> None:
        lock = asyncio.Lock()
        store, queue = Refusing(), PutQueue(lambda: lock)
        async with lock:
            wanted = (("a", "one"), ("b", "two"), ("a", "three"), ("a", "four"))
            tasks = [asyncio.ensure_future(put(queue, store, *one)) for one in wanted]
            await asyncio.sleep(0)
            tasks[3].cancel()
            await asyncio.sleep(0)
        await asyncio.gather(*tasks[:3])
        assert store.saved == [["one", "three"], ["two"]], "writes of two checkpoints are never one record"
        assert not queue._queues

    asyncio.run(main())


def test_the_writes_of_an_older_checkpoint_are_found_by_few_reads(tmp_path: Path, monkeypatch: Any) -> None:
    with backtrail.open(tmp_path / "s.db", durability="normal") as store:
        saver = BacktrailSaver(store)
        old = saver.put(at(checkpoint_ns=""), empty_checkpoint(), {}, {})
        new = saver.put(old, empty_checkpoint(), {}, {})
        for n in range(100):
            saver.put_writes(old, [("seen", n)], f"task-{n:03}")
        for n in range(100):
            saver.put_writes(new, [("seen", -n)], f"task-{n:03}")
    with backtrail.open(tmp_path / "s.db", durability="normal") as store:
        thread = type(store.thread("t//writes"))
        named: list[Any] = []
        get = thread.get
        monkeypatch.setattr(thread, "get", lambda self, at, **options: named.append(at) or get(self, at, **options))
        assert values(BacktrailSaver(store), old) == list(range(100))
        assert len(named) < 25


def test_writes_on_an_abandoned_branch_are_found(store: Any) -> None:
    saver = BacktrailSaver(store)
    first, old, new = (saver.put(at(checkpoint_ns=""), empty_checkpoint(), {}, {}) for _ in range(3))
    saver.put_writes(first, [("seen", "first")], "task")
    for n in range(5):
        saver.put_writes(old, [("seen", n)], f"task-{n}")
    store.thread("t//writes").rewind(1)
    for reader in (BacktrailSaver(store), saver):
        reader.put_writes(new, [("seen", "new")], "task")
    for reader in (BacktrailSaver(store), saver):
        assert values(reader, first) == ["first"]
        assert values(reader, old) == list(range(5))
        assert values(reader, new) == ["new"]


def test_the_input_of_a_turn_is_stored_once_although_its_writes_come_before_its_checkpoint_is_saved(
    store: Any, monkeypatch: Any
) -> None:
    saver, checkpoint = BacktrailSaver(store), empty_checkpoint()
    message = HumanMessage("what was asked", id="1")
    checkpoint["channel_values"] = {"__start__": {"messages": [message]}, "messages": []}
    versions: Any = {"__start__": "1", "messages": "1"}
    config: Any = at(checkpoint_ns="", checkpoint_id=checkpoint["id"])
    planned = checkpoints.plan_delta

    def overtaken(*args: Any, **how: Any) -> Any:
        saver.put_writes(config, [("messages", [message])], "task")
        return planned(*args, **how)

    monkeypatch.setattr(checkpoints, "plan_delta", overtaken)
    saver.put(at(checkpoint_ns=""), {**checkpoint, "channel_versions": versions}, {}, versions)
    (item,) = store.thread("t//writes").load()["writes"]
    assert Write.from_item(item).is_reference
    for each in (saver, BacktrailSaver(store)):
        assert values(each, config) == [[message]]
