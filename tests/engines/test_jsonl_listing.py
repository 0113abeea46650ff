"""Listings of a JSONL store with many files: they look at the logs that have changed, and at no other."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.engines.base import Commit, Drop, Head, Swap
from backtrail.engines.jsonl import JSONLEngine, catalogue, changes
from backtrail.engines.jsonl.catalogue import Catalogue, CatalogueEntry
from backtrail.errors import Unavailable
from backtrail.testing import sample_records
from backtrail.testing.call_modes import step


@pytest.fixture(autouse=True)
def _many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six files are many, and nobody ever looks at all of them again."""
    monkeypatch.setattr(catalogue, "FEW", 5)
    monkeypatch.setattr(catalogue, "PATIENCE", 1e9)


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The logs that listings look at."""
    names: list[str] = []
    entry = Catalogue._entry

    def looking(self: Catalogue, name: str, found: os.stat_result) -> CatalogueEntry:
        names.append(name)
        return entry(self, name, found)

    monkeypatch.setattr(Catalogue, "_entry", looking)
    return names


def filled(directory: Path, threads: int) -> JSONLEngine:
    engine = JSONLEngine(directory / "store", durability="normal")
    for number in range(threads):
        step(engine.commit(sample_records.first(sample_records.branch(f"t{number:03}"), updated=1000 + number)))
    return engine


def save(engine: JSONLEngine, thread: str) -> Head:
    head = step(engine.head(thread))
    assert head is not None
    step(engine.commit(sample_records.following(head, sample_records.branch(thread))))
    after = step(engine.head(thread))
    assert after is not None
    return after


@pytest.mark.parametrize("threads", [10, 300])
def test_a_listing_looks_at_the_logs_that_were_changed_and_at_no_other(
    tmp_path: Path, looked_at: list[str], threads: int
) -> None:
    engine, other = filled(tmp_path, threads), JSONLEngine(tmp_path / "store", durability="normal")
    for one in engine, other:
        assert len(step(one.threads())) == threads
    save(engine, "t007")
    saved = save(other, "t003")
    for one in engine, other:
        looked_at.clear()
        assert step(one.threads(newest_first=True, limit=2))[0] == saved or saved in step(one.threads())
        assert step(one.count()) == threads
        assert step(one.stats())["rows"] == threads + 2
        assert set(looked_at) <= {"t007.jsonl", "t003.jsonl", f"t{threads - 1:03}.jsonl"}
        assert len(looked_at) < 20
        step(one.close())


def test_a_writer_that_was_at_work_during_a_listing_is_seen_by_the_next(tmp_path: Path) -> None:
    engine = filled(tmp_path, 8)
    reader = JSONLEngine(tmp_path / "store")
    before = {head.thread: head for head in step(reader.threads())}
    engine._catalogue.changes.announce("t002.jsonl")  # and here it is interrupted
    assert {head.thread: head for head in step(reader.threads())} == before
    later = save(engine, "t002")  # it needs not say so again
    other = save(engine, "t005")
    found = {head.thread: head for head in step(reader.threads())}
    assert (found["t002"], found["t005"]) == (later, other)
    step(reader.close())
    step(engine.close())


def test_a_log_that_could_not_be_read_is_read_by_the_next_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = filled(tmp_path, 8)
    reader = JSONLEngine(tmp_path / "store")
    assert step(reader.count()) == 8
    saved = save(engine, "t004")
    save(engine, "t006")
    entry = Catalogue._entry

    def failing(*_: Any) -> CatalogueEntry:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Catalogue, "_entry", failing)
    with pytest.raises(Unavailable):
        step(reader.threads())
    monkeypatch.setattr(Catalogue, "_entry", entry)
    assert saved in step(reader.threads())
    step(reader.close())
    step(engine.close())


def test_files_that_others_put_there_or_take_away_are_found_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with backtrail.open(f"jsonl:{tmp_path / 'store'}") as store:
        for number in range(8):
            store.thread(f"t{number}").save({"n": number})
        assert store.count() == 8
        (tmp_path / "store" / "t3.jsonl").rename(tmp_path / "elsewhere")
        monkeypatch.setattr(catalogue, "PATIENCE", 0)
        assert [info.id for info in store.threads()] == [f"t{number}" for number in range(8) if number != 3]
        (tmp_path / "elsewhere").rename(tmp_path / "store" / "t3.jsonl")
        assert store.count() == 8


def test_an_incomplete_or_strange_name_hides_no_other(tmp_path: Path) -> None:
    engine, reader = filled(tmp_path, 8), JSONLEngine(tmp_path / "store")
    assert step(reader.count()) == 8
    writer = JSONLEngine(tmp_path / "store")
    for rubbish in b"t00", b"../../etc/passwd.jsonl\n", b"\xff\0.jsonl\n", b"never.jsonl\n", b"\n\n":
        with (tmp_path / "store" / ".changes").open("ab") as file:
            file.write(rubbish)
        assert save(writer, "t001") in step(reader.threads())
        assert save(engine, "t002") in step(reader.threads())
    (tmp_path / "store" / ".changes").unlink()
    assert save(writer, "t001") in step(reader.threads())
    for one in engine, reader, writer:
        step(one.close())


def test_listings_of_several_processes_agree_whatever_they_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "LONGEST", 300)  # so that the file starts anew many times
    chance = random.Random(3)
    engines = [filled(tmp_path, 12), *(JSONLEngine(tmp_path / "store", durability="normal") for _ in range(2))]
    gone: dict[str, int] = {}
    for turn in range(250):
        engine, name = chance.choice(engines), f"t{chance.randrange(12):03}"
        head = step(engine.head(name))
        if head is None:
            gone[name] += 1
            step(engine.commit(sample_records.first(sample_records.branch(name, gone[name]), updated=turn)))
        elif turn % 9 == 0:
            step(engine.commit(Commit(name, swaps=[Swap(name, head.key, None)])))
            step(engine.drop(Drop(name, [], branches=[head.branch])))
            gone[name] = gone.get(name, 1)
        else:
            at = sample_records.branch(name, gone.get(name, 1))
            step(engine.commit(sample_records.following(head, at)))
        if turn % 40 == 0:
            step(engine.compact())
        if chance.random() < 0.7:
            reader = chance.choice(engines)
            with_fresh_eyes = JSONLEngine(tmp_path / "store")
            assert step(reader.threads()) == step(with_fresh_eyes.threads()), turn
            assert step(reader.threads(newest_first=True)) == step(with_fresh_eyes.threads(newest_first=True))
            assert step(reader.lineages()) == step(with_fresh_eyes.lineages())
            ours, fresh = step(reader.stats()), step(with_fresh_eyes.stats())
            figures = ("threads", "branches", "rows", "blobs", "damaged")
            assert [ours[what] for what in figures] == [fresh[what] for what in figures]
            step(with_fresh_eyes.close())
    for engine in engines:
        step(engine.close())
