"""The example of CONTRIBUTING.md: an engine in one file keeps the engine contract, and a store works on it."""

from __future__ import annotations

from pathlib import Path

import backtrail
from backtrail.engines.base import Engine
from backtrail.testing.contract import DurableEngineContract
from examples.msgpack_engine import MsgpackEngine


class TestMsgpack(DurableEngineContract):
    def make_engine(self, directory: Path) -> Engine:
        return MsgpackEngine(directory / "store.msgpack")


def test_a_store_on_it_is_a_store(tmp_path: Path) -> None:
    with backtrail.open(MsgpackEngine(tmp_path / "store.msgpack")) as store:
        store.thread("t").save({"n": 1})
    with backtrail.open(MsgpackEngine(tmp_path / "store.msgpack")) as store:
        assert store.thread("t").load() == {"n": 1}
