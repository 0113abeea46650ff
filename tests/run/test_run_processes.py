"""Several processes and one run: workers that die, owners that were stopped, races for an answer, clocks that step."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.history import records
from fix_children import Child, run
from fix_stores import address
from run_kills.processes import Processes, hurry
from run_kills.rounds import Api, Rounds

pytestmark = [pytest.mark.slow, pytest.mark.linux]  # a dead process is known by /proc
DURABLE = ["sqlite", "jsonl", "redis", "postgres"]
Send = Callable[[bytes], None]


class Place:
    """A store that processes open for themselves."""

    def __init__(self, url: str, options: dict[str, Any], folder: Path) -> None:
        self.url, self.options, self.folder = url, options, folder
        Processes(url, options, folder)  # imports everything before the forks
        run(lambda _: self.open().close())

    def open(self) -> backtrail.Store:
        return backtrail.open(self.url, **self.options)

    def log(self, line: str) -> None:
        """An effect, on disk."""
        file = os.open(self.folder / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{line}\n".encode())
        os.fsync(file)
        os.close(file)

    def effects(self) -> list[str]:
        """All effects."""
        path = self.folder / "effects"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture(params=DURABLE)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    url, options = address(request.param, "processes", tmp_path, request)
    return Place(str(url), options, tmp_path)


# -- workers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
@pytest.mark.parametrize("api", ["sync", "async"])
@pytest.mark.parametrize("engine", DURABLE)
def test_runs_of_killed_workers_are_done_by_others_and_no_step_twice(
    engine: str, api: Api, elsewhere: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url, options = address(engine, f"workers_{api}", tmp_path, request)
    rounds = Rounds(str(url), options, api, tmp_path, f"{engine} {api}")
    rounds.work(4, elsewhere=elsewhere)
    assert rounds.findings == []
    assert rounds.counts["workers killed"] >= 4


CALLS = ["head", "threads", "lease", "commit", "release"]


@contextlib.contextmanager
def dying_at(call: str, number: int) -> Iterator[None]:
    """This process dies in the given call of the engine, before its work."""
    from backtrail.engines.sqlite import SQLiteEngine

    inner, made = getattr(SQLiteEngine, call), [0]

    async def dies(self: Any, *args: Any, **named: Any) -> Any:
        made[0] += 1
        if made[0] == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return await inner(self, *args, **named)

    setattr(SQLiteEngine, call, dies)
    yield


@pytest.mark.parametrize("call", CALLS)
def test_a_worker_that_dies_at_any_call_leaves_its_run_to_the_next(call: str, tmp_path: Path) -> None:
    died = 0
    for number in range(1, 12):
        folder = tmp_path / str(number)
        folder.mkdir()
        place = Place(str(folder / "store.db"), {}, folder)

        def task(run: Any, given: int) -> int:
            first = run.step("one", lambda: place.log("one") or given + 1)  # noqa: B023  # called within this turn
            place.log("one returned")  # noqa: B023
            second = run.step("two", lambda: place.log("two") or first + 1, at_most_once=True, check=lambda: None)  # noqa: B023
            return int(second)

        def work(_: Send) -> None:
            hurry(False)
            with dying_at(call, number), place.open() as store:  # noqa: B023
                store.work({"t": task}, drain=True)

        def work_on(send: Send) -> None:
            hurry(False)
            with place.open() as store:  # noqa: B023
                store.work({"t": task}, drain=True)
                outcome = store.run("r").outcome()
                assert (outcome.status, outcome.result) == ("finished", 3)

        run(lambda _: submit(place))  # noqa: B023
        status, _ = Child(work).end()
        died += status == -signal.SIGKILL
        run(work_on)
        effects = place.effects()
        assert effects.index("one returned") > max(n for n, line in enumerate(effects) if line == "one")
        if status == 0:
            break
    assert died, f"no worker died in {call}"


def submit(place: Place) -> None:
    with place.open() as store:
        store.submit("t", 1, id="r")


def test_a_worker_that_is_told_to_stop_ends_before_the_next_step_and_another_goes_on(place: Place) -> None:
    def task(run: Any, given: int) -> int:
        for n in range(given):
            run.step("s", lambda n: place.log(f"{n}") or time.sleep(0.05), n)
        return given

    def work(send: Send) -> None:
        with place.open() as store:
            store.work({"t": task})
        send(b"stopped")

    def begin(_: Send) -> None:
        with place.open() as store:
            store.submit("t", 30, id="r")

    def finish(_: Send) -> None:
        with place.open() as store:
            assert store.run("r").outcome().status == "ready"
            store.work({"t": task}, drain=True)
            assert store.run("r").outcome().status == "finished"

    run(begin)
    child = Child(work)
    while len(place.effects()) < 2:
        time.sleep(0.01)
    child.signal(signal.SIGTERM)
    assert child.end() == (0, b"stopped")
    assert len(place.effects()) < 30
    run(finish)
    assert place.effects() == [str(n) for n in range(30)]


# -- zombies -----------------------------------------------------------------------------------------------------------


def test_an_owner_that_was_stopped_and_taken_over_records_nothing_any_more(place: Place) -> None:
    def own(send: Send) -> None:
        hurry(True)
        with place.open() as store:
            try:
                with store.run("r") as one:
                    one.step("first", place.log, "first")
                    send(b"x")
                    one.step("second", lambda: place.log("second, stopped") or os.kill(os.getpid(), signal.SIGSTOP))
                    place.log("the zombie's step returned")
            except backtrail.LockLost:
                send(b"fenced")

    def take_over(_: Send) -> None:
        hurry(True)
        with place.open() as store, store.run("r", timeout=30.0) as one:
            one.step("first", place.log, "first")
            one.step("second", lambda: place.log("second"))
            one.result = "done by the second"

    zombie = Child(own)
    assert zombie.read(1) == b"x"
    run(take_over)  # once the lease has ended
    zombie.signal(signal.SIGCONT)
    assert zombie.end() == (0, b"fenced")
    assert place.effects() == ["first", "second, stopped", "second"]

    def read(_: Send) -> None:
        with place.open() as store:
            assert store.run("r").outcome().result == "done by the second"
            assert [step.name for step in store.run("r").steps()] == ["first", "second"]

    run(read)


# -- answers -----------------------------------------------------------------------------------------------------------


def test_of_many_processes_that_answer_at_once_one_wins_and_its_answer_is_handed_out(place: Place) -> None:
    def ask(_: Send) -> None:
        with place.open() as store, pytest.raises(backtrail.Suspended), store.run("r") as one:
            one.ask("pay?", "Pay?", schema=int)

    def answer(number: int) -> Callable[[Send], None]:
        def work(send: Send) -> None:
            with place.open() as store:
                (pending,) = store.pending()
                try:
                    store.answer("r", "pay?", number, by=f"p{number}", digest=pending.digest)
                except backtrail.AlreadyAnswered:
                    send(b"late")
                else:
                    send(b"won")

        return work

    def resume(send: Send) -> None:
        with place.open() as store, store.run("r") as one:
            send(str(one.ask("pay?", "Pay?", schema=int)).encode())

    run(ask)
    children = [Child(hold(place, answer(number))) for number in range(6)]
    time.sleep(0.3)
    (place.folder / "go").touch()
    ended = [child.end() for child in children]
    assert all(status == 0 for status, _ in ended)
    winners = [number for number, (_, sent) in enumerate(ended) if sent == b"won"]
    assert len(winners) == 1
    assert run(resume) == str(winners[0]).encode()


def hold(place: Place, work: Callable[[Send], None]) -> Callable[[Send], None]:
    """Begin at the same moment as the others; one that comes late finds no question, which is a late answer too."""

    def held(send: Send) -> None:
        while not (place.folder / "go").exists():
            time.sleep(0.001)
        try:
            work(send)
        except ValueError:  # nothing is pending any more
            send(b"late")

    return held


# -- clocks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_steps_does_not_make_a_step_or_a_question_anew(place: Place, hours: int) -> None:
    def begin(_: Send) -> None:
        with place.open() as store, contextlib.suppress(backtrail.Suspended), store.run("r") as one:
            one.step("s", place.log, "s")
            one.ask("ok?", "Ok?", schema=bool, expires=dt.timedelta(hours=5))

    def go_on(_: Send) -> None:
        shift(hours)
        with place.open() as store:
            assert [pending.name for pending in store.pending()] == ["ok?"]
            store.answer("r", "ok?", True)
            with store.run("r") as one:
                one.step("s", place.log, "s")
                assert one.ask("ok?", "Ok?", schema=bool, expires=dt.timedelta(hours=5)) is True
                one.step("t", place.log, "t")

    run(begin)
    run(go_on)
    assert place.effects() == ["s", "t"]


def test_a_sleep_goes_by_the_time_that_was_saved_whatever_the_clock_did_since(place: Place) -> None:
    def begin(_: Send) -> None:
        with place.open() as store:
            store.submit("t", id="r")
            store.work({"t": task}, drain=True)

    def task(one: Any, _: Any) -> None:
        one.sleep("an hour", 3600)
        place.log("awake")

    def look(hours: float) -> Callable[[Send], None]:
        def work(_: Send) -> None:
            shift(hours)
            with place.open() as store:
                store.work({"t": task}, drain=True)

        return work

    run(begin)
    run(look(-2))
    run(look(0.9))
    assert place.effects() == []
    run(look(1.1))
    assert place.effects() == ["awake"]


def shift(hours: float) -> None:
    """The clock of this process steps."""
    true, step = records.clock, int(hours * 3_600_000_000_000)
    records.clock = lambda: true() + step
