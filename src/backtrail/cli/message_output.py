"""Messages and values for a terminal: who speaks in colour, tool calls folded to a line, other state as a tree."""

from __future__ import annotations

from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text
from rich.tree import Tree

from backtrail import Outline, Unregistered
from backtrail.cli.output import PIPE, line, safe, size
from backtrail.render.conversation import Message
from backtrail.render.jsonable import brief

_ENTRIES = 30
_DEPTH = 4
_RESULT_LINES = 3


def message(said: Message, index: int, *, full: bool) -> RenderableType:
    """One message with its tool calls."""
    style = said.role if said.role in ("user", "assistant", "tool", "system") else "bold"
    lines: list[Text] = []
    if said.thinking:
        lines.append(Text(safe(said.thinking) if full else "… " + line(brief(said.thinking, 100)), "dim italic"))
    if said.text:
        lines.append(Text(safe(said.text)))
    for call in said.calls:
        text = Text().append("▸ ", "tool").append(line(call.name), "tool")
        shown = safe(call.arguments) if full else line(brief(call.arguments, 100))
        lines.append(text.append(f"({shown})", "dim"))
    for result in said.results:
        shown = safe(result.text) if full else _folded(result.text)
        name = f"{line(result.name)} " if result.name else ""
        lines.append(Text().append(f"↳ {name}", "removed" if result.failed else "tool").append(shown, "dim"))
    lines += [Text(safe(extra) if full else line(brief(extra, 120)), "dim") for extra in said.extra]
    header = Text("\n").append(line(said.role), style).append(f"  {index}", "dim")
    return Group(header, *map(_Indented, lines))


class _Indented:
    """A text two columns to the right: wrapped lines too on a terminal, without a space behind any line in a pipe."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width < PIPE:
            yield Padding(self._text, (0, 0, 0, 2), expand=False)
        else:
            yield Text("\n").join(Text("  ").append_text(line) for line in self._text.split("\n", allow_blank=True))


def _folded(text: str) -> str:
    lines = safe(text).strip().splitlines()
    shown = "\n".join(entry[:160] for entry in lines[:_RESULT_LINES])
    return shown if len(lines) <= _RESULT_LINES else f"{shown}\n… {len(lines) - _RESULT_LINES} more lines"


def tree(name: str, value: Any, *, full: bool) -> RenderableType:
    """A value under its name."""
    root = Tree(Text("\n" + line(name), "bold"), guide_style="dim")
    if isinstance(value, Outline):
        for part in value.parts[: None if full else _ENTRIES]:
            _grow(root, str(part.name), part.value if part.known else _Unread(part.kind, part.size), full, 1)
        _rest(root, len(value.parts), full)
        if not value.parts:
            root.add(_leaf(value.value, full))
    elif isinstance(value, dict | list | tuple) and value:
        _children(root, value, full, 1)
    else:
        return Text("\n").append(line(name), "bold").append("  ").append(_leaf(value, full))
    return root


class _Unread:
    """A value too large to be read for an overview."""

    def __init__(self, kind: str, size: int) -> None:
        self.kind = kind
        self.size = size


def _grow(parent: Tree, name: str, value: Any, full: bool, depth: int) -> None:
    if isinstance(value, dict | list | tuple) and value and (full or depth < _DEPTH):
        _children(parent.add(Text(line(name), "cyan")), value, full, depth + 1)
    else:
        parent.add(Text().append(line(name), "cyan").append("  ").append(_leaf(value, full)))


def _children(parent: Tree, value: Any, full: bool, depth: int) -> None:
    entries = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for key, item in entries[: None if full else _ENTRIES]:
        _grow(parent, str(key), item, full, depth)
    _rest(parent, len(entries), full)


def _rest(parent: Tree, count: int, full: bool) -> None:
    if not full and count > _ENTRIES:
        parent.add(Text(f"… {count - _ENTRIES:,} more: --full", "dim"))


def _leaf(value: Any, full: bool) -> Text:
    if isinstance(value, _Unread):
        return Text(f"{value.kind}, {size(value.size)}", "dim")
    if isinstance(value, Unregistered):
        return Text(f"{line(value.type)} ", "tag").append(_leaf(value.value, full))
    if isinstance(value, str):
        return Text(safe(value) if full else line(brief(value, 160)), "green")
    return Text(line(brief(value, 100_000 if full else 160)), "yellow" if value is not None else "dim")
