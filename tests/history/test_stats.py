"""Figures of a store: what a survey reads, and when it says that it is a sample."""

from __future__ import annotations

import pytest

import backtrail
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
