"""Sync of two encrypted stores: an empty one adopts the other's ring; two that can never be equal are refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import backtrail
import backtrail.aio

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a.txt").write_text("one\n")
    with backtrail.open(tmp_path / "one.db", key=KEY) as store:
        store.session("chat").add("user", "hello")
        store.thread("files").save({"n": 1}, files=store.workspace(project, cache=False, name="p"))
    return tmp_path


@pytest.mark.parametrize("url", ["two.db", "jsonl:two"])
def test_an_empty_store_becomes_equal_and_stays_so(sealed: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sealed)
    with backtrail.open("one.db", key=KEY) as one, backtrail.open(url, key=KEY) as two:
        assert one.sync_to(two).records > 0
        assert two.session("chat").messages() == [{"role": "user", "content": "hello"}]
        two.session("chat").add("assistant", "hi")
        assert one.sync_to(two).records > 0
        assert len(one.session("chat").messages()) == 2
        assert one.sync_to(two).records == 0
    with backtrail.open(url, key=KEY) as two:
        assert two.verify().ok
        assert two.thread("files").load() == {"n": 1}


def test_an_empty_store_takes_from_the_other_whichever_way_they_are_named(sealed: Path) -> None:
    with backtrail.open(sealed / "one.db", key=KEY) as one, backtrail.open(sealed / "two.db", key=KEY) as two:
        two.sync_to(one)
        assert two.session("chat").count() == 1
        two.session("chat").add("user", "again")  # sealed with the ring that it took
        assert two.verify().ok


def test_sync_and_async_stores_can_be_made_equal(sealed: Path) -> None:
    async def main() -> None:
        async with await backtrail.aio.open(sealed / "one.db", key=KEY) as one:
            await one.sync_to(sealed / "two.db", key=KEY)

    asyncio.run(main())
    with backtrail.open(sealed / "two.db", key=KEY) as two:
        assert two.session("chat").count() == 1


def test_stores_that_can_never_be_equal_are_refused_and_left_as_they_are(sealed: Path) -> None:
    with backtrail.open(sealed / "one.db", key=KEY) as one:
        one.copy_to(sealed / "copy.db", key=KEY)
        with pytest.raises(backtrail.InvalidInput, match="encrypted apart from each other"):
            one.sync_to(sealed / "copy.db", key=KEY)
        with pytest.raises(backtrail.InvalidInput, match="the other is not"):
            one.sync_to(sealed / "plain.db")
        with pytest.raises(backtrail.InvalidInput, match="wrong key"):
            one.sync_to(sealed / "other.db", key=OTHER)
    with backtrail.open(sealed / "copy.db", key=KEY) as copy, backtrail.open(sealed / "other.db", key=OTHER) as other:
        assert copy.verify().ok
        assert other.count() == 0
