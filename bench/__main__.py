"""`python -m bench`: run the workloads, print the tables, keep a summary, draw the chart and fill in the page.

bench/summary.json is in the repository, and all that the chart and the page need. The samples of each run go to
bench/raw/, which git ignores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

from rich.console import Console

from bench import page, workloads
from bench.measure import Target
from bench.report import show, show_targets
from bench.run_context import ENGINES, RunContext
from bench.summary import dumps, summarise

HERE = Path(__file__).parent
PEERS = (
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "openai-agents",
    "msgspec",
    "zstandard",
    "backtrail",
)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bench", description="backtrail beside its neighbours and the floor, in one run."
    )
    parser.add_argument("--quick", action="store_true", help="400 steps instead of 1,600, other counts a quarter")
    parser.add_argument("--rounds", type=int, default=3, help="rounds per workload (default 3)")
    parser.add_argument("--only", nargs="+", choices=workloads.NAMES, help="some workloads only; no files are written")
    parser.add_argument("--size", type=int, default=5000, help="threads of the smaller store of `scale`")
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0], help="the engine of `scale`")
    parser.add_argument(
        "--dir", type=Path, help="scratch directory, on the disk to be measured (default: a fresh one here)"
    )
    parser.add_argument(
        "--redraw", action="store_true", help="draw the chart and fill in the page again from bench/summary.json"
    )
    options = parser.parse_args()
    kept, docs = HERE / "summary.json", HERE.parent / "docs"
    if options.redraw:
        publish(json.loads(kept.read_text(encoding="utf-8")), docs)
        return 0
    console = Console(width=None if sys.stdout.isatty() else 160)
    start, load = perf_counter(), os.getloadavg()[0]
    if load > 0.5:
        console.print(
            f"The machine is busy (load {load:.1f} on {os.cpu_count()} cores): figures will be noisier.", style="yellow"
        )
    with tempfile.TemporaryDirectory(prefix=".scratch-", dir=options.dir or HERE) as root:
        raw, targets = run(
            RunContext(Path(root), options.rounds, options.quick, console, options.size, options.engine),
            options.only or workloads.FULL,
        )
    show_targets(console, targets, options.quick)
    console.print(f"{perf_counter() - start:.0f} seconds")
    if not options.only:
        raw["targets"] = [asdict(target) | {"reached": target.reached} for target in targets]
        raw["machine"] = machine(options.quick, options.rounds, load)
        samples = HERE / "raw" / f"{raw['machine']['time'].replace(':', '')}.json"
        samples.parent.mkdir(exist_ok=True)
        samples.write_text(json.dumps(raw), encoding="utf-8")
        summary = summarise(raw)
        kept.write_text(dumps(summary) + "\n", encoding="utf-8")
        publish(summary, docs)
        console.print(
            f"samples: {samples}\nsummary: {kept}\nchart, page: {docs / 'bench.svg'}, {docs / 'performance.md'}"
        )
    return 0


def run(context: RunContext, names: Sequence[str]) -> tuple[dict[str, Any], list[Target]]:
    """All workloads, each shown as soon as it is done."""
    raw, targets = dict[str, Any](), list[Target]()
    with context.bars:
        for name in names:
            outcome = workloads.load(name)(context)
            show(context.console, outcome)
            raw[name] = outcome.raw
            targets += outcome.targets
    return raw, targets


def machine(quick: bool, rounds: int, load: float) -> dict[str, Any]:
    """The machine and the versions; with the load of others before and at the end, because it is in the figures."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load_before": round(load, 2),
        "load_at_end": round(os.getloadavg()[0], 2),
        "sqlite": sqlite3.sqlite_version,
        "quick": quick,
        "rounds": rounds,
        "versions": {name: version(name) for name in PEERS},
    }


def publish(summary: dict[str, Any], docs: Path) -> None:
    """Draw the chart and fill in the page."""
    from bench.chart import draw  # matplotlib is slow to import and only needed here

    draw(summary, docs / "bench.svg")
    frames = HERE / "adapters.json"  # of `make bench-adapters`
    page.write(summary, docs / "performance.md", json.loads(frames.read_text())["targets"] if frames.exists() else ())


if __name__ == "__main__":
    raise SystemExit(main())
