"""A writer that is killed again and again, and the proof that nothing it acknowledged is lost.

The writer appends rows to one thread and sends each step's number once the engine has acknowledged it. It is killed
with SIGKILL at a random moment; afterwards the store must hold every acknowledged step, at most one more (committed,
but killed before it could say so), no gap, and the very bytes that were written.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable

from clew.engines.base import Commit, Engine, Head, Swap
from clew.testing import records
from clew.testing.drive import step
from fix_children import Child

BRANCH = records.branch("crash")


def payload(number: int) -> bytes:
    """The payload of a step: of very different sizes, and known from the number alone."""
    size = random.Random(number).choice((0, 10, 300, 3_000, 20_000))
    return (b"%d " % number) * (size // 4) + b"\n\xff"


def append(engine: Engine, head: Head | None) -> Head:
    """The next step, whole: one commit."""
    number = 1 if head is None else head.step + 1
    row = records.row(BRANCH, number, payload=payload(number))
    new = records.head(BRANCH, number, number)
    swap = Swap("crash", None if head is None else head.key, new)
    blobs = {records.name16("blob", number): payload(number + 1)} if number % 7 == 0 else {}
    step(engine.commit(Commit("crash", [swap], [row], [] if head else [BRANCH], blobs=blobs)))
    return new


def write_for_ever(make: Callable[[], Engine]) -> Callable[[Callable[[bytes], None]], None]:
    def work(send: Callable[[bytes], None]) -> None:
        engine = make()
        head = step(engine.head("crash"))
        send(struct.pack("<I", head.step if head else 0))
        while True:
            head = append(engine, head)
            send(struct.pack("<I", head.step))

    return work


def survives(make: Callable[[], Engine], kills: int, seed: int = 1) -> int:
    """Kill a writer that many times; how many steps were acknowledged in all."""
    chance = random.Random(seed)
    before = acknowledged = 0
    for _ in range(kills):
        child = Child(write_for_ever(make))
        if chance.random() < 0.85:
            child.read(4)  # it has opened the store: now it is writing, else it is killed while opening
        time.sleep(chance.uniform(0, 0.006))
        sent = child.kill()
        if len(sent) >= 4:
            acknowledged = max(acknowledged, struct.unpack_from("<I", sent, len(sent) // 4 * 4 - 4)[0])
        engine = make()
        found = check(engine, before + 1)
        assert acknowledged <= found <= acknowledged + 1, f"acknowledged {acknowledged}, found {found}"
        before = acknowledged = found
        step(engine.close())
    engine = make()
    check(engine, 1)
    step(engine.close())
    return acknowledged


def check(engine: Engine, first: int) -> int:
    """The head's step, once everything from `first` up to it is known to be there."""
    head = step(engine.head("crash"))
    last = head.step if head else 0
    found = step(engine.payloads("crash", BRANCH.id, first, 1 << 31))
    assert [number for number, _ in found] == list(range(first, last + 1))
    assert all(data == payload(number) for number, data in found)
    assert step(engine.row("crash", BRANCH.id, last)) is not None or last == 0
    blobs = [records.name16("blob", number) for number in range(7, last + 1, 7)]
    assert step(engine.blobs("crash", blobs)).keys() == set(blobs)
    return last
