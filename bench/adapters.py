"""The adapters beside the frameworks' own stores: the same program on both.

    make bench-adapters [ADAPTER_ARGS="--quick"]

LangGraph: a graph of one node with a plain `add_messages` list, two messages of 1 KB a turn. `LastCheckpointSaver`
stores nothing, so its time is LangGraph's own. OpenAI Agents: the newest 50 items of sessions of growing length. Google
ADK: the newest 50 events of 5,000.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sqlite3
import string
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Annotated, Any, TypedDict

import psycopg
from google.adk.events import Event
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from rich.console import Console

import backtrail
from backtrail.adapters.adk import BacktrailSessionService
from backtrail.adapters.langgraph import BacktrailSaver
from backtrail.adapters.openai_agents import BacktrailSession
from backtrail.testing.servers import PostgresServer, private_directory
from bench.measure import Outcome, Target, directory_bytes
from bench.report import show, show_targets
from bench.synthetic_messages import MessageGenerator

MEGABYTE = 1e6


class Chat(TypedDict):
    messages: Annotated[list[Any], add_messages]


class LastCheckpointSaver(BaseCheckpointSaver[int]):
    """Stores nothing; returns the last checkpoint it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.last: CheckpointTuple | None = None

    def get_tuple(self, config: Any) -> CheckpointTuple | None:  # noqa: ARG002
        return self.last

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:  # noqa: ARG002
        configurable = {"checkpoint_id": checkpoint["id"], "thread_id": "t", "checkpoint_ns": ""}
        self.last = CheckpointTuple({"configurable": configurable}, checkpoint, metadata, None, [])
        return {"configurable": configurable}

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:  # noqa: ARG002
        return None


def prose() -> Callable[[], str]:
    """Makes texts of 1 KB that compress as real messages do."""
    generator = MessageGenerator(7)
    return lambda: generator.prose(1024)[:1024]


def noise() -> Callable[[], str]:
    """Makes texts of 1 KB that hardly compress: characters drawn at random, as in keys, hashes and encoded images."""
    source = random.Random(7)
    return lambda: "".join(source.choices(string.printable[:94], k=1024))


def run_turns(saver: Any, turns: int, make_text: Callable[[], str] | None = None) -> list[float]:
    """Run a conversation, and return the seconds of each turn."""
    text = make_text or prose()
    builder = StateGraph(Chat)
    builder.add_node("agent", lambda _: {"messages": [AIMessage(text())]})
    builder.add_edge(START, "agent")
    graph: Any = builder.compile(checkpointer=saver)
    taken = []
    for _ in range(turns):
        message = HumanMessage(text())
        start = perf_counter()
        graph.invoke({"messages": [message]}, {"configurable": {"thread_id": "t"}})
        taken.append(perf_counter() - start)
    return taken


