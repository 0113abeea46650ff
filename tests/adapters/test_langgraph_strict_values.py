"""Values of LangGraph's databases: harmless types are read as the stock serializer does, others as plain data."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import ipaddress
import json
import pathlib
import uuid
import zoneinfo
from pathlib import Path
from typing import Any

import numpy
import pydantic
import pytest
from langchain_core.documents import Document
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command, Interrupt, Overwrite, Send

from backtrail.adapters.langgraph import BacktrailSaver
from backtrail.adapters.langgraph.migrate import migrate_database
from backtrail.adapters.langgraph.strict_values import StrictValues
from fix_graphs import at


class Plan(pydantic.BaseModel):
    steps: list[str]
    due: dt.date


@dataclasses.dataclass
class Point:
    x: int
    y: Any


class Color(enum.Enum):
    RED = "red"


HARMLESS = [
    None,
    b"bytes",
    bytearray(b"more"),
    {"text": [1, 2.5, True, None, (1, 2), {3: "three"}]},
    {1, 2},
    frozenset({"a"}),
    collections.deque([1, 2]),
    uuid.UUID(int=7),
    decimal.Decimal("1.20"),
    dt.datetime(2024, 5, 1, 12, 30, tzinfo=dt.UTC),
    dt.date(2024, 5, 1),
    dt.time(1, 2, 3, 4, tzinfo=dt.UTC),
    dt.timedelta(days=1, microseconds=5),
    dt.timezone(dt.timedelta(hours=2)),
    zoneinfo.ZoneInfo("Europe/Zurich"),
    pathlib.Path("/a/b"),
    ipaddress.ip_address("10.0.0.1"),
    ipaddress.ip_network("10.0.0.0/8"),
    ipaddress.ip_interface("::1/64"),
    [HumanMessage("a", id="1"), AIMessage("b", tool_calls=[{"name": "f", "args": {"x": 1}, "id": "c"}])],
    ToolMessage("r", tool_call_id="c", artifact={"x": [1]}),
    AIMessageChunk("part"),
    RemoveMessage("1"),
    Document("text", metadata={"k": 1}),
    Send("node", {"x": HumanMessage("y")}),
    Interrupt(value={"ask": 1}, id="i"),
    Command(update={"a": 1}, goto="n"),
    Overwrite([1]),
    _DeltaSnapshot([1, 2]),
]


@pytest.mark.parametrize("value", HARMLESS, ids=lambda value: type(value).__name__)
def test_a_harmless_value_is_what_the_stock_serializer_reads(value: Any) -> None:
    serde = JsonPlusSerializer()
    kind, data = serde.dumps_typed(value)
    typed = (kind, bytes(data))
    values = StrictValues()
    assert values.decode(*typed) == serde.loads_typed(typed)
    assert type(values.decode(*typed)) is type(serde.loads_typed(typed))
    assert not values.made_plain


def test_an_array_of_numbers_is_harmless_and_one_of_objects_is_not_built() -> None:
    array = numpy.arange(6, dtype="<f4").reshape(2, 3)
    rebuilt = StrictValues().decode(*JsonPlusSerializer().dumps_typed(array))
    assert (rebuilt == array).all()
    assert rebuilt.dtype == array.dtype


def test_own_types_are_plain_data_unless_they_are_allowed() -> None:
    value = {"plan": Plan(steps=["a"], due=dt.date(2024, 5, 1)), "at": [Point(1, Point(2, 3))], "color": Color.RED}
    typed = JsonPlusSerializer().dumps_typed(value)
    strict = StrictValues()
    assert strict.decode(*typed) == {
        "plan": {"steps": ["a"], "due": dt.date(2024, 5, 1)},
        "at": [{"x": 1, "y": {"x": 2, "y": 3}}],
        "color": "red",
    }
    assert strict.made_plain == {f"{__name__}.{cls.__name__}" for cls in (Plan, Point, Color)}
    allowing = StrictValues([Plan, Point, Color])
    assert allowing.decode(*typed) == value
    assert not allowing.made_plain


def test_the_json_of_older_versions_is_read() -> None:
    def built(id: list[str], *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {
            "lc": 2,
            "type": "constructor",
            "id": id,
            "method": kwargs.pop("method", None),
            "args": args,
            "kwargs": kwargs,
        }

    stored = {
        "message": dumpd(AIMessage("b", id="1")),
        "id": built(["uuid", "UUID"], uuid.UUID(int=7).hex),
        "when": built(["datetime", "datetime"], "2024-05-01T12:30:00+00:00", method="fromisoformat"),
        "set": built(["builtins", "set"], [1, 2]),
        "bytes": built(["builtins", "bytes"], "00ff", method="fromhex"),
        "path": built(["pathlib", "PosixPath"], "/", "a"),
        "send": built(["langgraph", "constants", "Send"], node="n", arg={"x": 1}),
        "own": built(["app", "Plan"], steps=["a"], method=[None, "construct"]),
    }
    values = StrictValues()
    assert values.decode("json", json.dumps(stored).encode()) == {
        "message": AIMessage("b", id="1"),
        "id": uuid.UUID(int=7),
        "when": dt.datetime(2024, 5, 1, 12, 30, tzinfo=dt.UTC),
        "set": {1, 2},
        "bytes": b"\0\xff",
        "path": pathlib.Path("/a"),
        "send": Send("n", {"x": 1}),
        "own": {"steps": ["a"]},
    }
    assert values.made_plain == {"app.Plan"}


def test_a_migration_keeps_the_types_that_it_is_told(store: Any, tmp_path: Path) -> None:
    file = tmp_path / "langgraph.db"
    channels = {str(number): value for number, value in enumerate([*HARMLESS, Point(1, Color.RED)])}
    checkpoint = {**empty_checkpoint(), "channel_values": channels, "channel_versions": dict.fromkeys(channels, "1")}
    with SqliteSaver.from_conn_string(str(file)) as theirs:
        saved = theirs.put(at("t", checkpoint_ns=""), checkpoint, {"step": 1}, {})  # type: ignore[arg-type]
        theirs.put_writes(saved, list(channels.items()), "task", "path")
        expected = theirs.get_tuple(saved)
    migrate_database("langgraph-sqlite", str(file), store, types=[Point, Color])
    assert BacktrailSaver(store, types=[Point, Color]).get_tuple(saved) == expected
