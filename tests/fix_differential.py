"""Comparing what a program gets from a framework's own store with what it gets from backtrail's.

A program is an async function that takes a kit, uses the framework as its users do, and returns everything it has seen.
The kit makes the stores: one kit makes the framework's own, another backtrail's on one engine and API. Both runs must
give the same: same types, same values, same errors. Only what no two runs have in common is made comparable first:
random ids become `<id 1>`, `<id 2>`, … in the order in which they are seen, and times become `<time>`.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Awaitable, Callable
from typing import Any

_RANDOM_ID = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?"
)


class Comparable:
    """Turns results into plain data that is equal exactly if the results are, apart from ids and times."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}

    def __call__(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | bytes):
            return value
        if isinstance(value, enum.Enum):
            return type(value).__name__, value.name
        if isinstance(value, str):
            return _RANDOM_ID.sub(self._id, value)
        if isinstance(value, int | float):
            recent = 1.7e9 < value < 2.5e9 or 1.7e12 < value < 2.5e12  # seconds or milliseconds since 1970
            return "<time>" if recent else (type(value).__name__, repr(value))
        if isinstance(value, BaseException):
            return type(value).__name__
        if hasattr(value, "model_dump"):
            value = value.model_dump()
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if isinstance(value, dict):
            return {self(key): self(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [type(value).__name__, *map(self, value)]
        if isinstance(value, set | frozenset):
            return [type(value).__name__, *sorted(map(repr, map(self, value)))]
        return type(value).__name__, str(value)

    def _id(self, found: re.Match[str]) -> str:
        if "T" in found[0]:
            return "<time>"
        return self._ids.setdefault(found[0], f"<id {len(self._ids) + 1}>")


async def outcome(awaitable: Awaitable[Any]) -> Any:
    """The result of a call, or its error, for a program to return."""
    try:
        return await awaitable
    except Exception as error:  # noqa: BLE001 - the error is the result
        return error


async def assert_same_results(program: Callable[[Any], Awaitable[Any]], stock: Any, ours: Any) -> None:
    """Run a program with both kits and compare what it has seen."""
    expected = Comparable()(await program(stock))
    assert Comparable()(await program(ours)) == expected
