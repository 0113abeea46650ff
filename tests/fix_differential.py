"""Comparing what a program gets from a framework's own store with what it gets from backtrail's.

A program is an async function that takes a kit, uses the framework as its users do, and returns everything it has seen.
The kit makes the stores: one kit makes the framework's own, another backtrail's on one engine and API. Both runs must
give the same: same types, same values, same errors. Only what no two runs have in common is made comparable first:
random ids become `<id 1>`, `<id 2>`, … in the order in which they are seen, and times of today become `<time>`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
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
            recent = _is_recent(value) or _is_recent(value / 1000)  # seconds or milliseconds since 1970
            return "<time>" if recent else (type(value).__name__, repr(value))
        if isinstance(value, dt.datetime):
            return "<time>" if _is_recent(value.timestamp()) else ("datetime", value.isoformat())
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
            return "<time>" if _is_recent(dt.datetime.fromisoformat(found[0]).timestamp()) else found[0]
        return self._ids.setdefault(found[0], f"<id {len(self._ids) + 1}>")


def _is_recent(seconds: float) -> bool:
    return abs(time.time() - seconds) < 86400


async def outcome(awaitable: Awaitable[Any]) -> Any:
    """The result of a call, or its error, for a program to return."""
    try:
        return await awaitable
    except Exception as error:  # noqa: BLE001 - the error is the result
        return error


_expected: dict[Any, Any] = {}  # by program: the framework's own store is asked once


async def assert_same_results(
    program: Callable[[Any], Awaitable[Any]], stock: Callable[[], AbstractAsyncContextManager[Any]], ours: Any
) -> None:
    """Run a program with both kits and compare what it has seen."""
    if program not in _expected:
        async with stock() as kit:
            _expected[program] = Comparable()(await program(kit))
    found = _first_difference(_expected[program], Comparable()(await program(ours)), "result")
    assert found is None, found


def _first_difference(stock: Any, ours: Any, path: str) -> str | None:
    """Where two results differ, and how."""
    if type(stock) is type(ours) is dict and stock.keys() == ours.keys():
        pairs = [(stock[key], ours[key], f"{path}[{key!r}]") for key in stock]
    elif type(stock) is type(ours) and isinstance(stock, list | tuple) and len(stock) == len(ours):
        pairs = [(one, other, f"{path}[{at}]") for at, (one, other) in enumerate(zip(stock, ours, strict=True))]
    else:
        return None if stock == ours else f"{path}: the framework's store gives\n{stock!r}\nand backtrail's\n{ours!r}"
    return next((found for pair in pairs if (found := _first_difference(*pair)) is not None), None)
