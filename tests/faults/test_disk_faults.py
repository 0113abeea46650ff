"""A disk that fails for a while: errors, full disks, interrupted calls, short reads and writes.

Each case runs a store through all that it does, and lets one call of the C library fail (or every call from there on).
A call then works or raises `Unavailable`: `Corrupt` would blame the bytes, which are sound. Closing never fails.
When the fault is over, the same handle and a new one find everything that was acknowledged, and `verify` finds nothing.

One test tries some of the places where a fault can strike, a `nightly` one all of them.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import backtrail
from backtrail.engines.jsonl import log
from backtrail.errors import FilesError, ThreadNotFound, Unavailable
from fix_faulty_disk import Calls, Faults, in_shim
from fix_own_files import at_home

pytestmark = pytest.mark.linux

SOME = {"sqlite": 18, "jsonl": 4, "mirror": 120, "workspace": 80}  # of the places, one in so many
FOR_EVER = 1 << 40


class Fault(NamedTuple):
    """A kind of fault: which calls, and what happens to them."""

    calls: Calls
    error: int = 0
    short: bool = False
    lasts: int = FOR_EVER  #: calls, if not only one fails


FAULTS = {
    "EIO in reads": Fault(Calls.READ, errno.EIO),
    "EIO in writes": Fault(Calls.WRITE, errno.EIO),
    "EIO in syncs": Fault(Calls.SYNC, errno.EIO),
    "EIO in truncations": Fault(Calls.TRUNCATE, errno.EIO),
    "EIO in everything": Fault(Calls.READ | Calls.WRITE | Calls.SYNC | Calls.TRUNCATE | Calls.RENAME, errno.EIO),
    "ENOSPC": Fault(Calls.WRITE | Calls.OPEN | Calls.TRUNCATE, errno.ENOSPC),
    "EMFILE": Fault(Calls.OPEN, errno.EMFILE),
    "EINTR": Fault(Calls.READ | Calls.WRITE, errno.EINTR, lasts=20),  # callers repeat the call for as long as it takes
    "short reads": Fault(Calls.READ, short=True),
    "short writes": Fault(Calls.WRITE, short=True),
}


class Trial:
    """A store on a disk that fails, and what it acknowledged."""

    accepts: tuple[type[Exception], ...] = (Unavailable,)
    names_its_cause = True

    def __init__(self, url: str, **options: Any) -> None:
        self._url = url
        self._options = options
        self._saved = 0  #: the number in the last acknowledged state
        self._tried = 0  #: the number in the last state that was handed over
        self._said: list[str] = []  #: acknowledged messages
        self._maybe: list[str] = []  #: those whose outcome is unknown
        self.complaints: list[str] = []

    @contextmanager
    def tolerant(self, what: str) -> Iterator[None]:
        """A call that may be told that the disk fails, and nothing else."""
        try:
            yield
        except self.accepts as error:
            if self.names_its_cause and error.__cause__ is None:
                self.complaints.append(f"{what}: no cause: {error}")
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported
            self.complaints.append(f"{what}: {type(error).__name__}: {error}")

    def open(self) -> Any:
        return backtrail.open(self._url, **self._options)

    def use(self) -> None:
        """Open, read, write, tidy up and close; any of it may fail."""
        store = None
        with self.tolerant("open"):
            store = self.open()
        if store is None:
            return
        self.read_and_write(store)
        with self.tolerant("lock"), store.thread("t").lock():
            pass
        with self.tolerant("compact"):
            store.compact()
        self.read_and_write(store)
        try:
            store.close()
        except Exception as error:  # noqa: BLE001
            self.complaints.append(f"close: {type(error).__name__}: {error}")

    def read_and_write(self, store: Any) -> None:
        thread, session = store.thread("t"), store.session("s")
        self._tried += 1
        with self.tolerant("save"):
            thread.save({"n": self._tried, "text": f"{self._tried} " * 2000})
            self._saved = self._tried
        message = f"message {self._tried}"
        with self.tolerant("append"):
            self._maybe.append(message)
            session.append({"role": "user", "content": message})
            self._said.append(message)
        with self.tolerant("load"):
            self.check_state(store)
        with self.tolerant("history"):
            len(list(thread.history()))
        with self.tolerant("threads"):
            store.threads()
        with self.tolerant("messages"):
            self.check_messages(session.messages())

    def check_state(self, store: Any) -> None:
        try:
            state = store.thread("t").load()
        except ThreadNotFound:
            assert not self._saved, f"acknowledged {self._saved}, found nothing"
            return
        assert self._saved <= state["n"] <= self._tried, f"acknowledged {self._saved}, found {state['n']}"
        assert state["text"] == f"{state['n']} " * 2000

    def check_messages(self, messages: list[Any]) -> None:
        found = [message["content"] for message in messages]
        assert [text for text in found if text in self._said] == self._said
        assert set(found) <= set(self._maybe)

    def check_all(self, store: Any) -> None:
        self.check_state(store)
        self.check_messages(store.session("s").messages())

    def after(self) -> None:
        """The disk works again: everything that was acknowledged is there, and the store works."""
        with self.open() as store:
            self.check_all(store)
            assert store.verify().ok, store.verify()
            said = len(self.complaints)
            self.read_and_write(store)
            assert len(self.complaints) == said
            self.check_all(store)


class MirrorTrial(Trial):
    """A mirror of a SQLite and a JSONL store, with a spool, all three on the disk that fails. A save that only the side
    has that did not answer later is kept in the history, labelled."""

    names_its_cause = False  # the message names one for each side

    def __init__(self, base: Path) -> None:
        super().__init__(str(base / "one.db"), replica=f"jsonl:{base / 'two'}", spool=base / "spool")

    def check_state(self, store: Any) -> None:
        state = store.thread("t").load() if self._saved else {"n": 0}
        assert state["n"] <= self._tried

    def check_messages(self, messages: list[Any]) -> None:
        assert {message["content"] for message in messages} <= set(self._maybe)

    def after(self) -> None:
        with self.open() as store:
            store.catch_up()
            kept = {number for name in store.threads(prefix="t") for number in _numbers(store.thread(name.id))}
            said = {text for name in store.threads(prefix="s") for text in _texts(store.thread(name.id))}
            assert self._saved in kept | {0}, f"acknowledged {self._saved}, kept {sorted(kept)}"
            assert said >= set(self._said)
        super().after()


def _numbers(thread: Any) -> set[int]:
    return {thread.load(checkpoint)["n"] for checkpoint in thread.history(all=True)}


def _texts(thread: Any) -> set[str]:
    states = [thread.load(checkpoint) for checkpoint in thread.history(all=True)]
    return {message["content"] for state in states for message in state["messages"]}


class WorkspaceTrial(Trial):
    """Snapshots of a directory on the disk that fails."""

    accepts = (Unavailable, FilesError)  # the second: a file of the user's cannot be read or written

    def __init__(self, base: Path) -> None:
        super().__init__(str(base / "store.db"))
        self._project = base / "project"
        self._project.mkdir()
        self._snapshots: list[tuple[str, Any]] = []  #: with the text that the file had

    def read_and_write(self, store: Any) -> None:
        self._tried += 1
        workspace, text = None, None
        with suppress(OSError):  # the user's own work
            (self._project / "a.txt").write_text(f"{self._tried}")
            (self._project / f"{self._tried}.txt").write_text("new")
            text = (self._project / "a.txt").read_text()
        with self.tolerant("workspace"):
            workspace = store.workspace(self._project)
        if workspace is None or text is None:
            return
        with self.tolerant("snapshot"):
            self._snapshots.append((text, workspace.snapshot()))
        with self.tolerant("restore"):
            for known, snapshot in self._snapshots[:1]:
                workspace.restore(snapshot)
                with suppress(OSError):
                    assert (self._project / "a.txt").read_text() == known

    def check_all(self, store: Any) -> None:
        workspace = store.workspace(self._project)
        for known, snapshot in self._snapshots:
            workspace.restore(snapshot)
            assert (self._project / "a.txt").read_text() == known


def strike(kind: str, directory: str, one_in: str) -> None:
    """All faults on one kind of store, in a process with the shim."""
    faults, base, every = Faults(), Path(directory), int(one_in)
    log._CHUNK = 256  # bytes, so that a fault can strike in the middle of a small file
    wrong: list[str] = []
    done = 0
    for name, fault in FAULTS.items():
        for times in (1, fault.lasts):
            places = count(done % every, every)
            for place in places:
                shutil.rmtree(base, ignore_errors=True)
                base.mkdir()
                at_home(base)
                trial = STORES[kind](base)
                if done % 3:  # else the store is made on a failing disk
                    trial.use()
                    assert not trial.complaints, trial.complaints
                with faults.on(fault.calls, str(base), fault.error, short=fault.short, skip=place, times=times):
                    trial.use()
                struck = faults.seen > place
                with _named(wrong, f"{name}, {times}, place {place}: afterwards"):
                    trial.after()
                wrong += [
                    f"{name}, {'once' if times == 1 else 'on'}, place {place}: {said}" for said in trial.complaints
                ]
                done += 1
                if not struck:
                    break
    print(f"{kind}: {done} faults")
    assert not wrong, f"{len(wrong)} of {done}:\n" + "\n".join(wrong[:60])


@contextmanager
def _named(wrong: list[str], what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001
        wrong.append(f"{what}: {type(error).__name__}: {error}")


STORES: dict[str, Callable[[Path], Trial]] = {
    "sqlite": lambda base: Trial(str(base / "store.db")),
    "jsonl": lambda base: Trial(f"jsonl:{base / 'store'}"),
    "mirror": MirrorTrial,
    "workspace": WorkspaceTrial,
}


@pytest.mark.parametrize("kind", STORES)
def test_a_failing_disk_is_not_damage_and_loses_nothing(kind: str) -> None:
    run(kind, SOME[kind])


@pytest.mark.nightly
@pytest.mark.parametrize("kind", STORES)
def test_a_failing_disk_is_not_damage_and_loses_nothing_wherever_it_fails(kind: str) -> None:
    run(kind, 1)


def run(kind: str, one_in: int) -> None:
    memory = "/dev/shm"  # thousands of fsyncs that succeed, about which this test is not
    with tempfile.TemporaryDirectory(dir=memory if Path(memory).is_dir() else None) as directory:
        print(in_shim(strike, kind, f"{directory}/base", str(one_in)))
