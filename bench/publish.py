"""The chart and the tables of the docs, made again from the figures that are kept in the repository."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench import page
from bench.chart import draw

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
CHART, PAGE = DOCS / "bench.svg", DOCS / "performance.md"


def kept(name: str) -> dict[str, Any]:
    """The figures of one program: `summary` of `make bench`, `adapters` and `growth` of theirs."""
    found: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    return found


def publish() -> None:
    """Draw the chart and fill in the page."""
    growth = kept("growth")
    draw(growth, CHART)
    figures = page.figures(kept("summary"), kept("adapters")["targets"])
    page.write(PAGE, {"figures": figures, "growth": page.growth(growth)})