def first_and_last_tenth(taken: list[float]) -> tuple[float, float]:
    """Milliseconds per turn in the first and in the last tenth."""
    tenth = max(1, len(taken) // 10)
    return 1000 * sum(taken[:tenth]) / tenth, 1000 * sum(taken[-tenth:]) / tenth


@contextmanager
def sqlite_file(root: Path, name: str) -> Iterator[tuple[Path, Callable[[], float]]]:
    """A new database file, and a function that returns the megabytes of all files beside it."""
    directory = root / name
    directory.mkdir()
    yield directory / "store.db", lambda: directory_bytes(directory) / MEGABYTE


def on_sqlite(root: Path, turns: int) -> Outcome:
    """LangGraph on SQLite: time, and bytes on the disk at the end."""
    with sqlite_file(root, "backtrail") as (path, size):
        with backtrail.open(path) as store:
            ours = run_turns(BacktrailSaver(store), turns)
        ours_size = size()
    with sqlite_file(root, "theirs") as (path, size):
        with sqlite3.connect(path, check_same_thread=False) as connection:
            theirs = run_turns(SqliteSaver(connection), turns)
        connection.close()
        theirs_size = size()
    with sqlite_file(root, "noise") as (path, size):
        with backtrail.open(path) as store:
            of_noise = run_turns(BacktrailSaver(store), turns, noise())
        noise_size = size()
    bare = run_turns(LastCheckpointSaver(), turns)
    rows = [
        _row("backtrail", ours, ours_size),
        _row("backtrail, messages that do not compress", of_noise, noise_size),
        _row("SqliteSaver", theirs, theirs_size),
        _row("nothing stored", bare, 0.0),
    ]
    ratio = sum(ours) / sum(theirs)
    targets = [
        Target("LangGraph, SQLite", f"size after {turns} turns", ours_size, 3.0 * turns / 400, unit="MB"),
        Target(
            "LangGraph, SQLite", "the same, messages that do not compress", noise_size, 2.6 * turns / 400, unit="MB"
        ),
        Target("LangGraph, SQLite", "run time / SqliteSaver's", ratio, 0.75),
    ]
    return Outcome(f"LangGraph on SQLite, {turns} turns", _COLUMNS, rows, targets)


def on_postgres(turns: int) -> Outcome:
    """The same on a private PostgreSQL server."""
    with private_directory() as directory:
        server = PostgresServer(directory / "postgres")
        server.start()
        try:
            with backtrail.open(server.url) as store:
                empty = store.stats()["bytes"]
                ours = run_turns(BacktrailSaver(store), turns)
                ours_size = (store.stats()["bytes"] - empty) / MEGABYTE
            with PostgresSaver.from_conn_string(server.url) as saver:
                saver.setup()
                theirs = run_turns(saver, turns)
            measured = "SELECT sum(pg_total_relation_size(c::regclass)) FROM unnest(%s::text[]) c"
            tables = ["checkpoints", "checkpoint_blobs", "checkpoint_writes"]
            with psycopg.connect(server.url) as connection:
                found = connection.execute(measured, [tables]).fetchone()
            theirs_size = float(found[0]) / MEGABYTE if found else 0.0
        finally:
            server.stop()
    rows = [_row("backtrail", ours, ours_size), _row("PostgresSaver", theirs, theirs_size)]
    targets = [
        Target("LangGraph, PostgreSQL", f"size after {turns} turns", ours_size, 4.0 * turns / 400, unit="MB"),
        Target("LangGraph, PostgreSQL", "run time / PostgresSaver's", sum(ours) / sum(theirs), 0.5),
    ]
    return Outcome(f"LangGraph on PostgreSQL, {turns} turns", _COLUMNS, rows, targets)


def long_conversation(root: Path, turns: int) -> Outcome:
    """The time per turn of a long conversation: it must not grow faster than LangGraph's own."""
    rows, ours = [], {}
    for detect in ("identity", "exact"):
        with sqlite_file(root, f"long-{detect}") as (path, size):
            with backtrail.open(path) as store:
                ours[detect] = run_turns(BacktrailSaver(store, detect=detect), turns)  # type: ignore[arg-type]
            rows.append(_row(f"backtrail, detect={detect}", ours[detect], size()))
    bare = run_turns(LastCheckpointSaver(), turns)
    rows.append(_row("nothing stored", bare, 0.0))
    (first, last), own = first_and_last_tenth(ours["identity"]), first_and_last_tenth(bare)[1]
    note = "1.5 x the first tenth + LangGraph's own; detect=identity"
    what = f"ms per turn, last tenth of {turns}"
    target = Target("LangGraph, SQLite", what, last, 1.5 * first + own, unit="ms", note=note)
    return Outcome(f"LangGraph on SQLite, {turns} turns: does it stay flat?", _COLUMNS, rows, [target])


def openai_window(root: Path, longest: int) -> Outcome:
    """The time of `get_items(limit=50)` in sessions of growing length."""
    generator, rows, times = MessageGenerator(3), [], []

    async def measure() -> None:
        with backtrail.open(root / "openai.db", durability="normal") as store:
            session, count = BacktrailSession(store, "s"), 0
            for length in (longest // 16, longest // 4, longest):
                while count < length:
                    await session.add_items([generator.user(400), generator.assistant(400)])  # type: ignore[list-item]
                    count += 2
                taken = []
                for _ in range(30):
                    start = perf_counter()
                    await session.get_items(limit=50)
                    taken.append(1000 * (perf_counter() - start))
                times.append(median(taken))
                rows.append(["backtrail", f"{length}", f"{times[-1]:.2f}"])

    asyncio.run(measure())
    target = Target("OpenAI Agents", f"get_items(50): {longest} items / {longest // 16}", times[-1] / times[0], 1.5)
    return Outcome("OpenAI Agents: the newest 50 items", ["store", "items", "ms"], rows, [target])


def adk_window(root: Path, events: int) -> Outcome:
    """The time of `get_session` with the 50 newest events."""
    generator, who = MessageGenerator(5), {"app_name": "a", "user_id": "u", "session_id": "s"}

    async def measure() -> float:
        with backtrail.open(root / "adk.db", durability="normal") as store:
            service = BacktrailSessionService(store)
            session = await service.create_session(**who)
            for _ in range(events):
                content = types.Content(role="user", parts=[types.Part(text=generator.prose(400))])
                await service.append_event(session, Event(author="user", content=content))
            taken = []
            for _ in range(30):
                start = perf_counter()
                await service.get_session(**who, config=GetSessionConfig(num_recent_events=50))
                taken.append(1000 * (perf_counter() - start))
            return median(taken)

    took = asyncio.run(measure())
    target = Target("Google ADK", f"get_session, 50 of {events} events", took, 10.0, unit="ms")
    return Outcome("Google ADK: 50 recent events", ["store", "ms"], [["backtrail", f"{took:.2f}"]], [target])


_COLUMNS = ["store", "seconds", "ms/turn, first tenth", "ms/turn, last tenth", "MB"]


def _row(name: str, taken: list[float], size: float) -> list[str]:
    first, last = first_and_last_tenth(taken)
    return [name, f"{sum(taken):.2f}", f"{first:.2f}", f"{last:.2f}", f"{size:.2f}"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.adapters", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the turns")
    options = parser.parse_args()
    part = 4 if options.quick else 1
    console = Console(width=None if sys.stdout.isatty() else 160)
    with tempfile.TemporaryDirectory(prefix=".scratch-", dir=Path(__file__).parent) as scratch:
        root = Path(scratch)
        targets: list[Target] = []
        for outcome in (
            on_sqlite(root, 400 // part),
            on_postgres(400 // part),
            long_conversation(root, 1600 // part),
            openai_window(root, 5000 // part),
            adk_window(root, 5000 // part),
        ):
            show(console, outcome)
            targets += outcome.targets
        show_targets(console, targets, options.quick)
    if not options.quick:
        kept = {"targets": [asdict(target) | {"reached": target.reached} for target in targets]}
        Path(__file__).with_suffix(".json").write_text(json.dumps(kept, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
