"""Messages and values for a terminal: roles in colour, tool calls folded to a line, other state as a tree."""

from __future__ import annotations

from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text
from rich.tree import Tree

from backtrail import Outline, Unregistered
from backtrail.cli.formatting import one_line, safe, size
from backtrail.cli.output import PIPE_WIDTH
from backtrail.model import text_of
from backtrail.render.jsonable import short_text
from backtrail.render.message_parser import ParsedMessage

_MAX_ENTRIES = 30
_MAX_DEPTH = 4
_MAX_RESULT_LINES = 3


def render_message(message: ParsedMessage, number: int, *, full: bool) -> RenderableType:
    """One message with its tool calls and results."""
    style = message.role if message.role in ("user", "assistant", "tool", "system") else "bold"
    lines: list[Text] = []
    if message.thinking:
        lines.append(
            Text(safe(message.thinking) if full else "… " + one_line(short_text(message.thinking, 100)), "dim italic")
        )
    if message.text:
        lines.append(Text(safe(message.text)))
    for call in message.calls:
        text = Text().append("▸ ", "tool").append(one_line(call.name), "tool")
        shown = safe(call.arguments) if full else one_line(short_text(call.arguments, 100))
        lines.append(text.append(f"({shown})", "dim"))
    for result in message.results:
        shown = safe(result.text) if full else fold(result.text)
        name = f"{one_line(result.name)} " if result.name else ""
        lines.append(Text().append(f"↳ {name}", "removed" if result.failed else "tool").append(shown, "dim"))
    lines += [Text(safe(extra) if full else one_line(short_text(extra, 120)), "dim") for extra in message.extra]
    header = Text("\n").append(one_line(message.role), style).append(f"  #{number}", "dim")
    return Group(header, *map(indented, lines))


def indented(text: Text) -> RenderableType:
    """Text that stands under a heading."""
    return _Indented(text)


class _Indented:
    """Text indented by two columns. Rich pads wrapped lines on a terminal; a pipe gets no trailing spaces."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width < PIPE_WIDTH:
            yield Padding(self._text, (0, 0, 0, 2), expand=False)
        else:
            yield Text("\n").join(Text("  ").append_text(line) for line in self._text.split("\n", allow_blank=True))


def fold(text: str) -> str:
    """The first lines of a tool's result."""
    lines = safe(text).strip().splitlines()
    shown = "\n".join(entry[:160] for entry in lines[:_MAX_RESULT_LINES])
    return shown if len(lines) <= _MAX_RESULT_LINES else f"{shown}\n… {len(lines) - _MAX_RESULT_LINES} more lines"


def render_value(name: str, value: Any, *, full: bool) -> RenderableType:
    """A named value as a tree, or on one line if it has no parts."""
    root = Tree(Text("\n" + one_line(name), "bold"), guide_style="dim")
    if isinstance(value, Outline):
        for part in value.parts[: None if full else _MAX_ENTRIES]:
            _add_value(root, str(part.name), part.value if part.known else _TooLarge(part.kind, part.size), full, 1)
        _add_more(root, len(value.parts), full)
        if not value.parts:
            root.add(_leaf(value.value, full))
    elif isinstance(value, dict | list | tuple) and value:
        _add_children(root, value, full, 1)
    else:
        return Text("\n").append(one_line(name), "bold").append("  ").append(_leaf(value, full))
    return root


class _TooLarge:
    """A value that an outline leaves out because of its size."""

    def __init__(self, kind: str, size: int) -> None:
        self.kind = kind
        self.size = size


def _add_value(parent: Tree, name: str, value: Any, full: bool, depth: int) -> None:
    if isinstance(value, dict | list | tuple) and value and (full or depth < _MAX_DEPTH):
        _add_children(parent.add(Text(one_line(name), "cyan")), value, full, depth + 1)
    else:
        parent.add(Text().append(one_line(name), "cyan").append("  ").append(_leaf(value, full)))


def _add_children(parent: Tree, value: Any, full: bool, depth: int) -> None:
    entries = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for key, item in entries[: None if full else _MAX_ENTRIES]:
        _add_value(parent, text_of(key), item, full, depth)
    _add_more(parent, len(entries), full)


def _add_more(parent: Tree, count: int, full: bool) -> None:
    if not full and count > _MAX_ENTRIES:
        parent.add(Text(f"… {count - _MAX_ENTRIES:,} more: --full", "dim"))


def _leaf(value: Any, full: bool) -> Text:
    if isinstance(value, _TooLarge):
        return Text(f"{value.kind}, {size(value.size)}", "dim")
    if isinstance(value, Unregistered):
        return Text(f"{one_line(value.type)} ", "tag").append(_leaf(value.value, full))
    if isinstance(value, str):
        return Text(safe(value) if full else one_line(short_text(value, 160)), "green")
    return Text(one_line(short_text(value, 100_000 if full else 160)), "yellow" if value is not None else "dim")
