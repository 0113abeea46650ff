"""The chart of the README: save time against step, and bytes on disk against step, both on a log scale."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

INK, SOFT, GRID, PAPER = "#1f2430", "#5b6472", "#e6e8ec", "#ffffff"
#: key -> (label, colour, line style, width); the same hand for the same contender in both panels
LOOK: dict[str, tuple[str, str, str, float]] = {
    "json": ("JSON file, rewritten", "#8a6d3b", "-", 1.4),
    "sqlite": ("LangGraph SqliteSaver", "#2f5d8c", "-", 1.8),
    "async": ("LangGraph AsyncSqliteSaver", "#7fa3c7", "-", 1.4),
    "memory": ("LangGraph InMemorySaver, RAM", "#7fa3c7", ":", 1.6),
    "delta": ("LangGraph + DeltaChannel", "#3f8f7b", "-", 1.8),
    "session": ("OpenAI Agents SQLiteSession", "#8262a8", "-", 1.4),
    "jsonl": ("JSONL append, fsync", "#b08d57", "--", 1.3),
    "save": ("backtrail save, whole state", "#d1451b", "-", 2.6),
    "append": ("backtrail append", "#f08a3c", "-", 2.6),
    "floor": ("floor: bare SQLite commit", "#9aa1ac", "--", 1.4),
    "backtrail": ("backtrail", "#d1451b", "-", 2.6),
    "backtrail zstd": ("backtrail, zstd", "#f08a3c", "-", 2.6),
}


def draw(summary: dict[str, Any], path: Path) -> None:
    """Draw from the summary of a run: its parts `w1` and `disk`."""
    plt.rcParams.update(
        {"font.family": "DejaVu Sans", "font.size": 10, "svg.hashsalt": "backtrail", "axes.unicode_minus": False}
    )
    figure = plt.figure(figsize=(13.6, 5.6), facecolor=PAPER)
    steps = max(int(step) for step in summary["disk"]["bytes"]["floor"])
    times(figure.add_axes((0.04, 0.105, 0.29, 0.7)), summary["w1"]["full"], steps)
    sizes(figure.add_axes((0.575, 0.105, 0.205, 0.7)), summary["disk"], steps)
    figure.text(0.04, 0.94, "What one more step costs", fontsize=16, fontweight="bold", color=INK)
    unique = summary["disk"]["unique"] / 1e6
    told = (
        f"One conversation of {steps:,} steps, 2.3 KB a step, {unique:.1f} MB in the end; save times at full durability"
    )
    figure.text(0.04, 0.895, told, fontsize=10, color=SOFT)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)


def times(axes: Axes, found: dict[str, Any], last: int) -> None:
    ends = []
    for key in ("json", "sqlite", "async", "memory", "session", "delta", "jsonl", "save", "append", "floor"):
        lane = found[key]
        ends.append(line(axes, key, lane["steps"], lane["ms"], milliseconds(lane["last_tenth_ms"])))
    spikes, hue = found["delta"]["snapshots"], LOOK["delta"][1]
    axes.scatter([s for s, _ in spikes], [ms for _, ms in spikes], s=13, color=hue, zorder=4, linewidth=0)
    step, top = spikes[-1]
    where = (0.985 * step, top * 0.42)  # below the lines of those who write everything each time
    axes.annotate("• DeltaChannel's snapshots", where, color=hue, fontsize=8.5, ha="right", va="top")
    finish(axes, "save time, milliseconds", ends, last)


def sizes(axes: Axes, disk: dict[str, Any], last: int) -> None:
    ends = []
    for key in ("sqlite", "memory", "delta", "session", "json", "floor", "backtrail", "backtrail zstd"):
        marks = sorted((int(step), size / 1e6) for step, size in disk["bytes"][key].items())
        ends.append(line(axes, key, [s for s, _ in marks], [m for _, m in marks], megabytes(marks[-1][1])))
    finish(axes, "bytes kept, megabytes", ends, last)


def line(axes: Axes, key: str, x: Sequence[float], y: Sequence[float], figure: str) -> tuple[float, str, str, bool]:
    """Draw one contender; gives back the height, text, colour and weight of the label at its end."""
    label, colour, style, width = LOOK[key]
    bold = key in ("save", "append", "backtrail", "backtrail zstd")
    axes.plot(x, y, style, color=colour, linewidth=width, zorder=5 if bold else 3, solid_capstyle="round")
    return y[-1], f"{label}  {figure}", colour, bold


def finish(axes: Axes, title: str, ends: list[tuple[float, str, str, bool]], last: int) -> None:
    """Scale, grid, and a label at the end of each line, moved apart where they would touch."""
    axes.set_yscale("log")
    axes.set_xlim(0, last * 1.01)
    axes.set_facecolor(PAPER)
    axes.grid(True, axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    axes.tick_params(which="both", colors=SOFT, length=0, labelsize=9)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("step", color=SOFT, fontsize=9)
    axes.set_title(title, loc="left", fontsize=10.5, color=INK, pad=9)
    to_axes = axes.transData + axes.transAxes.inverted()
    places = sorted((float(to_axes.transform((1, end))[1]), label, colour, bold) for end, label, colour, bold in ends)
    for (place, label, colour, bold), height in zip(places, apart([place for place, *_ in places], 0.056), strict=True):
        axes.annotate(
            label, (1.0, place), xytext=(1.05, height), xycoords="axes fraction", textcoords="axes fraction",
            va="center", fontsize=9, color=colour, fontweight="bold" if bold else "normal", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.7, "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 0},
        )  # fmt: skip


def apart(places: Sequence[float], gap: float) -> list[float]:
    """Heights at least `gap` apart, each as near to its place as the others allow."""
    groups: list[list[float]] = []  # each holds the places of labels that touch; they sit around the group's mean
    for place in places:
        groups.append([place])
        while len(groups) > 1:
            low, high = groups[-2], groups[-1]
            top = statistics.mean(low) + gap * (len(low) - 1) / 2
            bottom = statistics.mean(high) - gap * (len(high) - 1) / 2
            if bottom - top >= gap - 1e-9:
                break
            groups[-2:] = [low + high]
    return [statistics.mean(group) + gap * (i - (len(group) - 1) / 2) for group in groups for i in range(len(group))]


def milliseconds(value: float) -> str:
    return f"{value:.0f} ms" if value >= 10 else f"{value:.2f} ms"


def megabytes(value: float) -> str:
    return f"{value / 1000:.2f} GB" if value >= 1000 else f"{value:.1f} MB"
