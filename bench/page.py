"""The page docs/performance.md: its tables are written by the bench, everything else by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.measure import Target

NAMES = {
    ("steps", "save"): "one more step, ms",
    ("steps", "read"): "the newest 20, ms",
    ("steps", "bytes"): "kept in all, MB",
    ("threads", "save"): "one more thread, ms",
    ("threads", "read"): "the newest 20, ms",
    ("threads", "bytes"): "kept in all, MB",
}
CONTENDERS = {
    "append": "backtrail, `append`",
    "save": "backtrail, `save`",
    "history": "backtrail, `history(limit=20)`",
    "label": "backtrail, `find(label=…)`",
    "count": "backtrail, `count()`",
    "sqlite": "SqliteSaver",
    "delta": "DeltaChannel",
    "session": "SQLiteSession",
    "floor": "the floor",
}


def write(path: Path, parts: Mapping[str, str]) -> None:
    """Replace the parts of the page that are between a pair of comments with their names."""
    text = path.read_text(encoding="utf-8")
    for name, part in parts.items():
        begin, end = f"<!-- {name}: written by the bench -->", f"<!-- end of {name} -->"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"{path} has no place for {name}: {begin} … {end}")
        text = f"{before}{begin}\n{part}\n{end}{after}"
    path.write_text(text, encoding="utf-8")


def figures(summary: dict[str, Any], more: Sequence[dict[str, Any]] = ()) -> str:
    """Every promise, reached or not, and what it was measured on; with those of the run that needs an environment of
    its own."""
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


def growth(kept: dict[str, Any]) -> str:
    """The curves of the chart at some of their marks, and the last mark of a contender that ends early."""
    machine, curves = kept["machine"], kept["curves"]
    days = sorted({curve["time"][:10] for curve in curves})
    lines = [
        f"Measured on {' and '.join(days)}; {machine['cores']} cores, Python {machine['python']}, "
        f"SQLite {machine['sqlite']}."
    ]
    for of in ("steps", "threads"):
        mine = [curve for curve in curves if curve["of"] == of]
        last = max(curve["n"][-1] for curve in mine)
        marks = [10**power for power in range(1, 7) if 10**power <= last]
        marks += [last] if last not in marks else []
        lines += ["", f"| {of} | | {' | '.join(f'{mark:,}' for mark in marks)} | |"]
        lines += ["| --- | --- |" + " ---: |" * len(marks) + " --- |"]
        for curve in mine:
            each = dict(zip(curve["n"], curve["values"], strict=True))
            cells = [_cell(curve["what"], each[mark]) if mark in each else "" for mark in marks]
            ended = f"ends at {curve['n'][-1]:,}: {curve['ended']}" if curve["ended"] else ""
            name = CONTENDERS[curve["key"]]
            lines.append(f"| {NAMES[of, curve['what']]} | {name} | {' | '.join(cells)} | {ended} |")
    return "\n".join(lines)


def _cell(what: str, value: float) -> str:
    value = value / 1e6 if what == "bytes" else value
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
