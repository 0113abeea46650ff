"""What should not grow: calls on a store of n and of 10 n threads, on a thread of n and of 10 n steps, and on one with
forks. The table has the ratio of the two times: 1 is flat, 10 is linear.

Not part of a full run: `make bench ARGS='--only scale --size 100000'` (the default is 5,000: with fewer threads, most
are still unsorted in SQLite, and a page of the newest reads them all). `--engine postgres`, `redis` or `jsonl` measures
another engine.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

import backtrail
import backtrail.aio
from bench.measure import Outcome, Target
from bench.run_context import RunContext
from bench.workloads.store_urls import store_urls

AT_ONCE = 500  #: saves that share a commit, while a store is filled
FLAT = 2.0  #: a ratio up to this counts as flat: the rest is depth of trees and noise
Call = Callable[[backtrail.Store], object]

THREADS: dict[str, Call] = {
    "threads(newest_first=True, limit=200)": lambda store: store.threads(newest_first=True, limit=200),
    "its page in the middle": lambda store: store.threads(newest_first=True, limit=200, after="t0000500"),
    "threads(kind=…, limit=10)": lambda store: store.threads(kind="session", limit=10),
    "sessions(limit=10)": lambda store: store.sessions(limit=10),
    "count()": lambda store: store.count(),
    "stats(survey=False)": lambda store: store.stats(survey=False),
}
STEPS: dict[str, Call] = {
    "history(limit=20)": lambda store: store.thread("long").history(limit=20),
    "history(limit=20, all=True)": lambda store: store.thread("long").history(limit=20, all=True),
    "a step in the middle": lambda store: store.thread("long").get(store.thread("long").step // 2),
    "tail(20)": lambda store: store.thread("long").tail("items", 20),
    "find(label=…)": lambda store: store.thread("long").find(label="middle"),
    "forks(limit=20)": lambda store: store.thread("long").forks(limit=20),
}
WHOLE: dict[str, Call] = {  # these read everything: at most in proportion
    "forks() of a thread with n/100 forks": lambda store: store.thread("long").forks(),
    "find(tag=…)": lambda store: store.thread("long").find(tag="none"),
    "stats()": lambda store: store.stats(),
    "prune(keep_last=2, dry_run=True)": lambda store: store.prune(backtrail.Retention(keep_last=2), dry_run=True),
    "verify()": lambda store: store.verify(),
}


async def fill(url: str, size: int, advance: Callable[[], None]) -> None:
    """`size` threads, every tenth a session; a thread of `size` steps; a hundredth as many forks of it."""
    async with await backtrail.aio.open(url) as store:
        for first in range(0, size, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, size))
            await asyncio.gather(*(_save(store, number) for number in numbers))
            advance()
        long = store.thread("long")
        for number in range(size):
            await long.append("items", [number], label="middle" if number == size // 2 else None)
            if number % AT_ONCE == 0:
                advance()
        for number in range(size // 100):
            await long.fork(f"fork-{number}", at=number + 1)


async def _save(store: backtrail.aio.AsyncStore, number: int) -> None:
    name = f"t{number:07}"
    if number % 10 == 0:
        await store.session(name).append({"role": "user", "content": f"hello {number}"})
    else:
        await store.thread(name).save({"n": number})


def measure(url: str, rounds: int) -> dict[str, float]:
    """The median of each call's time, in a store that has just been opened."""
    found: dict[str, float] = {}
    with backtrail.open(url) as store:
        for name, call in (THREADS | STEPS | WHOLE).items():
            times = []
            for _ in range(1 if name in WHOLE else 3 * rounds):
                start = perf_counter()
                call(store)
                times.append(perf_counter() - start)
            found[name] = statistics.median(times)
    return found


def run(context: RunContext) -> Outcome:
    sizes = (context.size, 10 * context.size)
    taken: list[dict[str, float]] = []
    with (
        context.progress("scale", sum(2 * -(-size // AT_ONCE) for size in sizes)) as bar,
        store_urls(context) as new_url,
    ):
        for size in sizes:
            url = new_url()
            asyncio.run(fill(url, size, bar.advance))
            taken.append(measure(url, context.rounds))
    small, large = taken
    ratios = {name: large[name] / small[name] for name in small}
    rows = [
        [name, f"{small[name] * 1e3:,.2f}", f"{large[name] * 1e3:,.2f}", f"{ratio:.1f}"]
        for name, ratio in ratios.items()
    ]
    flat = max(ratios[name] for name in THREADS | STEPS)
    whole = max(ratios[name] for name in WHOLE)
    targets = [
        Target("scale", "ten times the store: a page or a count, times its time", flat, FLAT),
        Target("scale", "ten times the store: what reads all of it, times its time", whole, 15),
    ]
    raw: dict[str, Any] = {"sizes": sizes, "seconds": taken, "ratios": ratios}
    columns = ["call", f"ms at {sizes[0]:,}", f"ms at {sizes[1]:,}", "ratio"]
    note = f"{context.engine}: {sizes[0]:,} and {sizes[1]:,} threads, and a thread of as many steps"
    return Outcome("Scale: what should not grow", columns, rows, targets, raw, note)
