"""Reads: the newest state, its last messages, the history, a fork; beside the floor and other stores.

The newest state is loaded again and again from stores that stay open, as by a server, and once from each of several
fresh connections, as by a program that starts; the files are in the cache of the operating system both times."""

from __future__ import annotations

import statistics
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

import backtrail
from bench.contenders.backtrail import BacktrailChatSession, BacktrailSave, BacktrailSaveZstd
from bench.contenders.floor import BareSqliteCommit
from bench.contenders.langgraph import LangGraphSqlite, LangGraphSqliteDelta
from bench.contenders.openai_agents import OpenAIAgentsSession
from bench.measure import Job, Lane, Outcome, SyncContender, Target, median_seconds
from bench.run_context import RunContext
from bench.synthetic_messages import make_conversation, make_messages

REPEATS = 15


def run(context: RunContext) -> Outcome:
    rows: list[list[str]] = []
    with context.progress("reading", 6) as bar, context.scratch() as scratch:
        conversation = make_conversation(context.steps)
        places = {key: scratch.new_directory() for key in ("backtrail", "zstd", "delta", "session", "sqlite")}
        stores: dict[str, Any] = {
            "backtrail": BacktrailSave(places["backtrail"]),
            "zstd": BacktrailSaveZstd(places["zstd"], "normal"),
            "delta": LangGraphSqliteDelta(places["delta"], "normal"),
            "session": OpenAIAgentsSession(places["session"], "normal"),
        }
        for contender in stores.values():
            Lane(contender, conversation).run(1, context.steps)
        stores["sqlite"] = LangGraphSqlite(places["sqlite"], "normal")
        Lane(stores["sqlite"], conversation).run(context.steps - 2, context.steps)
        bar.advance()
        load = _loads(stores, rows)
        first = _first_loads(places, stores, rows)
        bar.advance()
        history, peer_history = _histories(stores, rows, context.steps)
        bar.advance()
        fork, floor = _forks(stores["backtrail"], BareSqliteCommit(scratch.new_directory()), rows)
        bar.advance()
        tail = _tails(scratch.new_directory(), scratch.new_directory(), rows, context.scaled(5000))
        bar.advance()
        wide = _wide_dict(scratch.new_directory(), rows, context.scaled(3000))
        for contender in stores.values():
            contender.close()
    targets = [
        Target("reads", "load of the newest state against msgspec decode", load["backtrail"] / load["msgspec"], 1.6),
        Target("reads", "the same against the faster peer", load["backtrail"] / min(load["sqlite"], load["delta"]), 1),
        Target("reads", "load with zstd against without", load["zstd"] / load["backtrail"], 1.5),
        Target(
            "reads", "the first load after opening, against msgspec decode", first["backtrail"] / load["msgspec"], 1.6
        ),
        Target(
            "reads",
            "the first load against the faster peer's",
            first["backtrail"] / min(first["sqlite"], first["delta"]),
            1,
        ),
        Target("reads", "the first load with zstd against without", first["zstd"] / first["backtrail"], 1.5),
        Target("reads", f"last 50 of {context.scaled(5000):,} messages", tail["backtrail"] * 1e3, 1, unit="ms"),
        Target("reads", f"history of {context.steps:,} checkpoints", history * 1e3, 15, unit="ms"),
        Target("reads", "fork against the floor, FULL", fork / floor, 2),
        Target("reads", "load of a wide dict against a list of the same values", wide["dict"] / wide["list"], 2),
    ]
    raw = {
        "load": load,
        "first load": first,
        "last 50": tail,
        "history": {"backtrail": history, "sqlite": peer_history},
        "fork": [fork, floor],
        "wide dict": wide,
    }
    return Outcome("Reading", ["what", "contender", "ms"], rows, targets, raw, f"medians of {REPEATS} or more calls")


def _row(rows: list[list[str]], what: str, who: str, seconds: float) -> float:
    rows.append([what, who, f"{seconds * 1e3:,.3f}"])
    return seconds


def _loads(stores: dict[str, Any], rows: list[list[str]]) -> dict[str, float]:
    thread = stores["backtrail"].store.thread("conversation")
    compressed = stores["zstd"].store.thread("conversation")
    state = thread.load()
    assert state == compressed.load()
    assert state["messages"] == stores["delta"].load("conversation")["messages"]
    packed = msgspec.msgpack.encode(state)
    decode = msgspec.msgpack.Decoder().decode
    calls: dict[str, Any] = {
        "msgspec": lambda: decode(packed),
        "backtrail": thread.load,
        "zstd": compressed.load,
        "sqlite": lambda: stores["sqlite"].load("conversation"),
        "delta": lambda: stores["delta"].load("conversation"),
    }
    taken: dict[str, list[float]] = {key: [] for key in [*calls, "session"]}
    for _ in range(REPEATS):
        for key, call in calls.items():
            start = perf_counter()
            call()
            taken[key].append(perf_counter() - start)
        taken["session"].append(stores["session"].time_read("conversation")[0])
    names = {"msgspec": "msgspec decode of the same bytes", "backtrail": "backtrail", "zstd": "backtrail, zstd"}
    names |= {key: stores[key].name for key in ("sqlite", "delta", "session")}
    what = f"load {len(packed) / 1e6:.1f} MB"
    return {key: _row(rows, what, names[key], statistics.median(times)) for key, times in taken.items()}


