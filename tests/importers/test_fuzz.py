"""Arbitrary JSON as a file to import: there is always a report, and imported threads can be read."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import backtrail
from backtrail.importers import FORMATS

_WORDS = [
    "key", "messages", "summary", "skip", "created", "run_id", "iteration", "task_name", "input_tokens", "sessions",
    "ID", "Messages", "UserTurns", "Checkpoints", "FileCheckpoints", "uuid", "parentUuid", "sessionId", "type", "role",
    "content", "message", "isSidechain", "agentId", "leafUuid", "logicalParentUuid", "id", "backtrail", "kind",
    "fields", "user_turns", "last-prompt", "user", "$bytes", "$type", "$map", "a", "b", "c", "",
]  # fmt: skip
_leaves = st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.sampled_from(_WORDS) | st.text(max_size=3)
_values = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=5),
    max_leaves=25,
)
_entries = st.fixed_dictionaries(
    {"type": st.sampled_from(["user", "last-prompt", "summary"]), "uuid": st.sampled_from("abcde")},
    optional={
        "parentUuid": st.sampled_from(["a", "b", "c", "d", "e", None, 3]),
        "sessionId": st.sampled_from(["s", "", None]),
        "isSidechain": st.booleans(),
        "leafUuid": st.sampled_from("abcdef"),
        "message": _values,
    },
)
_conversations = st.lists(st.dictionaries(st.sampled_from(_WORDS), _values, max_size=3), max_size=3) | _values
_sessions = st.fixed_dictionaries(
    {},
    optional={
        "ID": _leaves,
        "Messages": _conversations,
        "UserTurns": _leaves,
        "Checkpoints": st.dictionaries(st.sampled_from("abc"), _conversations) | _values,
        "FileCheckpoints": _values,
    },
)
_shaped = st.one_of(
    st.fixed_dictionaries({"sessions": st.dictionaries(st.text(max_size=3), _sessions | _values, max_size=3)}),
    st.fixed_dictionaries(
        {"key": _leaves, "messages": _conversations}, optional={"summary": _values, "created": _values}
    ),
    st.fixed_dictionaries(
        {"run_id": _leaves, "iteration": _leaves},
        optional={"messages": _conversations, "task_name": _values, "system_prompt": _values, "input_tokens": _leaves},
    ),
    st.fixed_dictionaries({"messages": _conversations}, optional={"id": _leaves, "summary": _values}),
)
_headers = st.fixed_dictionaries(
    {"backtrail": st.sampled_from([1, 1, 2, "x"]), "id": st.sampled_from(["s", "", None, 3])},
    optional={
        "kind": st.sampled_from(["run", "session", 3]),
        "fields": _values,
        "summary": _values,
        "user_turns": _leaves,
    },
)
_metas = st.fixed_dictionaries({}, optional={"key": _leaves, "skip": _leaves, "summary": _values}) | _values


def check(files: dict[str, str], format: str | None) -> None:
    with TemporaryDirectory() as folder, backtrail.open("memory:") as store:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8", errors="surrogatepass")
        report = store.import_(folder, format=format)
        str(report)
        for line in report.imported:
            assert line.id is not None
            info = next(info for info in store.threads() if info.id == line.id)
            if info.kind == "session":
                session = store.session(line.id)
                assert session.count() == len(session.messages()) == len(session.ids())
                store.export(line.id, format="markdown")
                assert type(session.summary) is str
            else:
                store.run(line.id).resume()
                store.run(line.id).checkpoint()
        again = store.import_(folder, format=format)
        assert again.imported == ()
        assert again.updated == ()


_formats = st.none() | st.sampled_from(list(FORMATS))


@settings(max_examples=80, deadline=None)
@given(_shaped | _values, _formats)
def test_any_json_file_gets_a_report(value: Any, format: str | None) -> None:
    check({"x.json": json.dumps(value)}, format)


@settings(max_examples=80, deadline=None)
@given(st.lists(_values | _shaped | _headers, max_size=5), _metas | st.just("absent"), _formats)
def test_any_lines_get_a_report(values: list[Any], meta: Any, format: str | None) -> None:
    files = {"x.jsonl": "".join(json.dumps(value) + "\n" for value in values)}
    check(files if meta == "absent" else {**files, "x.meta.json": json.dumps(meta)}, format)


@settings(max_examples=100, deadline=None)
@given(st.lists(_entries, min_size=1, max_size=10))
def test_any_transcript_gets_a_report(entries: list[Any]) -> None:
    check({"s.jsonl": "".join(json.dumps(entry) + "\n" for entry in entries)}, None)
