"""A checkpoint as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.render.checkpoint_text import form_of, write
from backtrail.render.jsonable import from_json


def test_each_form_holds_what_it_says() -> None:
    state = {"messages": [{"role": "user", "content": "hello"}], "n": b"1"}
    with backtrail.open("memory:") as store:
        thread: backtrail.Thread[Any] = store.thread("t")
        checkpoint = thread.save(state)
        thread.append("messages", [{"role": "user", "content": "later"}])
        whole = json.loads(write(store, thread, checkpoint, "json"))
        lines = write(store, thread, checkpoint, "jsonl").splitlines()
        text = write(store, thread, checkpoint, "markdown")
        with pytest.raises(backtrail.InvalidInput):
            write(store, thread, checkpoint, "pdf")
    assert from_json(whole["state"]) == state
    assert json.loads(lines[-1]) == {"role": "user", "content": "hello"}
    assert "hello" in text
    assert "later" not in text


def test_the_ending_of_a_file_tells_its_form() -> None:
    assert [form_of(path) for path in (None, Path("a.md"), Path("a.json"), Path("a.x"))] == [
        "jsonl",
        "markdown",
        "json",
        "jsonl",
    ]
