"""Figures of a store: what a survey reads, and when it says that it is a sample."""

from __future__ import annotations

from typing import Any

import pytest

import backtrail
from backtrail.engines.base import Engine
from backtrail.history import store_core


def filled(threads: int) -> backtrail.Store:
    """A store in which every thread has one checkpoint that a prune freed, and one that is garbage."""
    store = backtrail.open("memory:")
    for number in range(threads):
        thread = store.thread(f"t{number:03}")
        for turn in range(3):
            thread.save({"text": f"{turn}" * 500})
        thread.delete(1)
    return store


def test_a_survey_of_few_lineages_is_exact() -> None:
    with filled(4) as store:
        stats = store.stats()
        assert (stats["surveyed"], stats["lineages"]) == (4, 4)
        assert stats["garbage"] > 0
        assert "surveyed" not in store.stats(survey=False)


def test_a_survey_of_many_lineages_is_a_sample_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with filled(100) as store:
        exact = store.stats()
        monkeypatch.setattr(store_core, "MAX_SURVEYED", 8)
        seen: list[tuple[int, int]] = []
        sampled = store.stats(progress=lambda done, total: seen.append((done, total)))
        assert sampled["lineages"] == exact["lineages"] == exact["surveyed"] == 100
        assert 4 <= sampled["surveyed"] <= 8
        assert seen == [(number, sampled["surveyed"]) for number in range(1, sampled["surveyed"] + 1)]
        for what in "live", "garbage":
            assert sampled[what] == pytest.approx(exact[what], rel=0.05)


def test_a_prune_reads_no_steps_of_threads_that_keep_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    with filled(3) as store:
        for number in range(20):
            for turn in range(2):
                store.thread(f"new{number}").save({"turn": turn})
        engine = type(store._core.context.engine)
        steps = engine.steps

        async def reading(self: Engine, lineage: str, *args: Any, **options: Any) -> Any:
            read.append(lineage)
            return await steps(self, lineage, *args, **options)

        monkeypatch.setattr(engine, "steps", reading)
        report = store.prune(backtrail.Retention(keep_last=2))
        assert set(read) == {"t000", "t001", "t002"}, "a checkpoint of these was deleted"
        assert report.rows == 3
        read.clear()
        assert store.prune(backtrail.Retention(keep_last=1), dry_run=True).checkpoints == 23
        assert len(set(read)) == 23


def test_a_prune_frees_what_a_deleted_fork_left_in_a_lineage_that_was_only_saved_to() -> None:
    with backtrail.open("memory:") as store:
        thread = store.thread("a")
        for number in range(3):
            thread.save({"n": number})
        fork = thread.fork("b")
        fork.save({"large": "x" * 10_000})
        fork.delete()
        store.prune()
        assert store.stats()["garbage"] == 0
        assert store.stats()["branches"] == 1


def test_a_survey_asks_three_times_for_each_small_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    with backtrail.open("memory:") as store:
        for number in range(30):
            store.thread(f"t{number}").save({"n": number})
        engine = type(store._core.context.engine)
        for name in "heads", "branches", "row", "steps", "rows", "payloads", "blob_ids", "blobs":
            original = getattr(engine, name)

            async def asking(
                self: Engine, *args: Any, _name: str = name, _original: Any = original, **named: Any
            ) -> Any:
                asked.append(_name)
                return await _original(self, *args, **named)

            monkeypatch.setattr(engine, name, asking)
        assert store.stats()["surveyed"] == 30
        assert len(asked) <= 3 * 30, asked  # each is a round trip to a server
