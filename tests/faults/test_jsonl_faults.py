"""Faults around a JSONL store: SIGKILL, races, forks, full disks and missing rights."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import signal
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fix_crash
from backtrail.engines.base import Commit, Head, Swap
from backtrail.engines.conflicts import Refused
from backtrail.engines.jsonl import JSONLEngine
from backtrail.errors import Unavailable
from backtrail.testing import sample_records
from backtrail.testing.call_modes import step
from fix_children import Child, run

NO_BRANCH = 65534
Send = Callable[[bytes], None]


def opened(directory: Path) -> JSONLEngine:
    return JSONLEngine(directory, durability="normal")


def append(engine: JSONLEngine, name: str = "t", size: int = 100) -> Head:
    """Add a row to a thread whoever else does so too: read the head, swap it, try again if it moved."""
    branch = sample_records.branch(name)
    while True:
        head = step(engine.head(name))
        number = head.step + 1 if head else 1
        new = sample_records.head(branch, number, number)
        swap = Swap(name, head.key if head else None, new)
        row = sample_records.row(branch, number, payload=os.urandom(size))
        try:
            step(engine.commit(Commit(name, [swap], [row], [] if head else [branch])))
        except Refused:
            continue
        return new


def steps(engine: JSONLEngine, name: str = "t") -> list[int]:
    return [number for number, _ in step(engine.payloads(name, sample_records.branch(name).id, 0, 1 << 31))]


@pytest.mark.slow
def test_200_kills_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    assert fix_crash.survives(lambda: opened(tmp_path / "store"), kills=200) > 200


def test_four_processes_on_one_thread_lose_nothing(tmp_path: Path) -> None:
    def work(send: Send) -> None:
        engine = opened(tmp_path / "store")
        for _ in range(100):
            send(struct.pack("<I", append(engine).step))
        step(engine.close())

    won: list[int] = []
    for child in [Child(work) for _ in range(4)]:
        status, sent = child.end()
        assert status == 0
        mine = [number for (number,) in struct.iter_unpack("<I", sent)]
        assert mine == sorted(mine), "each writer's own order is kept"
        won += mine
    assert sorted(won) == list(range(1, 401)), "each step was won by exactly one of them"
    engine = opened(tmp_path / "store")
    assert steps(engine) == list(range(1, 401))
    step(engine.close())


def test_processes_that_write_list_and_compact_at_once_do_not_disturb_each_other(tmp_path: Path) -> None:
    step(opened(tmp_path / "store").close())

    def write(name: str) -> Callable[[Send], None]:
        def work(send: Send) -> None:
            engine = opened(tmp_path / "store")
            for number in range(60):
                append(engine, name)
                append(engine, f"{name}-{number % 7}")
                if number % 20 == 0:
                    step(engine.compact())
                assert any(head.thread == name for head in step(engine.threads()))
            step(engine.close())

        return work

    assert [child.end()[0] for child in [Child(write(name)) for name in ("a", "b", "c")]] == [0, 0, 0]
    engine = opened(tmp_path / "store")
    assert all(steps(engine, name) == list(range(1, 61)) for name in ("a", "b", "c"))
    assert len(step(engine.threads())) == 24
    step(engine.close())


def test_mending_another_file_in_the_midst_of_a_commit_does_not_give_the_lock_away(tmp_path: Path) -> None:
    """A commit that looks for a fork's name in another file may find that one torn, and mends it on the way."""
    engine = opened(tmp_path / "store")
    append(engine, "a")
    fork = sample_records.branch("fork", lineage="a")
    step(engine.commit(sample_records.first(fork)))
    step(engine.close())
    with (tmp_path / "store" / "a.jsonl").open("ab") as file:
        file.write(b'{"at":"torn')
    engine = opened(tmp_path / "store")
    held: list[bool] = []
    check = engine._check

    def spy(log: object, commit: Commit) -> None:
        try:
            check(log, commit)  # type: ignore[arg-type]
        finally:
            with (tmp_path / "store" / ".lock").open("r+b") as other:
                try:
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    held.append(False)
                except BlockingIOError:
                    held.append(True)

    engine._check = spy  # type: ignore[method-assign]
    with pytest.raises(Refused):
        step(engine.commit(sample_records.first(sample_records.branch("fork"))))
    assert held == [True]
    assert step(engine.stats())["repaired"] == 1
    step(engine.close())


