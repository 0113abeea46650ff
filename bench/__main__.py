"""`python -m bench`: run the workloads, print the tables, keep a summary and fill in the page.

bench/summary.json is in the repository, and all that the table of the page needs. The samples of each run go to
bench/raw/, which git ignores. A quick run, and one of some workloads, keep nothing but the samples.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console

from bench import workloads
from bench.machine import machine
from bench.measure import Target
from bench.report import show, show_targets
from bench.run_context import ENGINES, RunContext
from bench.summary import dumps, summarise

HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bench", description="backtrail beside its neighbours and the floor, in one run."
    )
    parser.add_argument("--quick", action="store_true", help="a quarter of the steps, one round, some workloads")
    parser.add_argument("--rounds", type=int, help="rounds per workload (3, or 1 in a quick run)")
    parser.add_argument("--only", nargs="+", choices=workloads.NAMES, help="some workloads only")
    parser.add_argument("--size", type=int, default=5000, help="threads of the smaller store of `scale`")
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help="the engine of `scale`")
    parser.add_argument(
        "--dir", type=Path, help="scratch directory, on the disk to be measured (default: a fresh one here)"
    )
    parser.add_argument(
        "--redraw", action="store_true", help="draw the chart and fill in the page again from the figures that are kept"
    )
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.quick else 3)
    if options.redraw:
        _publish()
        return 0
    console = Console(width=None if sys.stdout.isatty() else 160)
    start, load = perf_counter(), os.getloadavg()[0]
    if load > 0.5:
        console.print(
            f"The machine is busy (load {load:.1f} on {os.cpu_count()} cores): figures will be noisier.", style="yellow"
        )
    with tempfile.TemporaryDirectory(prefix=".scratch-", dir=options.dir or HERE) as root:
        raw, targets = run(
            RunContext(Path(root), rounds, options.quick, console, options.size, options.engine),
            options.only or (workloads.QUICK if options.quick else workloads.FULL),
        )
    raw["targets"] = [asdict(target) | {"reached": target.reached} for target in targets]
    raw["machine"] = machine(load) | {"quick": options.quick, "rounds": rounds}
    samples = HERE / "raw" / f"{raw['machine']['time'].replace(':', '')}.json"
    samples.parent.mkdir(exist_ok=True)
    samples.write_text(json.dumps(raw), encoding="utf-8")
    console.print(f"{perf_counter() - start:.0f} seconds; samples: {samples}")
    show_targets(console, targets, options.quick)
    if not options.only and not options.quick:
        kept = HERE / "summary.json"
        kept.write_text(dumps(summarise(raw)) + "\n", encoding="utf-8")
        _publish()
        console.print(f"summary: {kept}")
    return 0


def run(context: RunContext, names: Sequence[str]) -> tuple[dict[str, Any], list[Target]]:
    """All workloads, each shown as soon as it is done."""
    raw, targets, taken = dict[str, Any](), list[Target](), dict[str, float]()
    with context.bars:
        for name in names:
            start = perf_counter()
            outcome = workloads.load(name)(context)
            taken[name] = perf_counter() - start
            show(context.console, outcome)
            raw[name] = outcome.raw
            targets += outcome.targets
    raw["seconds"] = taken
    return raw, targets


def _publish() -> None:
    from bench.publish import CHART, PAGE, publish  # matplotlib is slow to import and only needed here

    publish()
    print(f"chart, page: {CHART}, {PAGE}")


if __name__ == "__main__":
    raise SystemExit(main())
