"""More branches than are cached, more lists than a branch can begin: a user notices neither."""

from __future__ import annotations

from typing import Any

import pytest

import backtrail
from backtrail.history import caches

LONG = "a sentence that is long enough to be kept apart from the root; " * 8


def test_a_lineage_may_have_more_branches_than_are_remembered(opener: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "MAX_BRANCHES", 4)
    thread = opener().thread("t")
    thread.save({"n": 0})
    for n in range(1, 12):
        thread.rewind(1)
        thread.save({"n": n})
    assert thread.load() == {"n": 11}
    assert len(thread.history(all=True)) == 12
    assert thread.load(1) == {"n": 0}
    assert thread.fork(at=1).load() == {"n": 0}


def test_a_list_may_begin_again_as_often_as_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    from backtrail.encode import planner
    from backtrail.history import save

    monkeypatch.setattr(planner, "MAX_STREAMS", 8)
    monkeypatch.setattr(save, "ENOUGH_STREAMS", 4)
    thread = backtrail.open("memory:").thread("t")
    for n in range(40):
        thread.save({"scratch": [n, LONG] if n % 2 else []})
        assert thread.load() == {"scratch": [n, LONG] if n % 2 else []}
    assert [c.step for c in thread.history()] == list(range(1, 41))
