"""Faults around a SQLite store: forks, races, full disks, missing rights, damage, and SIGKILL."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import sqlite3
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fix_crash
from backtrail.engines.base import Commit, Head, Swap
from backtrail.engines.conflicts import Refused
from backtrail.engines.sqlite import SQLiteEngine
from backtrail.errors import Corrupt, Unavailable, UnsupportedFormat
from backtrail.testing import sample_records
from backtrail.testing.call_modes import step
from fix_children import Child, run

NO_BRANCH = 65534
Send = Callable[[bytes], None]


def append(engine: SQLiteEngine, name: str = "t", size: int = 100) -> Head:
    """Add a row to a thread whoever else does so too: read the head, swap it, try again if it moved."""
    branch = sample_records.branch(name)
    while True:
        head = step(engine.head(name))
        number = head.step + 1 if head else 1
        swap = Swap(name, head.key if head else None, sample_records.head(branch, number, number))
        row = sample_records.row(branch, number, payload=os.urandom(size))
        try:
            step(engine.commit(Commit(name, [swap], [row], [] if head else [branch])))
        except Refused:
            continue
        return sample_records.head(branch, number, number)


def steps(engine: SQLiteEngine, name: str = "t") -> list[int]:
    return [found.step for found in step(engine.steps(name, sample_records.branch(name).id, 0, 1 << 31))]


@pytest.mark.slow
def test_200_kills_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    assert fix_crash.survives(lambda: SQLiteEngine(tmp_path / "s.db", durability="normal"), kills=200) > 200


def test_four_processes_on_one_thread_lose_nothing_and_see_no_lock(tmp_path: Path) -> None:
    def work(send: Send) -> None:
        engine = SQLiteEngine(tmp_path / "s.db", durability="normal")
        for _ in range(100):
            send(struct.pack("<I", append(engine).step))
        step(engine.close())

    children = [Child(work) for _ in range(4)]
    won: list[int] = []
    for child in children:
        status, sent = child.end()
        assert status == 0
        mine = [number for (number,) in struct.iter_unpack("<I", sent)]
        assert mine == sorted(mine), "each writer's own order is kept"
        won += mine
    assert sorted(won) == list(range(1, 401)), "each step was won by exactly one of them"
    engine = SQLiteEngine(tmp_path / "s.db")
    assert steps(engine) == list(range(1, 401))
    step(engine.close())


def test_processes_that_make_one_store_at_once_make_one_store(tmp_path: Path) -> None:
    def work(send: Send) -> None:
        engine = SQLiteEngine(tmp_path / "s.db", durability="normal")
        append(engine)
        step(engine.close())

    for child in [Child(work) for _ in range(6)]:
        assert child.end()[0] == 0
    engine = SQLiteEngine(tmp_path / "s.db")
    assert steps(engine) == [1, 2, 3, 4, 5, 6]
    step(engine.close())


def test_threads_that_read_and_write_at_once_lose_nothing(tmp_path: Path) -> None:
    engine = SQLiteEngine(tmp_path / "s.db", durability="normal")
    failures: list[BaseException] = []

    def one(name: str) -> None:
        try:
            for _ in range(60):
                append(engine, name)
                append(engine, "shared")
                assert steps(engine, name)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=one, args=(f"t{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert steps(engine, "shared") == list(range(1, 361))
    assert all(steps(engine, f"t{n}") == list(range(1, 61)) for n in range(6))
    step(engine.close())


# -- forks -----------------------------------------------------------------------------------------------------------


def test_parent_and_forked_child_both_go_on_with_the_engine_they_had(tmp_path: Path) -> None:
    engine = SQLiteEngine(tmp_path / "s.db", durability="normal")
    append(engine)
    step(engine.stats())  # so that there is an idle reader as well

    def work(send: Send) -> None:
        assert steps(engine)[0] == 1
        for _ in range(50):
            append(engine)
        step(engine.close())

    children = [Child(work) for _ in range(2)]
    for _ in range(50):
        append(engine)
    assert [child.end()[0] for child in children] == [0, 0]
    assert steps(engine) == list(range(1, 152))
    step(engine.close())


def test_a_fork_in_the_midst_of_other_threads_writes_harms_neither_side(tmp_path: Path) -> None:
    engine = SQLiteEngine(tmp_path / "s.db", durability="normal")
    append(engine, "child")
    stop = threading.Event()

    def write(name: str) -> None:
        while not stop.is_set():
            append(engine, name)
            steps(engine, name)

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


def test_a_forked_child_that_lives_on_does_not_keep_the_lock(tmp_path: Path) -> None:
    """The child inherits what is open; if that were the lock, a parent killed while writing would leave it locked."""
    engine = SQLiteEngine(tmp_path / "s.db", durability="normal")
    append(engine)

    def parent(send: Send) -> None:
        engine = SQLiteEngine(tmp_path / "s.db", durability="normal")
        append(engine)
        idle = os.fork()
        if idle == 0:
            signal.pause()
        send(struct.pack("<I", idle))
        while True:
            append(engine)

    child = Child(parent)
    idle = struct.unpack("<I", child.read(4))[0]
    child_sent_all = False
    try:
        os.kill(child.pid, signal.SIGKILL)
        append(engine)
        child_sent_all = True
    finally:
        os.kill(idle, signal.SIGKILL)
        child.end()
    assert child_sent_all
    step(engine.close())


# -- a full disk -----------------------------------------------------------------------------------------------------


def fill(engine: SQLiteEngine) -> None:
    for _ in range(40):
        append(engine, size=20_000)


def test_a_full_disk_is_unavailable_and_the_store_goes_on_when_there_is_room(tmp_path: Path) -> None:
    def work(send: Send) -> None:
        engine = SQLiteEngine(tmp_path / "s.db")
        append(engine)
        limit = 300_000
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        with pytest.raises(Unavailable) as refused:
            fill(engine)
        assert isinstance(refused.value.__cause__, sqlite3.OperationalError)
        before = steps(engine)
        for _ in range(5):
            with pytest.raises(Unavailable):
                append(engine, size=50_000)
        assert steps(engine) == before
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        kept = steps(engine)
        append(engine, size=20_000)
        assert steps(engine) == [*kept, kept[-1] + 1]
        step(engine.close())
        send(struct.pack("<I", kept[-1] + 1))

    (last,) = struct.unpack("<I", run(work))
    engine = SQLiteEngine(tmp_path / "s.db")
    assert steps(engine) == list(range(1, last + 1))
    step(engine.close())


def test_no_room_for_a_new_store_leaves_nothing_half_made(tmp_path: Path) -> None:
    def work(send: Send) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
        with pytest.raises(Unavailable):
            SQLiteEngine(tmp_path / "s.db")

    run(work)
    assert not (tmp_path / "s.db").exists()
    engine = SQLiteEngine(tmp_path / "s.db")
    append(engine)
    step(engine.close())


# -- missing rights: as a user without privileges, since the superuser may write everything --------------------------


@pytest.fixture
def shared_directory() -> Iterator[Path]:
    """A directory that another user can reach (pytest's own cannot be)."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


def expect_read_only(path: Path) -> Callable[[Send], None]:
    def work(send: Send) -> None:
        engine = SQLiteEngine(path)
        head = step(engine.head("t"))
        assert head is not None
        assert head.step == 2
        assert steps(engine) == [1, 2]
        assert step(engine.stats())["rows"] == 2
        step(engine.ping())
        with pytest.raises(Unavailable, match="read-only"):
            append(engine)
        with pytest.raises(Unavailable, match="read-only"):
            step(engine.lease("job", "me", 10.0))
        assert steps(engine) == [1, 2]
        step(engine.close())

    return work


@pytest.mark.parametrize("directory_mode", [0o777, 0o555])
def test_a_read_only_store_can_be_read_and_says_that_it_cannot_be_written(
    shared_directory: Path, directory_mode: int
) -> None:
    path = shared_directory / "s.db"
    engine = SQLiteEngine(path)
    append(engine)
    append(engine)
    step(engine.close())
    path.chmod(0o444)
    before = path.read_bytes()
    shared_directory.chmod(directory_mode)
    run(expect_read_only(path), user=NO_BRANCH)
    shared_directory.chmod(0o777)
    assert path.read_bytes() == before


def test_a_reader_without_rights_sees_what_the_owner_goes_on_to_write(shared_directory: Path) -> None:
    path = shared_directory / "s.db"
    engine = SQLiteEngine(path)
    append(engine)
    step(engine.close())
    path.chmod(0o444)
    shared_directory.chmod(0o555)

    def work(send: Send) -> None:
        reader = SQLiteEngine(path)
        assert steps(reader) == [1]
        send(b"1")
        os.read(go, 1)
        assert steps(reader) == [1, 2]

    go, say = os.pipe()
    child = Child(work, user=NO_BRANCH)
    assert child.read(1) == b"1"
    path.chmod(0o644)
    shared_directory.chmod(0o755)
    engine = SQLiteEngine(path)
    append(engine)
    os.write(say, b"1")
    assert child.end()[0] == 0
    step(engine.close())
    os.close(go)
    os.close(say)


def test_a_store_that_may_not_be_read_is_unavailable(shared_directory: Path) -> None:
    step(SQLiteEngine(shared_directory / "s.db").close())

    def work(send: Send) -> None:
        with pytest.raises(Unavailable, match=r"Permission denied"):
            SQLiteEngine(shared_directory / "s.db")

    (shared_directory / "s.db").chmod(0)
    run(work, user=NO_BRANCH)


def test_a_directory_that_may_not_be_written_holds_no_new_store(shared_directory: Path) -> None:
    shared_directory.chmod(0o555)

    def work(send: Send) -> None:
        with pytest.raises(Unavailable, match=r"Permission denied"):
            SQLiteEngine(shared_directory / "s.db")

    run(work, user=NO_BRANCH)


# -- damage ----------------------------------------------------------------------------------------------------------


def test_damaged_pages_are_named_and_the_rest_stays_readable(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    engine = SQLiteEngine(path)
    for _ in range(200):
        append(engine, size=2000)
    step(engine.close())
    data = bytearray(path.read_bytes())
    data[40 * 8192 : 50 * 8192] = random.Random(1).randbytes(10 * 8192)
    path.write_bytes(data)
    engine = SQLiteEngine(path)
    branch = sample_records.branch().id
    with pytest.raises(Corrupt, match=r"s\.db is damaged"):
        step(engine.payloads("t", branch, 1, 200))
    assert [number for number, _ in step(engine.payloads("t", branch, 1, 40))] == list(range(1, 41))
    assert append(engine).step == 201
    step(engine.close())


@pytest.mark.parametrize("size", [0, 1, 99, 100, 4096, 8192, 16_000])
def test_a_store_cut_short_is_refused_and_not_silently_made_anew(tmp_path: Path, size: int) -> None:
    path = tmp_path / "s.db"
    engine = SQLiteEngine(path)
    append(engine)
    step(engine.close())
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises((UnsupportedFormat, Corrupt), match=r"s\.db"):
        SQLiteEngine(path)
    assert path.stat().st_size == size
