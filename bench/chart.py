"""The chart of the README: time and bytes against the number of steps and of threads, on log scales.

A line that stays level costs the same however much is there already. Each panel has the labels of its lines at their
ends, moved apart where they would touch; a cross says that a contender could not go on.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

INK, SOFT, GRID, PAPER = "#1f2430", "#5b6472", "#e6e8ec", "#ffffff"
BACKTRAIL, BACKTRAIL_TOO = "#d1451b", "#f08a3c"
FURTHER = 100  #: fewer steps or threads than this still fit into the pages of an empty store
LEAST = 300  #: from the top of a panel to its bottom, so that a line that is nearly level looks so
#: key -> (label, colour, line style, width); the same hand for the same contender in all panels
LOOK: dict[str, tuple[str, str, str, float]] = {
    "append": ("backtrail", BACKTRAIL, "-", 2.8),
    "save": ("backtrail save", BACKTRAIL_TOO, "-", 2.2),
    "history": ("backtrail history", BACKTRAIL_TOO, "-", 2.2),
    "label": ("backtrail find label", BACKTRAIL_TOO, "--", 2.0),
    "count": ("backtrail count()", BACKTRAIL_TOO, "-", 2.2),
    "sqlite": ("SqliteSaver", "#2f5d8c", "-", 1.8),
    "delta": ("+ DeltaChannel", "#3f8f7b", "-", 1.8),
    "session": ("SQLiteSession", "#8262a8", "-", 1.5),
    "floor": ("floor: bare commit", "#9aa1ac", "--", 1.4),
}


class Panel(NamedTuple):
    of: str
    what: str
    title: str
    append: str  #: the name of backtrail's main line here


PANELS = (
    Panel("steps", "save", "save one more step, ms", "backtrail append"),
    Panel("steps", "read", "read the newest 20, ms", "backtrail tail"),
    Panel("steps", "bytes", "bytes for each further step", "backtrail append"),
    Panel("threads", "save", "save one more thread, ms", "backtrail append"),
    Panel("threads", "read", "list the newest 20, ms", "backtrail threads"),
    Panel("threads", "bytes", "bytes for each further thread", "backtrail append"),
)


class Label(NamedTuple):
    """A label at the end of a line."""

    x: float
    y: float
    text: str
    colour: str
    bold: bool


def draw(growth: dict[str, Any], path: Path) -> None:
    """Draw the curves of bench/growth.json."""
    plt.rcParams.update(
        {"font.family": "DejaVu Sans", "font.size": 10, "svg.hashsalt": "backtrail", "axes.unicode_minus": False}
    )
    figure = plt.figure(figsize=(15.6, 9.2), facecolor=PAPER)
    figure.text(0.04, 0.955, "What stays flat while it grows", fontsize=17, fontweight="bold", color=INK)
    told = "Every step is saved, every thread created, on SQLite; a level line costs the same however much there is. "
    figure.text(0.04, 0.927, told + "✕: the line ends, because of its time or its bytes.", fontsize=10.5, color=SOFT)
    for number, panel in enumerate(PANELS):
        row, column = divmod(number, 3)
        axes = figure.add_axes((0.04 + 0.323 * column, 0.525 - 0.463 * row, 0.185, 0.3))
        curves = [one for one in growth["curves"] if (one["of"], one["what"]) == (panel.of, panel.what)]
        draw_panel(axes, panel, curves)
    for of, height in (("One thread of n steps", 0.877), ("One store of n threads", 0.414)):
        figure.text(0.04, height, of, fontsize=12, fontweight="bold", color=INK)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)


def draw_panel(axes: Axes, panel: Panel, curves: Sequence[dict[str, Any]]) -> None:
    labels = []
    for curve in curves:
        name, colour, style, width = LOOK[curve["key"]]
        name = panel.append if curve["key"] == "append" else name
        n, values = further(curve) if panel.what == "bytes" else (curve["n"], curve["values"])
        mine = colour in (BACKTRAIL, BACKTRAIL_TOO)
        axes.plot(n, values, style, color=colour, linewidth=width, zorder=5 if mine else 3, solid_capstyle="round")
        text = f"{name}  {shown(panel.what, values[-1])}"
        if curve["ended"]:
            axes.plot(n[-1:], values[-1:], "X", color=colour, markersize=7, zorder=6, markeredgewidth=0)
            text += f"\n✕ at {n[-1]:,}: {curve['ended']}"
        labels.append(Label(n[-1], values[-1], text, colour, mine))
    finish(axes, panel, labels)


def further(curve: dict[str, Any]) -> tuple[list[int], list[float]]:
    """The bytes that each step or thread added between two marks: without those of an empty store."""
    marks = list(zip(curve["n"], curve["values"], strict=True))
    added = [(n, (size - less) / (n - before)) for (before, less), (n, size) in pairwise(marks) if n >= FURTHER]
    return [n for n, _ in added], [size for _, size in added]


def finish(axes: Axes, panel: Panel, labels: list[Label]) -> None:
    """Scales, grid, and the labels."""
    first, last = (10, 300_000) if panel.of == "steps" else (1, 1_000_000)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(first, last)
    low, high = axes.get_ylim()
    axes.set_ylim(low, max(high, LEAST * low))
    axes.set_facecolor(PAPER)
    axes.grid(True, axis="both", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.tick_params(which="both", colors=SOFT, length=0, labelsize=9)
    axes.yaxis.set_major_locator(LogLocator(10))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    ticks = [10**power for power in range(7) if first <= 10**power <= last]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(panel.of, color=SOFT, fontsize=9)
    axes.set_title(panel.title, loc="left", fontsize=10.5, color=INK, pad=9)
    to_axes = axes.transData + axes.transAxes.inverted()
    places = [(tuple(map(float, to_axes.transform((one.x, one.y)))), one) for one in labels]
    places.sort(key=lambda pair: pair[0][1])
    heights = apart([at[1] for at, _ in places], [0.052 * (1 + one.text.count("\n")) + 0.014 for _, one in places])
    for (at, one), height in zip(places, heights, strict=True):
        axes.annotate(
            one.text, at, xytext=(1.06, height), xycoords="axes fraction", textcoords="axes fraction",
            va="center", fontsize=9, color=one.colour, fontweight="bold" if one.bold else "normal",
            annotation_clip=False, linespacing=1.25,
            arrowprops={
                "arrowstyle": "-", "color": one.colour, "lw": 0.7, "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 0,
                "linestyle": "-" if at[0] > 0.97 else ":",
            },
        )  # fmt: skip


def apart(places: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Heights of labels of these sizes that do not touch, each as near to its place as the others allow."""
    groups: list[list[int]] = []  # each holds labels that touch; they sit around the mean of their places
    for number in range(len(places)):
        groups.append([number])
        while len(groups) > 1 and _span(groups[-1], places, sizes)[0] < _span(groups[-2], places, sizes)[1] - 1e-9:
            groups[-2:] = [groups[-2] + groups[-1]]
    heights = []
    for group in groups:
        bottom = _span(group, places, sizes)[0]
        for number in group:
            heights.append(bottom + sizes[number] / 2)
            bottom += sizes[number]
    return heights


def _span(group: Sequence[int], places: Sequence[float], sizes: Sequence[float]) -> tuple[float, float]:
    """Bottom and top of labels that stand on each other, around the mean of their places."""
    middle, size = statistics.mean(places[number] for number in group), sum(sizes[number] for number in group)
    return middle - size / 2, middle + size / 2


def shown(what: str, value: float) -> str:
    if what == "bytes":
        return f"{value:,.0f}" if value < 10_000 else f"{short(value)}"
    return f"{value:,.0f}" if value >= 10 else f"{value:.2f}"


def short(value: float) -> str:
    """1,000 as 1k, 1,000,000 as 1M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.0f}"