def _first_loads(places: dict[str, Path], stores: dict[str, Any], rows: list[list[str]]) -> dict[str, float]:
    """The first load by each of several fresh connections to the same files, without the opening."""
    kinds: dict[str, Any] = {
        "backtrail": BacktrailSave,
        "zstd": BacktrailSaveZstd,
        "sqlite": LangGraphSqlite,
        "delta": LangGraphSqliteDelta,
    }
    taken: dict[str, list[float]] = {key: [] for key in kinds}
    for _ in range(REPEATS):
        for key, kind in kinds.items():
            fresh = kind(places[key], "normal")
            start = perf_counter()
            state = fresh.load("conversation")
            taken[key].append(perf_counter() - start)
            fresh.close()
            del state
    return {key: _row(rows, "first load", stores[key].name, statistics.median(times)) for key, times in taken.items()}


def _histories(stores: dict[str, Any], rows: list[list[str]], steps: int) -> tuple[float, float]:
    thread = stores["backtrail"].store.thread("conversation")
    assert len(thread.history()) == steps
    mine = _row(rows, f"history of {steps:,}", "backtrail", median_seconds(thread.history, REPEATS))
    saver, config = stores["sqlite"].saver, {"configurable": {"thread_id": "conversation", "checkpoint_ns": ""}}
    three = median_seconds(lambda: list(saver.list(config)), 3)
    estimate = three / 3 * steps / 2  # an average checkpoint is half as long as the last ones
    return mine, _row(rows, f"history of {steps:,}", f"{LangGraphSqlite.name}, extrapolated from 3", estimate)


def _forks(contender: BacktrailSave, floor: BareSqliteCommit, rows: list[list[str]]) -> tuple[float, float]:
    """Forks at a step in the middle, and bare commits of 2.3 KB; they take turns."""
    thread: Any = contender.store.thread("conversation")
    middle = thread.step // 2
    work = make_conversation(400)

    class Fork(SyncContender):
        name = "backtrail fork"

        def save(self, prepared: Any) -> None:
            thread.fork(f"fork-{prepared.step}", at=middle)

    forks, commits, fork = list[float](), list[float](), Fork()
    for turn in range(0, 400, 10):
        jobs = [Job("floor", step, {}, work[step]) for step in range(turn, turn + 10)]
        forks += fork.times(jobs)
        commits += floor.times(jobs)
    floor.close()
    mine = _row(rows, "fork in the middle", "backtrail", statistics.median(forks))
    return mine, _row(rows, "fork in the middle", "floor: one bare commit", statistics.median(commits))


def _wide_dict(here: Any, rows: list[list[str]], count: int) -> dict[str, float]:
    """A dict of many texts of 1 KB, and a list of the same texts; their loads take turns."""
    texts = [f"{number} " + "x" * 1024 for number in range(count)]
    states: dict[str, Any] = {"dict": {f"doc-{number}": text for number, text in enumerate(texts)}, "list": texts}
    taken: dict[str, list[float]] = {kind: [] for kind in states}
    with backtrail.open(here / "wide.db", durability="normal") as store:
        for kind, docs in states.items():
            store.thread(kind).save({"docs": docs})
        for _ in range(REPEATS):
            for kind in states:
                start = perf_counter()
                store.thread(kind).load()
                taken[kind].append(perf_counter() - start)
    what = f"load {count:,} texts of 1 KB"
    return {kind: _row(rows, what, f"backtrail, a {kind}", statistics.median(times)) for kind, times in taken.items()}


def _tails(here: Any, there: Any, rows: list[list[str]], count: int) -> dict[str, float]:
    messages = list(make_messages(count))
    chat = BacktrailChatSession(str(here / "backtrail.db"), durability="normal", compression=None)
    for message in messages:
        chat.add(message)
    session = OpenAIAgentsSession(there, "normal")
    session.times(Job("chat", number, {}, [message]) for number, message in enumerate(messages))
    assert len(chat.last(50)) == session.time_read("chat", 50)[1] == 50
    mine = median_seconds(lambda: chat.last(50), 200)
    theirs = statistics.median(session.time_read("chat", 50)[0] for _ in range(200))
    chat.close()
    session.close()
    what = f"last 50 of {count:,}"
    return {
        "backtrail": _row(rows, what, "backtrail", mine),
        "session": _row(rows, what, OpenAIAgentsSession.name, theirs),
    }
