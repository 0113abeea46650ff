"""The page docs/performance.md: its table is written by the bench, everything else by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.measure import Target

BEGIN, END = "<!-- figures: written by make bench -->", "<!-- end of figures -->"


def write(summary: dict[str, Any], path: Path, more: Sequence[dict[str, Any]] = ()) -> None:
    """Put the figures of a run into the page, and those of the run that needs an environment of its own."""
    text = path.read_text(encoding="utf-8")
    before, found, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise ValueError(f"{path} has no place for figures: {BEGIN} … {END}")
    path.write_text(f"{before}{BEGIN}\n{figures(summary, more)}\n{END}{after}", encoding="utf-8")


def figures(summary: dict[str, Any], more: Sequence[dict[str, Any]] = ()) -> str:
    """Every promise, reached or not, and what it was measured on."""
    machine = summary["machine"]
    told = [*summary["targets"], *more]
    targets = [Target(**{key: value for key, value in one.items() if key != "reached"}) for one in told]
    load = f"{machine['load_before']:.1f} before the run and {machine['load_at_end']:.1f} at its end"
    reached = sum(target.reached for target in targets)
    lines = [
        f"{reached} of {len(targets)} reached on {machine['time'][:10]}; {machine['cores']} cores, load {load}, "
        f"Python {machine['python']}, SQLite {machine['sqlite']}, {machine['rounds']} rounds.",
        "",
        "| | what | asked | measured | reached | |",
        "| --- | --- | ---: | ---: | --- | --- |",
    ]
    for target in targets:
        verdict = "yes" if target.reached else "**no**"
        lines.append(
            f"| {target.workload} | {target.what} | {target.asked} | {target.found} | {verdict} | {target.note} |"
        )
    return "\n".join(lines)
