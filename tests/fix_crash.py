"""A writer that is killed again and again, and the proof that nothing it acknowledged is lost.

The writer appends rows to a thread and sends each step's number once the engine has acknowledged it. It is killed with
SIGKILL at a random moment, some steps after it began, however long those take; afterwards the store must hold every
acknowledged step, at most one more (committed, but killed before it could report it), no gap, and exactly the bytes
that were written.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable

from backtrail.engines.base import Branch, Commit, Engine, Head, Swap
from backtrail.testing import sample_records
from backtrail.testing.call_modes import step
from fix_children import Child

KILLS_PER_THREAD = 20


def survives(make: Callable[[], Engine], kills: int, seed: int = 1) -> int:
    """Kill a writer that many times; how many steps were acknowledged in all."""
    chance = random.Random(seed)
    branches = [sample_records.branch(f"crash-{n}") for n in range(kills // KILLS_PER_THREAD)]
    found = [_kill_and_check(make, branch, chance) for branch in branches]
    engine = make()
    assert [check(engine, branch, 1) for branch in branches] == found, "all of them are still there at the end"
    step(engine.close())
    return sum(found)


def _kill_and_check(make: Callable[[], Engine], branch: Branch, chance: random.Random) -> int:
    before = 0
    for _ in range(KILLS_PER_THREAD):
        child = Child(write_for_ever(make, branch))
        # It says when it has opened the store, and after each step; some are killed while they open it.
        sent = child.read(4 * chance.randint(1, 4)) if chance.random() < 0.85 else b""
        time.sleep(chance.uniform(0, 0.003))
        sent += child.kill()
        acknowledged = struct.unpack_from("<I", sent, len(sent) // 4 * 4 - 4)[0] if len(sent) >= 4 else before
        engine = make()
        found = check(engine, branch, before + 1)
        assert acknowledged <= found <= acknowledged + 1, f"acknowledged {acknowledged}, found {found}"
        step(engine.close())
        before = found
    return before


def write_for_ever(make: Callable[[], Engine], branch: Branch) -> Callable[[Callable[[bytes], None]], None]:
    def work(send: Callable[[bytes], None]) -> None:
        engine = make()
        head = step(engine.head(branch.thread))
        send(struct.pack("<I", head.step if head else 0))
        while True:
            head = append(engine, branch, head)
            send(struct.pack("<I", head.step))

    return work


def append(engine: Engine, branch: Branch, head: Head | None) -> Head:
    """The next step, whole: one commit."""
    number = 1 if head is None else head.step + 1
    row = sample_records.row(branch, number, payload=payload(number))
    new = sample_records.head(branch, number, number)
    swap = Swap(branch.thread, None if head is None else head.key, new)
    blobs = {sample_records.name16("blob", number): payload(number + 1)} if number % 7 == 0 else {}
    step(engine.commit(Commit(branch.lineage, [swap], [row], [] if head else [branch], blobs=blobs)))
    return new


def check(engine: Engine, branch: Branch, first: int) -> int:
    """The head's step, once everything from `first` up to it is known to be there."""
    head = step(engine.head(branch.thread))
    last = head.step if head else 0
    found = step(engine.payloads(branch.lineage, branch.id, first, 1 << 31))
    assert [number for number, _ in found] == list(range(first, last + 1))
    assert all(data == payload(number) for number, data in found)
    assert step(engine.row(branch.lineage, branch.id, last)) is not None or last == 0
    blobs = [sample_records.name16("blob", number) for number in range(7, last + 1, 7)]
    assert step(engine.blobs(branch.lineage, blobs)).keys() == set(blobs)
    return last


def payload(number: int) -> bytes:
    """The payload of a step: of very different sizes, and known from the number alone."""
    size = random.Random(number).choice((0, 10, 300, 3_000, 20_000))
    return (b"%d " % number) * (size // 4) + b"\n\xff"
