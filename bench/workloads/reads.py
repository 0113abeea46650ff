"""Reading: the newest state, its end, the history, a fork: each beside the floor and the neighbours."""

from __future__ import annotations

import statistics
from time import perf_counter
from typing import Any

import msgspec

from bench.measure import Blocking, Job, Lane, Outcome, Target, best_of
from bench.peers.floor import Floor
from bench.peers.langgraph import Delta, Sqlite
from bench.peers.openai_agents import Session
from bench.setting import Setting
from bench.subject import Backtrail, BacktrailChat, BacktrailZstd
from bench.traffic import conversation, single_messages

TIMES = 15


def run(setting: Setting) -> Outcome:
    rows: list[list[str]] = []
    with setting.bar("reading", 5) as bar, setting.place() as scratch:
        talk = conversation(setting.steps)
        stores: dict[str, Any] = {
            "backtrail": Backtrail(scratch.new()), "zstd": BacktrailZstd(scratch.new(), "normal"),
            "delta": Delta(scratch.new(), "normal"), "session": Session(scratch.new(), "normal"),
        }  # fmt: skip
        for contender in stores.values():
            Lane(contender, talk).run(1, setting.steps)
        stores["sqlite"] = Sqlite(scratch.new(), "normal")
        Lane(stores["sqlite"], talk).run(setting.steps - 2, setting.steps)
        bar.tick()
        load = _loads(stores, rows)
        bar.tick()
        history, peer_history = _histories(stores, rows, setting.steps)
        bar.tick()
        fork, floor = _forks(stores["backtrail"], Floor(scratch.new()), rows)
        bar.tick()
        tail = _tails(scratch.new(), scratch.new(), rows, setting.scaled(5000))
        for contender in stores.values():
            contender.close()
    targets = [
        Target("reads", "load of the newest state against msgspec decode", load["backtrail"] / load["msgspec"], 2.2),
        Target("reads", f"last 50 of {setting.scaled(5000):,} messages", tail["backtrail"] * 1e3, 1, unit="ms"),
        Target("reads", f"history of {setting.steps:,} checkpoints", history * 1e3, 15, unit="ms"),
        Target("reads", "fork against the floor, FULL", fork / floor, 2),
    ]
    raw = {
        "load": load,
        "last 50": tail,
        "history": {"backtrail": history, "sqlite": peer_history},
        "fork": [fork, floor],
    }
    return Outcome("Reading", ["what", "contender", "ms"], rows, targets, raw, f"medians of {TIMES} or more calls")


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
    for _ in range(TIMES):
        for key, call in calls.items():
            start = perf_counter()
            call()
            taken[key].append(perf_counter() - start)
        taken["session"].append(stores["session"].read("conversation")[0])
    names = {"msgspec": "msgspec decode of the same bytes", "backtrail": "backtrail", "zstd": "backtrail, zstd"}
    names |= {key: stores[key].name for key in ("sqlite", "delta", "session")}
    what = f"load {len(packed) / 1e6:.1f} MB"
    return {key: _row(rows, what, names[key], statistics.median(times)) for key, times in taken.items()}


def _histories(stores: dict[str, Any], rows: list[list[str]], steps: int) -> tuple[float, float]:
    thread = stores["backtrail"].store.thread("conversation")
    assert len(thread.history()) == steps
    mine = _row(rows, f"history of {steps:,}", "backtrail", best_of(thread.history, TIMES))
    saver, config = stores["sqlite"].saver, {"configurable": {"thread_id": "conversation", "checkpoint_ns": ""}}
    three = best_of(lambda: list(saver.list(config)), 3)
    guessed = three / 3 * steps / 2  # an average checkpoint is half as long as the last ones
    return mine, _row(rows, f"history of {steps:,}", f"{Sqlite.name}, extrapolated from 3", guessed)


def _forks(subject: Backtrail, floor: Floor, rows: list[list[str]]) -> tuple[float, float]:
    """Alternating: a fork at a step in the middle, a bare commit of 2.3 KB."""
    thread: Any = subject.store.thread("conversation")
    middle = thread.step // 2
    work = conversation(400)

    class Fork(Blocking):
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


def _tails(here: Any, there: Any, rows: list[list[str]], count: int) -> dict[str, float]:
    messages = list(single_messages(count))
    chat = BacktrailChat(str(here / "backtrail.db"), durability="normal", compression=None)
    for message in messages:
        chat.add(message)
    session = Session(there, "normal")
    session.times(Job("chat", number, {}, [message]) for number, message in enumerate(messages))
    assert len(chat.last(50)) == session.read("chat", 50)[1] == 50
    mine = best_of(lambda: chat.last(50), 200)
    theirs = statistics.median(session.read("chat", 50)[0] for _ in range(200))
    chat.close()
    session.close()
    what = f"last 50 of {count:,}"
    return {"backtrail": _row(rows, what, "backtrail", mine), "session": _row(rows, what, Session.name, theirs)}
