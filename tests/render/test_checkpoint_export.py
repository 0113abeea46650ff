"""Export formats of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.render.checkpoint_export import export_checkpoint, format_of
from backtrail.render.jsonable import from_json


def test_each_format_holds_the_state_at_the_checkpoint() -> None:
    state = {"messages": [{"role": "user", "content": "hello"}], "n": b"1"}
    with backtrail.open("memory:") as store:
        thread: backtrail.Thread[Any] = store.thread("t")
        checkpoint = thread.save(state)
        thread.append("messages", [{"role": "user", "content": "later"}])
        whole = json.loads(export_checkpoint(store, thread, checkpoint, "json"))
        lines = export_checkpoint(store, thread, checkpoint, "jsonl").splitlines()
        text = export_checkpoint(store, thread, checkpoint, "markdown")
        with pytest.raises(backtrail.InvalidInput):
            export_checkpoint(store, thread, checkpoint, "pdf")
    assert from_json(whole["state"]) == state
    assert json.loads(lines[-1]) == {"role": "user", "content": "hello"}
    assert "hello" in text
    assert "later" not in text


def test_the_suffix_of_a_file_decides_the_format() -> None:
    assert [format_of(path) for path in (None, Path("a.md"), Path("a.json"), Path("a.x"))] == [
        "jsonl",
        "markdown",
        "json",
        "jsonl",
    ]
