"""A sweep lets the other threads of its process run every now and then, and nobody else has to sleep."""

from __future__ import annotations

import datetime as dt
import sys
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

import backtrail
from backtrail.history import throttle

ROWS = 3000
POLICY = backtrail.Retention(keep_last=ROWS - 300, undo_window=dt.timedelta(0))


@pytest.fixture
def another_thread() -> Iterator[None]:
    """A second thread, which waits."""
    over = threading.Event()
    other = threading.Thread(target=over.wait)
    other.start()
    yield
    over.set()
    other.join()


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times for which a throttle slept; it is always time to."""
    found: list[float] = []
    seconds = count()
    monkeypatch.setattr(throttle, "time", SimpleNamespace(perf_counter=lambda: next(seconds), sleep=found.append))
    return found


def filled(store: Any) -> Any:
    thread = store.thread("t")
    for number in range(ROWS):
        thread.append("items", [number])
    return store


@pytest.mark.usefixtures("another_thread")
def test_a_sweep_of_many_rows_never_works_for_long_without_a_chance_to_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = calls = 0

    def pause(_: throttle.Throttle) -> None:
        nonlocal longest, calls
        longest, calls = max(longest, calls), 0

    def add(_: FrameType, event: str, __: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    with filled(backtrail.open(tmp_path / "s.db", durability="normal")) as store:
        monkeypatch.setattr(throttle.Throttle, "pause", pause)
        sys.setprofile(add)
        try:
            done = store.prune(POLICY)
        finally:
            sys.setprofile(None)
    assert done.checkpoints == 300
    assert longest < 2.5 * ROWS  # a pass over all rows, as fast as can be; the sweep makes a dozen of them


@pytest.mark.usefixtures("another_thread")
def test_a_sweep_pauses_if_there_are_other_threads(naps: list[float]) -> None:
    with filled(backtrail.open("memory:")) as store:
        assert store.prune(POLICY).checkpoints == 300
    assert len(naps) > ROWS / 16


def test_a_sweep_without_other_threads_never_sleeps(naps: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "threading", SimpleNamespace(active_count=lambda: 1))
    with filled(backtrail.open("memory:")) as store:
        assert store.prune(POLICY).checkpoints == 300
    assert naps == []