def test_processes_that_make_one_store_at_once_make_one_store(tmp_path: Path) -> None:
    def work(send: Send) -> None:
        engine = opened(tmp_path / "store")
        append(engine)
        step(engine.close())

    for child in [Child(work) for _ in range(6)]:
        assert child.end()[0] == 0
    engine = opened(tmp_path / "store")
    assert steps(engine) == [1, 2, 3, 4, 5, 6]
    step(engine.close())


def test_a_fork_in_the_midst_of_other_threads_writes_harms_neither_side(tmp_path: Path) -> None:
    engine = opened(tmp_path / "store")
    append(engine, "child")
    stop = threading.Event()

    def write(name: str) -> None:
        while not stop.is_set():
            append(engine, name)

    def work(send: Send) -> None:
        append(engine, "child")

    threads = [threading.Thread(target=write, args=(f"t{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            run(work)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert steps(engine, "child") == list(range(1, 12))
    for n in range(3):
        found = steps(engine, f"t{n}")
        assert found == list(range(1, len(found) + 1))
    step(engine.close())


def fill(engine: JSONLEngine) -> None:
    for _ in range(40):
        append(engine, size=20_000)


def test_a_full_disk_is_unavailable_and_the_store_goes_on_when_there_is_room(tmp_path: Path) -> None:
    def work(send: Send) -> None:
        engine = JSONLEngine(tmp_path / "store")
        append(engine)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
        with pytest.raises(Unavailable) as refused:
            fill(engine)
        assert isinstance(refused.value.__cause__, OSError)
        before = steps(engine)
        for _ in range(5):
            with pytest.raises(Unavailable):
                append(engine, size=50_000)
        assert steps(engine) == before
        assert (tmp_path / "store" / "t.jsonl").read_bytes().endswith(b"}\n"), "no half line was left"
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert append(engine, size=20_000).step == before[-1] + 1
        step(engine.close())
        send(struct.pack("<I", before[-1] + 1))

    (last,) = struct.unpack("<I", run(work))
    engine = opened(tmp_path / "store")
    assert steps(engine) == list(range(1, last + 1))
    assert step(engine.stats())["repaired"] == 0
    step(engine.close())


@pytest.fixture
def shared_directory() -> Iterator[Path]:
    """A directory that another user can reach (pytest's own cannot be)."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def test_a_read_only_store_can_be_read_and_says_that_it_cannot_be_written(shared_directory: Path) -> None:
    directory = shared_directory / "store"
    engine = opened(directory)
    append(engine)
    append(engine)
    fork = sample_records.branch("fork", lineage="t")
    step(engine.commit(sample_records.first(fork)))
    step(engine.close())
    with (directory / "t.jsonl").open("ab") as file:
        file.write(b'{"at":"torn')
    directory.chmod(0o555)
    for file in directory.iterdir():
        file.chmod(0o444)
    before = {file.name: file.read_bytes() for file in directory.iterdir()}

    def work(send: Send) -> None:
        engine = JSONLEngine(directory)
        assert steps(engine) == [1, 2]
        assert step(engine.head("fork")) is not None
        assert [head.thread for head in step(engine.threads())] == ["fork", "t"]
        step(engine.ping())
        with pytest.raises(Unavailable, match="read-only"):
            append(engine)
        with pytest.raises(Unavailable, match="read-only"):
            step(engine.lease("job", "me", 1.0))
        step(engine.close())

    run(work, user=NO_BRANCH)
    assert {file.name: file.read_bytes() for file in directory.iterdir()} == before


def test_a_directory_that_may_not_be_written_holds_no_new_store(shared_directory: Path) -> None:
    def work(send: Send) -> None:
        with pytest.raises(Unavailable, match="Permission denied"):
            JSONLEngine(shared_directory / "store")

    run(work, user=NO_BRANCH)
    assert not list(shared_directory.iterdir())
