"""A killed run resumes at its last acknowledged iteration, or at the one after it."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import backtrail
from fix_children import Child

pytestmark = pytest.mark.slow


def run_forever(url: str) -> Callable[[Callable[[bytes], None]], None]:
    def work(send: Callable[[bytes], None]) -> None:
        with backtrail.open(url).run("r", task="long") as run:
            send(struct.pack("<I", run.iteration))
            while True:
                run.messages.append({"role": "assistant", "content": "x" * 200, "n": run.iteration + 1})
                run.checkpoint(output_tokens=run.output_tokens + 7, custom={"last": run.iteration + 1})
                send(struct.pack("<I", run.iteration))

    return work


@pytest.mark.parametrize("engine", ["sqlite", "jsonl"])
def test_a_killed_run_is_resumed_at_its_last_acknowledged_iteration(engine: str, tmp_path: Path) -> None:
    url = f"jsonl:{tmp_path / 'store'}" if engine == "jsonl" else str(tmp_path / "store.db")
    backtrail.open(url).close()
    chance = random.Random(3)
    acknowledged = 0
    for _ in range(60):
        child = Child(run_forever(url))
        begun = child.read(4)
        if begun:
            (resumed,) = struct.unpack("<I", begun)
            assert acknowledged <= resumed <= acknowledged + 1
            acknowledged = resumed
        sent = child.read(4 * chance.randint(0, 4))  # a slow machine gets this far as well; then it has a moment more
        time.sleep(chance.uniform(0, 0.01))
        sent += child.kill()
        if len(sent) >= 4:
            (acknowledged,) = struct.unpack_from("<I", sent, len(sent) // 4 * 4 - 4)
    with backtrail.open(url) as store, store.run("r") as run:
        assert acknowledged <= run.iteration <= acknowledged + 1
        assert [message["n"] for message in run.messages] == list(range(1, run.iteration + 1))
        assert (run.task, run.output_tokens, run.custom) == ("long", 7 * run.iteration, {"last": run.iteration})
        assert run.iteration > 60
