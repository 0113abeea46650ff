"""Text for a terminal: sizes, ages, and the styles by name."""

from __future__ import annotations

import datetime as dt

from backtrail.render.visible_text import one_line as one_line
from backtrail.render.visible_text import safe as safe
from backtrail.render.visible_text import safe_json as safe_json

STYLES = {
    "step": "bold cyan",
    "id": "dim",
    "age": "dim",
    "label": "bold yellow",
    "tag": "magenta",
    "size": "dim",
    "added": "green",
    "removed": "red",
    "changed": "yellow",
    "user": "bold blue",
    "assistant": "bold green",
    "tool": "magenta",
    "system": "bold yellow",
    "rail": "red",
    "rail.old": "dim",
}


def age(moment: dt.datetime, now: dt.datetime | None = None) -> str:
    """The time since `moment`, in its largest unit."""
    seconds = ((now or dt.datetime.now(dt.UTC)) - moment).total_seconds()
    for unit, length in (("y", 31_557_600), ("mo", 2_629_800), ("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit} ago"
    return "just now" if seconds < 1 else f"{int(seconds)}s ago"


def size(count: int) -> str:
    """A number of bytes with its unit."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError
