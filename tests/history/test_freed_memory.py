"""A store that is no longer used is freed, even if its objects refer to each other."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from pathlib import Path
from typing import Any

import backtrail


def test_a_store_that_its_own_types_refer_to_is_collected(tmp_path: Path) -> None:
    """Tips remember lists with the types that encode them: nothing on that way may be hidden from the collector."""
    known: list[Any] = []

    def use(path: Path) -> weakref.ref[type]:
        @dataclasses.dataclass
        class Message:
            text: str

            def store(self) -> Any:
                return store

        store = backtrail.open(path, types=[Message], durability="normal")
        known.append(weakref.ref(store._core.context))
        store.thread("t").save({"log": [Message("a long text") for _ in range(40)]})
        store.close()
        return weakref.ref(Message)

    message = use(tmp_path / "s.db")
    gc.collect()
    assert message() is None and known[0]() is None
