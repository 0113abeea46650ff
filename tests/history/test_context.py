"""The context of a store: the parts that a context over another engine shares with it, and those it does not."""

from __future__ import annotations

import os
from typing import Any

import pytest

import backtrail
from backtrail.engines.coroutines import finish
from backtrail.engines.memory import MemoryEngine
from backtrail.history.context import Context
from backtrail.history.thread_core import ThreadCore


def test_a_context_over_another_engine_shares_the_codec_and_no_cache() -> None:
    store = backtrail.open("memory:", retention=backtrail.Retention(keep_last=3))
    store.thread("t").save({"n": 1})
    context = store._core.context
    other = context.with_engine(MemoryEngine())
    assert (other.frames, other.retention, other.keys) == (context.frames, context.retention, context.keys)
    assert other.blob_finders is context.blob_finders
    for name in ("tips", "ids", "tails", "branches"):
        assert getattr(other.caches, name) is not getattr(context.caches, name)
    assert context.caches.tips.peek("t") is not None
    assert other.caches.tips.peek("t") is None


def test_a_thread_of_one_engine_is_not_found_in_the_caches_of_another() -> None:
    context = backtrail.open("memory:")._core.context
    other = context.with_engine(MemoryEngine())
    here: ThreadCore[dict[str, Any]] = ThreadCore(context, "t")
    there: ThreadCore[dict[str, Any]] = ThreadCore(other, "t")
    finish(here.save({"n": 1}))
    finish(here.save({"n": 2}))
    assert finish(there.save({"n": "other"})).step == 1
    assert (finish(here.load()), finish(there.load())) == ({"n": 2}, {"n": "other"})


def test_a_closed_context_refuses_calls_and_may_be_closed_again() -> None:
    store = backtrail.open("memory:")
    thread = store.thread("t")
    finish(store._core.context.close())
    finish(store._core.context.close())
    with pytest.raises(backtrail.Unavailable, match="closed"):
        thread.save({"n": 1})


def test_a_store_without_a_replica_continues_no_branch_that_a_mirror_began(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = MemoryEngine()
    with monkeypatch.context() as patched:
        patched.setattr(Context, "new_branch", lambda _: b"\0\7" + os.urandom(14))  # generation 7 of a mirror
        backtrail.open(engine).thread("t").save({"n": 1})
    thread = backtrail.open(engine).thread("t")
    thread.save({"n": 2})
    thread.save({"n": 3})
    assert [branch.id[:2] for branch in finish(engine.branches("t"))] == [b"\0\7", b"\0\0"]
    assert [checkpoint.step for checkpoint in thread.history()] == [1, 2, 3]
