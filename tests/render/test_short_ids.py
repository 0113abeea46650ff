"""Short ids: long enough to tell neighbours apart, and understood by every call."""

from __future__ import annotations

from typing import Any

import backtrail
from backtrail.render.short_ids import shorten_ids


def test_a_short_id_names_its_checkpoint() -> None:
    with backtrail.open("memory:") as store:
        thread: backtrail.Thread[Any] = store.thread("t")
        ids = [thread.save({"n": n}).id for n in range(6)]
        for id, short in shorten_ids(ids).items():
            assert len(short) < len(id)
            assert thread.get(short).id == id


def test_short_ids_are_long_enough_to_tell_neighbours_apart() -> None:
    assert shorten_ids(["aaaaaaaaaa1", "aaaaaaaaaa2", "bbbbbbbbbbb"]) == {
        "aaaaaaaaaa1": "aaaaaaaaaa1",
        "aaaaaaaaaa2": "aaaaaaaaaa2",
        "bbbbbbbbbbb": "bbbbbbbb",
    }
