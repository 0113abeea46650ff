"""The janitor prunes on its own, one at a time, may be started and stopped twice, and reports errors."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import backtrail
import backtrail.aio
from backtrail.errors import InvalidInput, Unavailable

POLICY = backtrail.Retention(keep_last=2, undo_window=dt.timedelta(0))


def until(done: Callable[[], bool]) -> None:
    """Wait for what must come, as long as a test may take."""
    while not done():
        time.sleep(0.005)


def fill(store: Any, count: int = 6) -> None:
    for n in range(count):
        store.thread("t").save({"n": n})


def test_a_janitor_prunes_and_reports(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "s.db", durability="normal") as store:
        fill(store)
        janitor = store.janitor(every=0.01, retention=POLICY)
        assert not janitor.status.running
        with janitor:
            until(lambda: janitor.status.rounds >= 2)
            assert janitor.status.running
            assert len(store.thread("t").history()) == 2
            fill(store)
            until(lambda: len(store.thread("t").history()) == 2)
        status = janitor.status
        assert not status.running
        assert (status.errors, status.every) == (0, 0.01)
        assert status.last_round is not None
        assert status.last_report is not None


def test_starting_and_stopping_twice_is_no_error() -> None:
    with backtrail.open("memory:") as store:
        janitor = store.janitor(every=3600)
        janitor.stop()
        assert janitor.start() is janitor.start()
        until(lambda: janitor.status.rounds == 1)
        janitor.stop()
        janitor.stop()
        assert not janitor.status.running
        janitor.start()
        until(lambda: janitor.status.rounds == 2)
        janitor.stop()


def test_one_janitor_works_at_a_time(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "s.db") as one, backtrail.open(tmp_path / "s.db") as two:
        first, second = one.janitor(every=0.01), two.janitor(every=0.01)
        with first:
            until(lambda: first.status.rounds >= 1)
            with second:
                until(lambda: second.status.skipped >= 2)
                assert second.status.rounds == 0
                first.stop()
                until(lambda: second.status.rounds >= 1)


def test_a_janitor_survives_errors_and_reports_them(monkeypatch: pytest.MonkeyPatch) -> None:
    with backtrail.open("memory:") as store:
        fill(store)
        engine = store._core.context.engine
        real = engine.lineages

        async def away(**options: Any) -> Any:
            raise Unavailable("the disk is away")

        monkeypatch.setattr(engine, "lineages", away)
        with store.janitor(every=0.01, retention=POLICY) as janitor:
            until(lambda: janitor.status.errors >= 2)
            assert "the disk is away" in (janitor.status.last_error or "")
            monkeypatch.setattr(engine, "lineages", real)
            until(lambda: len(store.thread("t").history()) == 2)
            until(lambda: janitor.status.last_error is None)


def test_closing_the_store_ends_its_janitor() -> None:
    store = backtrail.open("memory:")
    janitor = store.janitor(every=0.01).start()
    until(lambda: janitor.status.rounds >= 1)
    store.close()
    until(lambda: not janitor.status.running)
    janitor.stop()


@pytest.mark.parametrize("every", [0, -1, float("nan"), float("inf"), True, "1h", None])
def test_an_interval_that_makes_no_sense_is_refused(every: Any) -> None:
    with backtrail.open("memory:") as store, pytest.raises(InvalidInput):
        store.janitor(every=every)


def test_an_async_janitor_does_the_same_in_a_task(tmp_path: Path) -> None:
    async def main() -> None:
        async with await backtrail.aio.open(tmp_path / "s.db", durability="normal") as store:
            for n in range(6):
                await store.thread("t").save({"n": n})
            janitor = store.janitor(every=0.01, retention=POLICY)
            await janitor.stop()
            async with janitor:
                assert await janitor.start() is janitor
                while janitor.status.rounds < 2:
                    await asyncio.sleep(0.005)
                assert len(await store.thread("t").history()) == 2
            await janitor.stop()
            assert not janitor.status.running
            with pytest.raises(InvalidInput):
                store.janitor(every=0)

    asyncio.run(main())


def test_the_status_is_kept_in_the_store_on_every_engine(everywhere: Any) -> None:
    assert everywhere.janitor_status() is None
    fill(everywhere)
    janitor = everywhere.janitor(every=3600, retention=POLICY)
    janitor.start()
    until(lambda: everywhere.janitor_status() is not None)
    status = everywhere.janitor_status()
    assert (status.running, status.rounds, status.last_report.checkpoints) == (True, 1, 4)
    assert status.next_round - status.last_round >= dt.timedelta(minutes=59)
    janitor.stop()
    status = everywhere.janitor_status()
    assert (status.running, status.rounds, status.next_round) == (False, 1, None)
    assert [info.id for info in everywhere.threads()] == ["t"]
    assert everywhere.stats()["threads"] == 1
    assert not everywhere.verify().problems


def test_an_error_is_kept_in_the_store_as_soon_as_it_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise Unavailable("the disk is full")

    with backtrail.open(tmp_path / "s.db") as store, backtrail.open(tmp_path / "s.db") as other:
        fill(store)
        monkeypatch.setattr("backtrail.history.sweep.Sweeper.prune", fail)
        with store.janitor(every=3600):
            until(lambda: other.janitor_status() is not None)
        status = other.janitor_status()
        assert status is not None
        assert (status.errors, status.rounds) == (1, 0)
        assert "the disk is full" in (status.last_error or "")


def test_the_status_is_kept_in_namespaces_encrypted_stores_and_mirrors(tmp_path: Path) -> None:
    key = b"k" * 32
    openers = {
        "namespace": lambda: backtrail.open(tmp_path / "n.db", namespace="acme"),
        "encrypted": lambda: backtrail.open(tmp_path / "e.db", key=key),
        "mirror": lambda: backtrail.open(tmp_path / "a.db", replica=tmp_path / "b.db"),
    }
    for name, open_one in openers.items():
        with open_one() as store:
            fill(store)
            with store.janitor(every=3600, retention=POLICY) as janitor:
                until(lambda janitor=janitor: janitor.status.rounds == 1)
            assert store.stats()["threads"] == 1, name
        with open_one() as store:
            status = store.janitor_status()
            assert status is not None, name
            assert (status.running, status.rounds) == (False, 1)
            assert [info.id for info in store.threads()] == ["t"]
            assert not store.verify().problems
    with backtrail.open(tmp_path / "n.db") as other:
        assert other.janitor_status() is None, "a namespace is a store of its own"
