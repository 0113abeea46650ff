"""Exports: JSONL that is imported back exactly, and Markdown for people."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

import backtrail


def test_jsonl_has_one_message_per_line_and_comes_back_exactly(store: Any, tmp_path: Path) -> None:
    session = store.session("tg:1/x")
    messages = [
        {"role": "user", "content": [{"type": "image", "data": b"\x89PNG\x00"}]},
        {"role": "assistant", "content": "li\u2028ne", "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)},
        {"role": "tool", "$odd": 1, "n": 2**70, "t": (1, 2)},
    ]
    session.extend(messages)
    session.set_summary("so far")
    text = store.export("tg:1/x", to=tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text(encoding="utf-8") == text
    rows = [json.loads(line) for line in text.split("\n")[:-1]]
    assert (rows[0]["backtrail"], rows[0]["id"], rows[0]["summary"]) == (1, "tg:1/x", "so far")
    assert len(rows) == 4
    with backtrail.open("memory:") as other:
        other.import_(tmp_path / "out.jsonl")
        copy = other.session("tg:1/x")
        assert (copy.messages(), copy.summary, copy.user_turns) == (messages, "so far", 1)
        assert other.export("tg:1/x").split("\n")[1:] == text.split("\n")[1:]


def test_a_run_comes_back_as_a_run(store: Any, tmp_path: Path) -> None:
    store.run("r", task="t").checkpoint(
        messages=[{"role": "user", "content": "x"}], input_tokens=3, custom={"model": "m"}
    )
    store.export("r", to=str(tmp_path / "r.jsonl"))
    with backtrail.open("memory:") as other:
        other.import_(tmp_path / "r.jsonl")
        run = other.run("r")
        run.resume()
        assert (run.task, run.iteration, run.input_tokens, run.custom) == ("t", 1, 3, {"model": "m"})
        assert run.messages == [{"role": "user", "content": "x"}]


def test_markdown_is_a_transcript(store: Any, tmp_path: Path) -> None:
    session = store.session("s")
    session.set_summary("They met before.")
    session.add("user", "What is in `a.txt`?")
    session.append({"role": "assistant", "content": "Let me look.", "tool_calls": [
        {"id": "c", "function": {"name": "read", "arguments": '{"path": "a.txt"}'}}
    ]})  # fmt: skip
    session.append({"role": "tool", "tool_call_id": "c", "content": "```\nfenced\n```"})
    session.append(
        {"role": "user", "content": [{"type": "image", "source": b"x" * 3000}, {"type": "text", "text": "?"}]}
    )
    text = store.export("s", to=tmp_path / "s.md")
    assert (tmp_path / "s.md").read_text(encoding="utf-8") == text
    assert text.startswith("# s\n")
    assert "They met before." in text
    assert "## user · 1\n\nWhat is in `a.txt`?" in text
    assert "calls `read`" in text
    assert "````result\n```\nfenced\n```\n````" in text
    assert "3,000 bytes" in text
    assert text == store.export("s", format="markdown")


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}}]},
            "calls `f`",
        ),
        ({"role": "model", "parts": [{"functionCall": {"name": "g", "args": {}}}]}, "calls `g`"),
        ({"role": "model", "parts": [{"text": "said by gemini"}]}, "said by gemini"),
        ({"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "asked"}]}, "asked"),
        ({"type": "function_call", "call_id": "c", "name": "h", "arguments": "{}"}, '"name": "h"'),
        ({"type": "user", "uuid": "u", "message": {"role": "user", "content": "from claude"}}, "from claude"),
        ({"type": "human", "data": {"content": "from langchain"}}, "from langchain"),
        ({"role": "assistant", "content": None}, "*(nothing)*"),
        ({"role": "user", "content": 42}, "42"),
    ],
)
def test_markdown_shows_every_shape(message: dict[str, Any], shown: str) -> None:
    with backtrail.open("memory:") as store:
        store.session("s").append(message)
        assert shown in store.export("s", format="markdown")


def test_an_old_checkpoint_can_be_exported(store: Any) -> None:
    session = store.session("s")
    first = session.add("user", "one")
    session.add("user", "two")
    assert "two" not in store.export("s", at=first)


def test_a_failed_export_leaves_no_file(store: Any, tmp_path: Path) -> None:
    with pytest.raises(backtrail.ThreadNotFound):
        store.export("never", to=tmp_path / "x.jsonl")
    store.thread("t").save({"messages": "no list"})
    with pytest.raises(backtrail.InvalidInput, match="messages"):
        store.export("t", to=tmp_path / "x.jsonl")
    store.session("s").add("user", "x")
    with pytest.raises(backtrail.InvalidInput, match="markdown"):
        store.export("s", format="pdf")
    with pytest.raises(backtrail.InvalidInput, match="cannot be written"):
        store.export("s", to=tmp_path / "no" / "such" / "directory.md")
    assert [path.name for path in tmp_path.iterdir() if "x.jsonl" in path.name or path.name == "no"] == []
