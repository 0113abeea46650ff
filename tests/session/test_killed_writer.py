"""A session's writer is killed 200 times at random points: every acknowledged message is there, once, in order.

The writer mixes the operations of a session. It numbers its messages, and sends each number once the store has
acknowledged it; a truncation, a summary or a snapshot must never lose an acknowledged message.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import backtrail
from fix_children import Child
from fix_stores import address

pytestmark = pytest.mark.slow

KILLS = 200
KEEP = 40


def say(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"{number} " + "x" * random.Random(number).choice((5, 300, 5_000)), "n": number}


def write_forever(url: str) -> Callable[[Callable[[bytes], None]], None]:
    def work(send: Callable[[bytes], None]) -> None:
        session = backtrail.open(url, durability="normal").session("s")  # the process is killed, not the machine
        newest = session.messages(last=1)
        number = newest[0]["n"] if newest else 0
        send(struct.pack("<I", number))
        while True:
            number += 1
            session.append(say(number))
            send(struct.pack("<I", number))
            if number % 7 == 0:
                session.snapshot(f"m{number}")
            if number % 11 == 0:
                session.set_summary(f"up to {number}")
            if number % 60 == 0:
                session.truncate(keep_last=KEEP)

    return work


@pytest.mark.parametrize("engine", ["sqlite", "jsonl"])
def test_a_killed_writer_loses_no_acknowledged_message(engine: str, tmp_path: Path) -> None:
    url = f"jsonl:{tmp_path / 'store'}" if engine == "jsonl" else str(tmp_path / "store.db")
    backtrail.open(url).close()
    chance = random.Random(7)
    acknowledged = 0
    for _ in range(KILLS):
        child = Child(write_forever(url))
        # The writer sends when it has opened the store, and after each message: a tenth may be killed while opening.
        sent = child.read(4 * chance.randint(1, 4)) if chance.random() < 0.9 else b""
        time.sleep(chance.uniform(0, 0.003))
        sent += child.kill()
        if len(sent) >= 4:
            acknowledged = max(acknowledged, struct.unpack_from("<I", sent, len(sent) // 4 * 4 - 4)[0])
    with backtrail.open(url) as store:
        session = store.session("s")
        said = session.messages()
        last = said[-1]["n"]
        assert acknowledged <= last <= acknowledged + 1
        assert said == [say(number) for number in range(last - len(said) + 1, last + 1)]
        assert len(said) >= min(last, KEEP)
        assert session.user_turns == last
        assert session.ids() == [f"#{message['n']}" for message in said]
        everything = set()
        for checkpoint in session.thread.history():
            everything.update(message["n"] for message in session.messages(last=1, at=checkpoint))
        assert everything == set(range(1, last + 1))
        assert acknowledged > KILLS


@pytest.mark.parametrize("engine", ["sqlite", "jsonl", "redis", "postgres"])
def test_two_processes_that_append_to_one_session_keep_all_and_each_its_order(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    target, options = address(engine, "blocking", tmp_path, request)
    backtrail.open(target, **options).close()
    count = 1000

    def writer(name: str) -> Callable[[Callable[[bytes], None]], None]:
        def work(send: Callable[[bytes], None]) -> None:
            with backtrail.open(target, **options) as store:
                session = store.session("s")
                for number in range(count):
                    session.append({"role": "user", "content": "x", "who": name, "n": number})

        return work

    children = [Child(writer(name)) for name in ("a", "b")]
    assert [child.end()[0] for child in children] == [0, 0]
    with backtrail.open(target, **options) as store:
        said = store.session("s").messages()
        assert store.session("s").user_turns == 2 * count
    for name in ("a", "b"):
        assert [message["n"] for message in said if message["who"] == name] == list(range(count))
