"""Sessions besides the chat of W4: JSONL against a bare fsync, a long listing, operations independent of length."""

from __future__ import annotations

import os
import statistics
from time import perf_counter
from typing import Any

import backtrail
from bench.measure import Outcome, Target, median_seconds
from bench.run_context import RunContext, Scratch
from bench.synthetic_messages import make_messages

SHORT = 200
LAST = 50
SAME = 1.5  #: a long session may be this much slower and still counts as independent of its length


def run(context: RunContext) -> Outcome:
    rows: list[list[str]] = []
    long = context.scaled(5000)
    with context.progress("sessions", 3) as bar, context.scratch() as scratch:
        line, bare = _jsonl_appends(scratch, context.scaled(2000))
        rows.append(["append to a session", "backtrail, jsonl:", f"{line * 1e3:.3f}"])
        rows.append(["append of the same line", "bare write + fsync", f"{bare * 1e3:.3f}"])
        after, anew = _last_messages(scratch, context.scaled(2000))
        rows.append([f"last {LAST} after an append of one's own", "backtrail, jsonl:", f"{after * 1e3:.3f}"])
        rows.append([f"last {LAST} after another's append", "backtrail, jsonl:", f"{anew * 1e3:.3f}"])
        bar.advance()
        listing = _listing(scratch, 10_000)
        rows.append(["10,000 sessions, newest first", "backtrail", f"{listing * 1e3:.1f}"])
        bar.advance()
        short, grown = _fork_snapshot_truncate(scratch, SHORT, long)
        for what in short:
            rows.append([f"{what} of {SHORT} messages", "backtrail", f"{short[what] * 1e3:.3f}"])
            rows.append([f"{what} of {long:,} messages", "backtrail", f"{grown[what] * 1e3:.3f}"])
    targets = [
        Target("sessions", "jsonl append against a bare fsynced append of the same line", line / bare, 1.5),
        Target("sessions", "10,000 sessions listed, newest first", listing, 0.3, unit="s"),
    ]
    note = "independent of length: taken as at most 1.5 x"
    for what in short:
        name = f"{what} of {long:,} messages against {SHORT}"
        targets.append(Target("sessions", name, grown[what] / short[what], SAME, note=note))
    raw = {"jsonl": [line, bare], "ends": [after, anew], "listing": listing, "short": short, "long": grown}
    note = "medians; all but the JSONL appends on SQLite at NORMAL"
    return Outcome("Sessions", ["what", "contender", "ms"], rows, targets, raw, note)


def _jsonl_appends(scratch: Scratch, count: int) -> tuple[float, float]:
    """backtrail appends twenty messages, then the same lines are appended to a bare file, and so on in turns.

    The floor uses fsync; the engine may use fdatasync, which costs the same on a file that grows.
    """
    here, there = scratch.new_directory(), scratch.new_directory()
    store: Any = backtrail.open(f"jsonl:{here}")
    session = store.session("chat")
    bare = os.open(there / "bare.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    messages = list(make_messages(count))
    session.append(messages[0])
    (file,) = here.rglob("chat*.jsonl")
    mine, floor = list[float](), list[float]()
    with file.open("rb") as written:
        written.seek(0, os.SEEK_END)
        for first in range(1, count, 20):
            for message in messages[first : first + 20]:
                start = perf_counter()
                session.append(message)
                mine.append(perf_counter() - start)
            for line in written.readlines():
                start = perf_counter()
                os.write(bare, line)
                os.fsync(bare)
                floor.append(perf_counter() - start)
    os.close(bare)
    store.close()
    return statistics.median(mine), statistics.median(floor)


def _last_messages(scratch: Scratch, count: int) -> tuple[float, float]:
    """Read the end of a session after each append: in the store that appended, and in a second one over the same files,
    which has not cached the new message."""
    here = scratch.new_directory()
    stores: list[Any] = [backtrail.open(f"jsonl:{here}", durability="normal") for _ in range(2)]
    mine, theirs = (store.session("chat") for store in stores)
    after, anew = list[float](), list[float]()
    for message in make_messages(count):
        mine.append(message)
        for session, taken in ((mine, after), (theirs, anew)):
            start = perf_counter()
            found = session.messages(last=LAST)
            taken.append(perf_counter() - start)
            assert found[-1] == message
    for store in stores:
        store.close()
    return statistics.median(after), statistics.median(anew)


def _listing(scratch: Scratch, count: int) -> float:
    store: Any = backtrail.open(str(scratch.new_directory() / "backtrail.db"), durability="normal")
    for number in range(count):
        store.session(f"user-{number}").add("user", "hello")
    assert len(store.sessions()) == count
    seconds = median_seconds(store.sessions, 5)
    store.close()
    return seconds


def _fork_snapshot_truncate(scratch: Scratch, *lengths: int) -> tuple[dict[str, float], dict[str, float]]:
    """Fork, snapshot and truncate a short and a long session, in turns, on fresh forks."""
    store: Any = backtrail.open(str(scratch.new_directory() / "backtrail.db"), durability="normal")
    sessions, taken = [], [dict[str, list[float]]() for _ in lengths]
    for length in lengths:
        session = store.session(f"of-{length}")
        for message in make_messages(length):
            session.append(message)
        sessions.append(session)
    for turn in range(40):
        for session, times in zip(sessions, taken, strict=True):
            start = perf_counter()
            fork = session.fork(f"{session.id}-{turn}")
            forked = perf_counter()
            fork.snapshot("here")
            snapped = perf_counter()
            fork.truncate(keep_last=50)
            cut = perf_counter()
            for what, seconds in (
                ("fork", forked - start),
                ("snapshot", snapped - forked),
                ("truncate", cut - snapped),
            ):
                times.setdefault(what, []).append(seconds)
    store.close()
    short, long = ({what: statistics.median(all_) for what, all_ in times.items()} for times in taken)
    return short, long
