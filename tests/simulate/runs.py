"""Plays plans: one, or those of many seeds in several processes."""

from __future__ import annotations

import gc
import multiprocessing
import time
import warnings
from collections import Counter
from collections.abc import Iterator

import msgspec

from .checker import Failure
from .plan import Plan, make_plan
from .world import World

_BATCH = 25  # seeds after which a process reports
_BATCHES = 400  # after which another process goes on: something small is left of every seed


def play(plan: Plan) -> list[Failure]:
    """What is wrong after a plan was played."""
    return World(plan).play()


class Chosen(msgspec.Struct, frozen=True):
    """What the command line says about every plan."""

    replication: str | None
    spool: bool | None

    def plan(self, seed: int) -> Plan:
        return make_plan(seed, replication=self.replication, spool=self.spool)


def play_batch(given: tuple[Chosen, range]) -> tuple[int, list[tuple[int, Failure]]]:
    """How many seeds were played, and the first failure of each that failed."""
    chosen, seeds = given
    warnings.simplefilter("ignore", RuntimeWarning)  # coroutines of dead processes are never awaited
    gc.disable()
    found = []
    for seed in seeds:
        failures = play(chosen.plan(seed))
        if failures:
            found.append((seed, failures[0]))
        gc.collect()  # cheapest now: everything of this world is still in the processor's cache …
        gc.freeze()  # … and nothing else is looked at, as what is left now stays for good
    return len(seeds), found


def _results(chosen: Chosen, seeds: range, jobs: int) -> Iterator[tuple[int, list[tuple[int, Failure]]]]:
    batches = [(chosen, seeds[first : first + _BATCH]) for first in range(0, len(seeds), _BATCH)]
    if jobs == 1:
        yield from map(play_batch, batches)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=_BATCHES) as pool:
        yield from pool.imap(play_batch, batches)


def play_seeds(chosen: Chosen, seeds: range, jobs: int, limit: int) -> int:
    """Play many seeds; returns how many failed."""
    begun, played = time.perf_counter(), 0
    failed: list[tuple[int, Failure]] = []
    for count, found in _results(chosen, seeds, jobs):
        played += count
        failed += found
        for seed, failure in found:
            print(f"seed {seed}: {failure}", flush=True)
        if limit and len(failed) >= limit:
            break
    spent = time.perf_counter() - begun
    print(f"{played} seeds in {spent:.0f} s, {played / spent * 60:.0f} a minute: {len(failed)} failed")
    for kind, number in Counter(failure.kind for _, failure in failed).most_common():
        print(f"{number:6}  {kind}")
    return len(failed)
