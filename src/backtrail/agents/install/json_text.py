"""Changes a few values of a JSON text, and leaves every other character of it as it is.

Settings files are written by people: they have comments, commas after the last item, and an order and an indentation
that somebody likes. So a text is read with the places of its values, and text is put in or taken out there. Values that
are put in are laid out as the rest of the file is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from backtrail.errors import InvalidInput

_SPACE = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_LITERAL = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null')
_MAX_DEPTH = 200


class Value(msgspec.Struct):
    """One value of the text, from `start` to `end`."""

    start: int
    end: int
    value: Any = None  #: of a literal
    items: list[Item] | None = None  #: of an object or an array
    is_object: bool = False

    def plain(self) -> Any:
        """The value itself."""
        if self.items is None:
            return self.value
        if self.is_object:
            return {item.key: item.value.plain() for item in self.items}
        return [item.value.plain() for item in self.items]

    def get(self, key: str) -> Value | None:
        """The member of an object; None if it has none, or is not an object."""
        return next((item.value for item in self.items or () if self.is_object and item.key == key), None)


class Item(msgspec.Struct):
    """One item of an array, or one member of an object, from its key on."""

    start: int
    key: str | None
    value: Value


def parse(text: str, where: str) -> Value:
    """Read a text; `InvalidInput` says where it is not JSON, comments and commas at the end aside."""
    reader = _Reader(text, where)
    at = reader.skip(0)
    root = reader.value(at, 0)
    if reader.skip(root.end) != len(text):
        reader.fail(reader.skip(root.end))
    return root


class _Reader:
    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where

    def skip(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        return at if found is None else found.end()

    def fail(self, at: int) -> None:
        line = self._text.count("\n", 0, at) + 1
        raise InvalidInput(f"{self._where} is not JSON at line {line}: correct it first; nothing was changed")

    def value(self, at: int, depth: int) -> Value:
        opening = self._text[at : at + 1]
        if opening in ("{", "[") and depth < _MAX_DEPTH:
            return self._container(at, depth, "}" if opening == "{" else "]")
        found = _LITERAL.match(self._text, at)
        if found is None:
            self.fail(at)
        assert found is not None
        try:
            return Value(at, found.end(), json.loads(found[0]))
        except ValueError:
            self.fail(at)
        raise AssertionError

    def _container(self, start: int, depth: int, closing: str) -> Value:
        is_object = closing == "}"
        items: list[Item] = []
        at = self.skip(start + 1)
        while self._text[at : at + 1] != closing:
            key, begin = None, at
            if is_object:
                named = self.value(at, _MAX_DEPTH)
                key = named.value
                at = self.skip(named.end)
                if not isinstance(key, str) or self._text[at : at + 1] != ":" or key in {item.key for item in items}:
                    self.fail(begin)
                at = self.skip(at + 1)
            value = self.value(at, depth + 1)
            items.append(Item(begin, key, value))
            at = self.skip(value.end)
            if self._text[at : at + 1] == ",":
                at = self.skip(at + 1)
            elif self._text[at : at + 1] != closing:
                self.fail(at)
        return Value(start, at + 1, items=items, is_object=is_object)


def add_item(text: str, container: Value, key: str | None, value: Any) -> str:
    """The text with one more item at the end of an array, or one more member of an object."""
    assert container.items is not None
    name = "" if key is None else f"{json.dumps(key)}: "
    indent, step = _layout(text, container)
    if indent is None:
        new = name + json.dumps(value, ensure_ascii=False)
    else:
        new = name + json.dumps(value, ensure_ascii=False, indent=step).replace("\n", f"\n{indent}")
    if not container.items:
        if indent is None:
            return f"{text[: container.start + 1]}{new}{text[container.end - 1 :]}"
        outer = indent.removesuffix(step)
        return f"{text[: container.start + 1]}\n{indent}{new}\n{outer}{text[container.end - 1 :].lstrip()}"
    last = container.items[-1].value.end
    separator = ", " if indent is None else f",\n{indent}"
    rest = text[last:]
    after = _SPACE.match(rest)
    assert after is not None
    if rest[after.end() : after.end() + 1] == ",":  # a comma is there already: the new item goes without one
        comma = last + after.end() + 1
        return f"{text[:comma]}{separator[1:]}{new},{text[comma:]}"
    return f"{text[:last]}{separator}{new}{rest}"


def remove_item(text: str, container: Value, number: int) -> str:
    """The text without one item, and without the comma that stood between it and another."""
    assert container.items is not None
    item = container.items[number]
    if number:
        return text[: container.items[number - 1].value.end] + text[item.value.end :]
    if len(container.items) > 1:
        return text[: item.start] + text[container.items[1].start :]
    end = _SPACE.match(text, item.value.end)
    assert end is not None
    stop = end.end() + (text[end.end()] == ",")
    if "/" in text[container.start + 1 : item.start] + text[stop : container.end - 1]:
        return text[: item.start] + text[stop:]  # there are comments
    return text[: container.start + 1] + text[container.end - 1 :]


def _layout(text: str, container: Value) -> tuple[str | None, str]:
    """The indentation of a container's items, None if they stand on one line, and the step from level to level."""
    step = next(_indentations(text), None)
    if step is None:
        return None, ""
    for item in container.items or ():
        line = text[text.rfind("\n", 0, item.start) + 1 : item.start]
        return (line, step) if not line.strip() else (None, step)
    line = text[text.rfind("\n", 0, container.start) + 1 : container.start]
    return line[: len(line) - len(line.lstrip())] + step, step


def _indentations(text: str) -> Iterator[str]:
    """The indentation of each line that has one, first the smallest unit that the file is likely to use."""
    for line in text.splitlines():
        space = line[: len(line) - len(line.lstrip())]
        if space and line.strip() and not line.lstrip().startswith(("*", "/")):
            yield space
