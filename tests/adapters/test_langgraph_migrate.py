"""LangGraph databases are migrated completely."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.shallow import ShallowPostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command, interrupt

import backtrail
from backtrail.adapters.langgraph import BacktrailSaver
from backtrail.adapters.langgraph.migrate import Migration, migrate_database, migrate_saver
from backtrail.errors import InvalidInput, UnsupportedFormat
from fix_graphs import Chat, at, chat


def graph(saver: Any) -> Any:
    def answer(state: Chat) -> Any:
        text = state["messages"][-1].content
        return AIMessage(interrupt("sure?") if text == "ask" else f"re: {text}")

    return chat(saver, answer)


def run_graphs(saver: Any) -> None:
    """Make two threads: one with a branch, one that waits for an answer."""
    one = graph(saver)
    one.invoke({"messages": [HumanMessage("a")]}, at("t/1"))
    past = one.get_state(at("t/1")).config
    one.invoke({"messages": [HumanMessage("b")]}, at("t/1"))
    one.invoke({"messages": [HumanMessage("c")]}, past)
    one.invoke({"messages": [HumanMessage("ask")]}, at("t2"))


def checkpoints(saver: Any) -> list[Any]:
    return [
        (t.config["configurable"], t.checkpoint, t.metadata, t.parent_config, t.pending_writes)
        for t in saver.list(None)
    ]


def assert_migrated(theirs: Any, store: Any) -> None:
    ours = BacktrailSaver(store)
    assert checkpoints(ours) == checkpoints(theirs)
    resumed = graph(ours)
    assert [m.content for m in resumed.get_state(at("t/1")).values["messages"]] == ["a", "re: a", "c", "re: c"]
    assert resumed.invoke(Command(resume="yes"), at("t2"))["messages"][-1].content == "yes"


def test_a_sqlite_database_is_migrated_with_branches_and_pending_writes(store: Any, tmp_path: Path) -> None:
    file = tmp_path / "langgraph.db"
    with SqliteSaver.from_conn_string(str(file)) as theirs:
        run_graphs(theirs)
        progress: list[tuple[int, int]] = []
        copied = migrate_database("langgraph-sqlite", str(file), store, lambda *done: progress.append(done))
        assert copied == Migration(11)
        assert progress[-1] == (11, 11)
        assert migrate_database("langgraph-sqlite", str(file), store) == Migration(0, unchanged=11)
        assert_migrated(theirs, store)


@pytest.fixture
def own_schema(postgres_server: Any) -> Iterator[str]:
    """The URL of an empty schema."""
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA savers")
        yield f"{postgres_server.url}?options=-csearch_path%3Dsavers"
        connection.execute("DROP SCHEMA savers CASCADE")


def test_a_postgres_database_is_migrated(store: Any, own_schema: str) -> None:
    with PostgresSaver.from_conn_string(own_schema) as theirs:
        theirs.setup()
        run_graphs(theirs)
        assert migrate_database("langgraph-postgres", own_schema, store) == Migration(11)
        assert_migrated(theirs, store)


def test_the_newest_checkpoints_of_a_shallow_saver_are_migrated(store: Any, own_schema: str) -> None:
    with ShallowPostgresSaver.from_conn_string(own_schema) as theirs:
        theirs.setup()
        run_graphs(theirs)
        before = graph(theirs).get_state(at("t/1"))
        assert migrate_database("langgraph-postgres", own_schema, store) == Migration(2)
        assert migrate_database("langgraph-postgres", own_schema, store) == Migration(0, unchanged=2)
    ours = graph(BacktrailSaver(store))
    after = ours.get_state(at("t/1"))
    assert (after.values, after.config, after.metadata) == (before.values, before.config, before.metadata)
    assert ours.invoke(Command(resume="yes"), at("t2"))["messages"][-1].content == "yes"


def test_sends_of_a_shallow_saver_before_version_4_are_migrated(store: Any, own_schema: str) -> None:
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "id-1"}}
    checkpoint: Any = {"v": 1, "ts": "2024-05-01T00:00:00+00:00", "versions_seen": {}}
    checkpoint |= {"channel_values": {"log": ["a"]}, "channel_versions": {"log": "1"}}
    with ShallowPostgresSaver.from_conn_string(own_schema) as theirs:
        theirs.setup()
        theirs.put_writes(config, [("__pregel_tasks", "sent"), ("log", "not sent")], "task")
        theirs.put(config, {**checkpoint, "id": "id-2"}, {}, {"log": "1"})
    assert migrate_database("langgraph-postgres", own_schema, store) == Migration(1)
    found = BacktrailSaver(store).get_tuple(at("t"))
    assert found is not None
    assert found.checkpoint["channel_values"] == {"log": ["a"], "__pregel_tasks": ["sent"]}


def test_a_file_that_is_not_a_database_is_refused(store: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="not a file"):
        migrate_database("langgraph-sqlite", str(tmp_path / "missing.db"), store)
    with pytest.raises(InvalidInput, match="langgraph-sqlite, langgraph-postgres"):
        migrate_database("langgraph-mongo", "x", store)
    (tmp_path / "junk.db").write_text("not a database at all, but long enough to be read as one" * 20)
    with pytest.raises(UnsupportedFormat, match="not a database"):
        migrate_database("langgraph-sqlite", str(tmp_path / "junk.db"), store)
    assert store.threads() == []


def test_any_saver_can_be_migrated(store: Any) -> None:
    theirs = SqliteSaver(sqlite3.connect(":memory:", check_same_thread=False))
    run_graphs(theirs)
    migrate_saver(theirs, store)
    assert_migrated(theirs, store)
    theirs.conn.close()


def test_the_command_line_migrates_a_database(tmp_path: Path) -> None:
    file, target = tmp_path / "langgraph.db", tmp_path / "backtrail.db"
    with SqliteSaver.from_conn_string(str(file)) as theirs:
        run_graphs(theirs)
    backtrail_ = [sys.executable, "-m", "backtrail.cli", "import", "-s", str(target)]
    done = subprocess.run([*backtrail_, "langgraph-sqlite", str(file)], capture_output=True, text=True, check=True)
    assert "11 checkpoints imported, 0 unchanged, 0 skipped" in done.stdout
    again = subprocess.run([*backtrail_, "langgraph-sqlite", str(file)], capture_output=True, text=True, check=True)
    assert "0 checkpoints imported, 11 unchanged, 0 skipped" in again.stdout
    with backtrail.open(target) as store:
        assert {"t%2F1", "t2"} <= {info.id for info in store.threads()}
    wrong = subprocess.run([*backtrail_, "langgraph-sqlite"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "takes one database" in wrong.stderr
