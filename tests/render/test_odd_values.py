"""Whatever can be saved can be shown: every view of a state takes every value that a save accepted."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail import InvalidInput, Unregistered
from backtrail.render.change_summary import summarize
from backtrail.render.checkpoint_export import MEDIA_TYPES, export_checkpoint
from backtrail.render.json_records import change_json, checkpoint_json
from backtrail.render.jsonable import from_json, json_bytes, short_text, to_json
from backtrail.render.message_parser import parse_message

LONG = 10**6000  # Python does not write so long a number in decimal
VALUES: list[Any] = [
    LONG,
    -LONG,
    {LONG: 1},
    {1, LONG},
    (LONG, {"a": [LONG]}),
    Unregistered("some.Type", {"a": LONG}),
    dt.timedelta.max,
    dt.timedelta.min,
    dt.datetime.max,
    dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=14))),
    decimal.Decimal("sNaN"),
    decimal.Decimal("1e999999"),
    float("nan"),
    "half of a pair \ud800",
    {"half of a pair \ud800": 1},
    {"role": LONG, "content": [{"type": LONG, "text": LONG}]},
    {"role": "assistant", "tool_calls": 5},
    {"role": "assistant", "tool_calls": [5, {"function": {"name": LONG, "arguments": {LONG: 1}}}, {"function": 5}]},
    {"role": "tool", "name": LONG, "content": {LONG: 2}},
    {"type": "function_call", "call_id": LONG, "name": LONG, "arguments": LONG},
    {"kind": LONG, "parts": [{"part_kind": LONG}], "id": LONG},
]
FIELDS: list[Any] = [None, -1, "x", LONG, float("nan"), decimal.Decimal("sNaN"), [5], {"a": LONG}]


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_every_view_takes_every_value(value: Any) -> None:
    with backtrail.open("memory:") as store:
        thread = store.thread("t")
        message = value if type(value) is dict else {"role": "user", "content": value}
        first = thread.save({"messages": [message], "v": value, "d": {"e": value}}, custom={"c": value})
        second = thread.save({"messages": [message, value], "v": [value], "d": {"e": (value,)}})
        for path in ([], ["v"], ["v", 0], ["d"], ["d", "e"], ["d", "e", 0], ["messages"], ["messages", 0]):
            assert thread.outline(path) is not None
        found = thread.diff(first, second)
        assert str(found)
        assert json_bytes([change_json(change) for change in found.changes])
        assert json.dumps(checkpoint_json(first))
        assert short_text(value)
        assert summarize(thread, second).text
        assert parse_message(value) is not None
        assert parse_message(message) is not None
        assert repr(from_json(to_json(short_text(value)))) == repr(short_text(value))
        for form in MEDIA_TYPES:
            assert export_checkpoint(store, thread, first, form)
        thread.find(custom={"c": value})  # a NaN equals nothing, itself included
        session = store.session("s")
        session.append({"role": "user", "content": value})
        session.append({"role": "assistant", "content": "seen", "extra": value})
        assert len(store.session("s").messages(last=1)) == 1
        assert len(store.session("s").messages()) == 2


@pytest.mark.parametrize("days", [dt.timedelta.max, dt.timedelta.min, dt.timedelta.max - dt.timedelta(1)])
def test_the_longest_times_are_json_and_back(days: dt.timedelta) -> None:
    assert from_json(to_json(days)) == days


@pytest.mark.parametrize("kind", ["session", "run"])
@pytest.mark.parametrize("key", ["first", "user_turns", "iteration", "custom", "task", "messages", "summary"])
@pytest.mark.parametrize("value", FIELDS, ids=range(len(FIELDS)))
def test_sessions_and_runs_whose_fields_were_changed_by_hand_are_shown_or_refused(
    kind: str, key: str, value: Any
) -> None:
    with backtrail.open("memory:") as store:
        if kind == "session":
            store.session("t").add("user", "hello")
        else:
            store.run("t").checkpoint(messages=[{"role": "user", "content": "hello"}])
        thread = store.thread("t")
        thread.update({key: value})
        assert [info.id for info in (store.sessions() if kind == "session" else store.runs())] == ["t"]
        for form in MEDIA_TYPES:
            try:
                assert export_checkpoint(store, thread, thread.get("@"), form)
            except InvalidInput as refused:
                assert "'t'" in str(refused)  # noqa: PT017  # both are right
        try:
            if kind == "session":
                session = store.session("t")
                session.ids()
                session.repair()
                session.add("user", "again")
            else:
                run = store.run("t")
                run.resume()
                run.checkpoint(messages=[])
        except InvalidInput as refused:
            assert "cannot be read as a" in str(refused)  # noqa: PT017


@pytest.mark.parametrize("number", [2**53, 2**63 - 1, 2**63, 2**70, LONG], ids=range(5))
def test_a_count_that_could_not_be_read_again_is_never_written(tmp_path: Path, number: int) -> None:
    shown = number if number < LONG else 2**1000
    files = {
        "a.json": [{"sessions": {"A": {"UserTurns": shown, "Messages": [{"role": "user", "content": "x"}]}}}],
        "b.jsonl": [{"backtrail": 1, "id": "B", "user_turns": shown}, {"role": "user", "content": "x"}],
        "c.jsonl": [{"backtrail": 1, "id": "C", "kind": "run", "fields": {"iteration": shown}}],
    }
    for name, lines in files.items():
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)))
    with backtrail.open("memory:") as store:
        store.import_(tmp_path)
        assert {info.id for info in store.sessions()} == {"A", "B"}
        assert not store.runs()
        for id in ("A", "B"):
            store.session(id).add("user", "y")
            assert store.session(id).user_turns == 2
        with pytest.raises(InvalidInput, match="user_turns"):
            store.session("A").replace([], user_turns=number)
        assert store.session("A").user_turns == 2
