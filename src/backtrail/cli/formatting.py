"""Text for a terminal: sizes, ages, stored text without control characters, and the styles by name."""

from __future__ import annotations

import datetime as dt

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
_CONTROL = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"}
# Characters that reverse the direction of text could make a name look like another.
_CONTROL |= dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\N{REPLACEMENT CHARACTER}")
_CONTROL |= dict.fromkeys(range(0x7F, 0xA0), "\N{SYMBOL FOR DELETE}")
# Bytes of a file name that are not UTF-8: no terminal can be sent them as text.
_CONTROL |= dict.fromkeys(range(0xDC80, 0xDD00), "\N{REPLACEMENT CHARACTER}")


def safe(text: str) -> str:
    """Replace control characters by visible symbols: stored text must not steer the terminal."""
    return text.translate(_CONTROL)


def one_line(text: str) -> str:
    """`safe` text on one line."""
    return " ".join(safe(text).split())


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
