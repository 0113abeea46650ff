"""An inspector of a store in memory, for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import backtrail
from fix_inspector import Inspector, inspector


@pytest.fixture
def served() -> Iterator[Inspector]:
    """An inspector of a store whose thread `talk` has a rewind, a label and a fork."""
    with backtrail.open("memory:") as store:
        talk = store.thread("talk")
        talk.save({"messages": [], "mode": "plan"}, label="start")
        for i in range(4):
            talk.append("messages", [{"role": "user", "content": f"message {i}"}])
        talk.rewind(3)
        talk.append("messages", [{"role": "assistant", "content": "another way"}], tags=["good"])
        talk.fork("talk-fork", at=1)
        with inspector(store) as running:
            yield running
