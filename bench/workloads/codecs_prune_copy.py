"""The cost of compression and encryption, the speed of prune and sweep, the speed of a copy."""

from __future__ import annotations

import datetime as dt
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
        filled = scratch.new_directory() / "s.db"
        with backtrail.open(filled, durability="normal") as store:
            _fill(store, threads, bar)
        beside = {}
        for where, prune in ("a thread", _prune_here), ("another process", _prune_elsewhere):
            path = scratch.new_directory() / "s.db"
            shutil.copy(filled, path)
            beside[where] = _time_beside(path, prune)
    rows.append(["prune and sweep", f"{alone:,.0f} checkpoints/s", f"{report.checkpoints:,} of {threads:,} threads"])
    slower = {where: during / before for where, (before, during) in beside.items()}
    for where, (before, during) in beside.items():
        tails = f"{before * 1e3:.2f} ms before, {during * 1e3:.2f} ms during"
        rows.append([f"a writer's p99 while {where} prunes", f"{slower[where]:.1f} x", tails])
    targets += [
        Target("keeping", "prune and sweep, checkpoints/s", alone, 20_000, at_least=True, unit="/s"),
        Target("keeping", "a writer's p99 during a prune", slower["a thread"], 3),
        Target("keeping", "the same, if another process prunes", slower["another process"], 3),
    ]
    raw["pruning"] = {"rate": alone, "before and during": beside}


def _prune_here(path: Path) -> None:
    with backtrail.open(path) as store:
        store.prune(POLICY)


def _prune_elsewhere(path: Path) -> None:
    command = f"from pathlib import Path; from {__name__} import _prune_here; _prune_here(Path({str(path)!r}))"
    subprocess.run([sys.executable, "-c", command], check=True)


def _time_beside(path: Path, prune: Callable[[Path], None]) -> tuple[float, float]:
    """The p99 of a writer's saves before a prune and beside it."""
    with backtrail.open(path) as store:
        before = _time_writes(store, lambda: False, 1500)
        with ThreadPoolExecutor(1) as pool:
            sweep = pool.submit(prune, path)
            during = _time_writes(store, sweep.done, 100_000)
            sweep.result()
    return quantile(before, 0.99), quantile(during, 0.99)


def _time_writes(store: Any, until: Callable[[], bool], most: int) -> list[float]:
    thread, taken = store.thread("writer"), []
    for number in range(most):
        start = perf_counter()
        thread.append("log", [{"n": number, "text": "something was done " * 20}])
        taken.append(perf_counter() - start)
        if until():
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
