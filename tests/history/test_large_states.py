"""What a large state takes in memory, counted in bytes that Python allocates."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import backtrail

SIZE = 16 << 20


def peak_of(call: Any) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_large_list_is_loaded_with_two_copies_of_its_bytes_besides_itself(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "a.db", durability="normal") as store:
        thread: backtrail.Thread[Any] = store.thread("t")
        thread.save({"items": [f"{number:06}" + "x" * 10_234 for number in range(SIZE // 10_240)]})
        assert peak_of(thread.load) < 3.3 * SIZE


def test_an_append_to_a_large_list_takes_what_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with backtrail.open(path, durability="normal") as store:
        store.thread("t").save({"items": [f"{number:06}" + "x" * 10_234 for number in range(SIZE // 10_240)]})
    with backtrail.open(path, durability="normal") as store:
        thread: backtrail.Thread[Any] = store.thread("t")
        assert peak_of(lambda: thread.append("items", ["one more"])) < SIZE // 20
        assert peak_of(lambda: thread.diff(1, 2)) < SIZE // 20
        assert peak_of(thread.outline) < SIZE // 20
