"""Dictionaries are trained once, kept with their lineage, and found by every reader."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.errors import Corrupt
from backtrail.history.zstd_dictionary import ROWS

WORDS = [
    f"{a}{b}" for a in ("re", "con", "pro", "sub", "trans") for b in ("port", "form", "ject", "duce", "struct", "mit")
]


def message(rng: random.Random) -> dict[str, Any]:
    text = " ".join(rng.choices(WORDS, k=150))
    return {"role": "assistant", "content": text, "id": f"msg_{rng.randrange(10**9)}"}


def talk(thread: Any, count: int, seed: int = 1) -> list[int]:
    rng = random.Random(seed)
    return [thread.append("messages", [message(rng)]).written for _ in range(count)]


def test_rows_get_smaller_once_there_is_a_dictionary(opener: Any) -> None:
    store = opener(compression="zstd")
    written = talk(store.thread("t"), 2 * ROWS)
    before, after = written[10 : ROWS - 1], written[ROWS + 10 :]
    assert sum(after) / len(after) < 0.85 * sum(before) / len(before)
    assert store.stats()["blobs"] == 1


def test_another_process_reads_and_goes_on_with_it(opener: Any) -> None:
    talk(opener(compression="zstd").thread("t"), ROWS + 5)
    plain = opener()
    state = plain.thread("t").load()
    assert len(state["messages"]) == ROWS + 5
    assert plain.thread("t").tail("messages", 2) == state["messages"][-2:]
    again = opener(compression="zstd")
    written = talk(again.thread("t"), 5, seed=2)
    assert max(written) < 0.85 * talk(opener(compression="zstd").thread("new"), 1)[0]
    assert opener(key=None).thread("t").fork("fork").load()["messages"][: ROWS + 5] == state["messages"]
    assert again.verify().ok


def test_a_second_thread_adopts_what_was_trained_for_the_first(opener: Any) -> None:
    store = opener(compression="zstd")
    talk(store.thread("a"), ROWS + 2)
    talk(store.thread("b"), ROWS + 2, seed=2)
    stats = store.stats()
    assert stats["blobs"] == 2
    store.thread("a").delete()
    assert len(opener().thread("b").load()["messages"]) == ROWS + 2


def test_a_dictionary_survives_sweeps(opener: Any) -> None:
    store = opener(compression="zstd")
    thread = store.thread("t")
    talk(thread, ROWS + 10)
    thread.save({"messages": []})
    store.prune(backtrail.Retention(keep_last=1))
    store.compact()
    talk(thread, 5)
    assert len(opener().thread("t").load()["messages"]) == 5
    assert store.verify().ok


def test_a_missing_dictionary_is_told_and_writing_goes_on(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "s.db"
    with backtrail.open(path, compression="zstd", durability="normal") as store:
        talk(store.thread("t"), ROWS + 5)
    db = sqlite3.connect(path, isolation_level=None)
    assert db.execute("DELETE FROM blobs").rowcount == 1
    db.close()
    with backtrail.open(path, compression="zstd", durability="normal") as store:
        with pytest.raises(Corrupt, match="dictionary"):
            store.thread("t").load()
        assert not store.verify().ok
        store.verify(repair=True)
        assert store.verify().ok
        assert len(store.thread("t").load()["messages"]) == ROWS - 1
        talk(store.thread("t"), 1)
