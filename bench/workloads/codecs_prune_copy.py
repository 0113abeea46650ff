"""The cost of compression and encryption, the speed of prune and sweep, the speed of a copy."""

from __future__ import annotations

import datetime as dt
import statistics
import threading
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

import backtrail
from bench.measure import Outcome, Target, directory_bytes, quantile
from bench.run_context import ProgressBar, RunContext
from bench.synthetic_messages import Message, make_conversation

KEY = bytes(range(32))
THREADS, CHECKPOINTS, KEPT = 1000, 100, 10
CODECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "zstd": {"compression": "zstd"},
    "sealed": {"key": KEY},
    "zstd, sealed": {"compression": "zstd", "key": KEY},
}
POLICY = backtrail.Retention(keep_last=KEPT, undo_window=dt.timedelta(0))


def run(context: RunContext) -> Outcome:
    columns = ["what", "figure", "beside"]
    rows: list[list[str]] = []
    targets: list[Target] = []
    raw: dict[str, Any] = {}
    for part in (measure_codecs, measure_prune, measure_copy):
        part(context, rows, targets, raw)
    return Outcome("Keeping and forgetting", columns, rows, targets, raw, "SQLite at FULL; medians of rounds")


def _time_appends(
    directory: Path, conversation: list[list[Message]], options: dict[str, Any]
) -> tuple[list[float], int]:
    taken = []
    with backtrail.open(directory / "s.db", **options) as store:
        thread: Any = store.thread("t")
        for new in conversation:
            start = perf_counter()
            thread.append("messages", new)
            taken.append(perf_counter() - start)
    return taken, directory_bytes(directory)


def measure_codecs(context: RunContext, rows: list[list[str]], targets: list[Target], raw: dict[str, Any]) -> None:
    """Append the W1 conversation with each codec; they take turns."""
    conversation = make_conversation(context.steps)
    unique = sum(len(msgspec.msgpack.encode(message)) for new in conversation for message in new)
    medians: dict[str, list[float]] = {name: [] for name in CODECS}
    sizes: dict[str, int] = {}
    with context.progress("codecs", context.rounds * len(CODECS)) as bar:
        for number in range(context.rounds):
            for at, (name, options) in enumerate(CODECS.items()):
                with context.scratch() as scratch:
                    taken, sizes[name] = _time_appends(scratch.new_directory(), conversation, options)
                medians[name].append(statistics.median(taken))
                bar.advance_to(number * len(CODECS) + at + 1)
    best = {name: min(times) for name, times in medians.items()}
    for name in CODECS:
        share, cost = sizes[name] / unique, best[name] / best["plain"]
        rows.append(
            [f"append, {name}", f"{best[name] * 1e3:.3f} ms", f"{cost:.2f} x plain, {share:.2f} x unique bytes"]
        )
    targets += [
        Target("keeping", "append, sealed against plain", best["sealed"] / best["plain"], 1.35),
        Target("keeping", "append, zstd against plain", best["zstd"] / best["plain"], 1.3),
        Target("keeping", "W1 store with zstd against its unique bytes", sizes["zstd"] / unique, 0.42),
    ]
    raw["codecs"] = {"seconds": best, "bytes": sizes, "unique": unique}


def _fill(store: Any, threads: int, bar: ProgressBar) -> None:
    for number in range(threads):
        thread = store.thread(f"t{number:04}")
        for step in range(CHECKPOINTS):
            thread.save({"step": step, "plan": f"step {step} of thread {number}: " + "look, think, act; " * 8})
        bar.advance_to(number + 1)


def measure_prune(context: RunContext, rows: list[list[str]], targets: list[Target], raw: dict[str, Any]) -> None:
    """Prune 1,000 threads x 100 checkpoints to 10 each: alone, then beside a writer."""
    threads = context.scaled(THREADS)
    with context.scratch() as scratch, context.progress("prune", 2 * threads) as bar:
        with backtrail.open(scratch.new_directory() / "s.db", durability="normal") as store:
            _fill(store, threads, bar)
            start = perf_counter()
            report = store.prune(POLICY)
            alone = report.checkpoints / (perf_counter() - start)
        path = scratch.new_directory() / "s.db"
        with backtrail.open(path, durability="normal") as store:
            _fill(store, threads, bar)
        with backtrail.open(path) as store, backtrail.open(path) as other:
            before = _time_writes(store, threading.Event(), 1500)
            done = threading.Event()
            sweeper = threading.Thread(target=lambda: (other.prune(POLICY), done.set()))
            sweeper.start()
            during = _time_writes(store, done, 100_000)
            sweeper.join()
    slower = quantile(during, 0.99) / quantile(before, 0.99)
    rows.append(["prune and sweep", f"{alone:,.0f} checkpoints/s", f"{report.checkpoints:,} of {threads:,} threads"])
    tails = f"{quantile(before, 0.99) * 1e3:.2f} ms before, {quantile(during, 0.99) * 1e3:.2f} ms during"
    rows.append(["a writer's p99 meanwhile", f"{slower:.1f} x", tails])
    targets += [
        Target("keeping", "prune and sweep, checkpoints/s", alone, 20_000, at_least=True, unit="/s"),
        Target("keeping", "a writer's p99 during a prune", slower, 3),
    ]
    raw["pruning"] = {"rate": alone, "before": quantile(before, 0.99), "during": quantile(during, 0.99)}


def _time_writes(store: Any, until: threading.Event, most: int) -> list[float]:
    thread, taken = store.thread("writer"), []
    for number in range(most):
        start = perf_counter()
        thread.append("log", [{"n": number, "text": "something was done " * 20}])
        taken.append(perf_counter() - start)
        if until.is_set():
            break
    return taken


def measure_copy(context: RunContext, rows: list[list[str]], targets: list[Target], raw: dict[str, Any]) -> None:
    """Copy large states from one SQLite file to another."""
    conversation = make_conversation(context.scaled(400), size=40_000)
    with context.scratch() as scratch, context.progress("copy", 1) as bar:
        with backtrail.open(scratch.new_directory() / "a.db", durability="normal") as source:
            thread: Any = source.thread("t")
            for new in conversation:
                thread.append("messages", new)
            target = scratch.new_directory() / "b.db"
            start = perf_counter()
            report = source.copy_to(target)
            rate = report.bytes / (perf_counter() - start) / 1e6
        bar.advance_to(1)
    rows.append(["copy, verified", f"{rate:,.0f} MB/s", f"{report.bytes / 1e6:.1f} MB in {report.rows} rows"])
    targets.append(Target("keeping", "copy, verified", rate, 80, at_least=True, unit="MB/s"))
    raw["copy"] = {"rate": rate, "bytes": report.bytes}
