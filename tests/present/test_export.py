"""A checkpoint as a file."""

from __future__ import annotations

import json
from typing import Any

import pytest

import clew
from clew.present.export import write
from clew.present.plain import from_json


def test_each_form_holds_what_it_says() -> None:
    state = {"messages": [{"role": "user", "content": "a ``` b"}, {"role": "tool", "content": "```x```"}], "n": b"1"}
    with clew.open("memory:") as store:
        thread: clew.Thread[Any] = store.thread("t")
        checkpoint = thread.save(state)
        whole = json.loads(write(thread, checkpoint, "json"))
        lines = write(thread, checkpoint, "messages").splitlines()
        text = write(thread, checkpoint, "markdown")
        with pytest.raises(clew.InvalidInput, match="json, messages, markdown"):
            write(thread, checkpoint, "pdf")
    assert from_json(whole["state"]) == state
    assert [json.loads(line) for line in lines] == state["messages"]
    assert "## user" in text
    assert "````\n```x```\n````" in text
