"""The questions that wait for an answer, listed: few among many runs, on each engine."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import backtrail
from backtrail.testing.servers import PostgresServer, RedisServer, private_directory
from bench.measure import Outcome, Target, median_seconds
from bench.run_context import RunContext

RUNS, PENDING = 100_000, 1_000
MAX_MS = 20.0


def run(context: RunContext) -> Outcome:
    rows: list[list[str]] = []
    targets: list[Target] = []
    raw: dict[str, Any] = {}
    runs, waiting = context.scaled(RUNS), context.scaled(PENDING)
    with private_directory() as directory, contextlib.ExitStack() as stack, context.scratch() as scratch:
        postgres = PostgresServer(directory / "postgres", "-c", "fsync=off")  # filled quickly, and then only read
        redis = RedisServer(directory / "redis", "--appendonly", "no")
        for server in (postgres, redis):
            server.start()
            stack.callback(server.kill)
        urls = {
            "SQLite": f"sqlite:{scratch.new_directory() / 'store'}?durability=normal",
            "JSONL": f"jsonl:{scratch.new_directory() / 'store'}?durability=normal",
            "PostgreSQL": f"{postgres.url}?schema=pending",
            "Redis": f"{redis.url}?prefix=pending",
        }
        for name, url in urls.items():
            with backtrail.open(url) as store:
                _fill(context, store, name, runs, runs // waiting)
                assert len(store.pending()) == waiting
                seconds = median_seconds(store.pending, 3 + 2 * context.rounds)
            what = f"{waiting:,} of {runs:,} runs wait: `pending()`"
            rows.append([what, f"backtrail, {name}", f"{seconds * 1e3:.1f}"])
            targets.append(Target("pending", f"{what}, {name}", seconds * 1e3, MAX_MS, unit="ms"))
            raw[name] = seconds * 1e3
    return Outcome("Questions that wait", ["what", "contender", "ms"], rows, targets, raw)


def _fill(context: RunContext, store: backtrail.Store, name: str, runs: int, every: int) -> None:
    def begin(number: int) -> None:
        _begin(store, number, number % every == 0)

    with context.progress(f"runs on {name}", runs) as bar, ThreadPoolExecutor(8) as threads:
        for first in range(0, runs, 1000):
            list(threads.map(begin, range(first, first + 1000)))
            bar.advance_to(first + 1000)


def _begin(store: backtrail.Store, number: int, asks: bool) -> None:
    if not asks:
        store.submit("t", number, id=f"run-{number:06d}")
        return
    with contextlib.suppress(backtrail.Suspended), store.run(f"run-{number:06d}", task="t") as run:
        run.ask("pay?", "Pay this bill?", schema=bool, about={"tool": "pay", "amount": number})
