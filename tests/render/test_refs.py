"""Checkpoint refs: the head, steps, labels, prefixes of ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import backtrail
from backtrail.render.refs import resolve, shorten_ids


@pytest.fixture
def thread() -> Iterator[backtrail.Thread[Any]]:
    with backtrail.open("memory:") as store:
        thread: backtrail.Thread[Any] = store.thread("t")
        for i in range(6):
            thread.save({"n": i}, label={2: "good", 4: "odd~name"}.get(i))
        yield thread


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("@", 6),
        (None, 6),
        ("@~2", 4),
        ("@~", 5),
        ("~3", 3),
        ("4", 4),
        ("4~1", 3),
        ("good", 3),
        ("good~2", 1),
        ("odd~name", 5),
    ],
)
def test_a_ref_finds_its_checkpoint(thread: backtrail.Thread[Any], text: str | None, step: int) -> None:
    assert resolve(thread, text).step == step


def test_the_start_of_an_id_is_enough(thread: backtrail.Thread[Any]) -> None:
    ids = [c.id for c in thread.history()]
    for id, short in shorten_ids(ids).items():
        assert len(short) < len(id)
        assert resolve(thread, short).id == id


def test_a_label_on_an_abandoned_checkpoint_still_works(thread: backtrail.Thread[Any]) -> None:
    thread.rewind(1)
    assert resolve(thread, "good").step == 3
    assert resolve(thread, "good~1").step == 2


@pytest.mark.parametrize("text", ["@~6", "good~9", "99", "no-such-label", "0123456789abcdef", "…"])
def test_a_ref_to_nothing_is_an_error(thread: backtrail.Thread[Any], text: str) -> None:
    with pytest.raises(backtrail.CheckpointNotFound):
        resolve(thread, text)


def test_a_thread_that_does_not_exist_is_named() -> None:
    with backtrail.open("memory:") as store:
        for text in ("@", "label", "3"):
            with pytest.raises(backtrail.ThreadNotFound):
                resolve(store.thread("missing"), text)


def test_short_ids_are_long_enough_to_tell_neighbours_apart() -> None:
    assert shorten_ids(["aaaaaaaaaa1", "aaaaaaaaaa2", "bbbbbbbbbbb"]) == {
        "aaaaaaaaaa1": "aaaaaaaaaa1",
        "aaaaaaaaaa2": "aaaaaaaaaa2",
        "bbbbbbbbbbb": "bbbbbbbb",
    }
