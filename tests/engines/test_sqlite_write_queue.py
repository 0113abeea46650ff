"""Group commit: one caller leads, the others follow, and the failure of one does not affect the others."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.engines.base import LAST_STEP, Commit, Drop, Head, Mark, Swap
from backtrail.engines.conflicts import Refused
from backtrail.engines.sqlite import SQLiteEngine, transactions
from backtrail.engines.sqlite.reader_pool import KEPT
from backtrail.engines.sqlite.saved_tips import SavedTips
from backtrail.engines.sqlite.write_queue import Ticket, WriteQueue
from backtrail.errors import Closed, InvalidInput, Unavailable
from backtrail.testing import sample_records
from backtrail.testing.call_modes import step


def work(cursor: object, argument: object) -> None:
    raise AssertionError("no test runs it")


def elsewhere(call: Callable[[], Any]) -> Any:
    """The answer of a call to another thread: the owner of the queue would find that it owns it."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(call).result()


def queue_up(queue: WriteQueue, *tickets: Ticket) -> list[threading.Thread]:
    """One waiting thread for each ticket, queued in this order."""
    threads = []
    for number, ticket in enumerate(tickets, 1):
        thread = threading.Thread(target=queue.wait, args=(ticket,))
        thread.start()
        threads.append(thread)
        while len(queue._queue) < number:
            pass
    return threads


def test_the_queue_goes_to_the_first_who_waits_and_leads_all_the_others() -> None:
    queue = WriteQueue()
    assert queue.try_acquire()
    assert not elsewhere(queue.try_acquire)
    first, second, third = (Ticket(work, n) for n in range(3))
    threads = queue_up(queue, first, second, third)
    queue.release()
    threads[0].join()
    assert (first.leads, second.leads, third.leads) == (True, False, False)
    assert not queue.try_acquire(), "it was handed over, not set free"
    assert queue.batch() == [first, second, third]
    for follower in (second, third):
        follower.gate.release()
    for thread in threads[1:]:
        thread.join()
    queue.release()
    assert queue.try_acquire()


def test_who_wants_to_be_alone_is_not_taken_along() -> None:
    queue = WriteQueue()
    queue.try_acquire()
    one, alone, two = Ticket(work, 1), Ticket(work, 2, alone=True), Ticket(work, 3)
    threads = queue_up(queue, one, alone, two)
    for ticket, thread in zip((one, alone, two), threads, strict=True):
        queue.release()
        thread.join()
        assert queue.batch() == [ticket]


def test_who_waited_too_long_leaves_the_queue() -> None:
    queue = WriteQueue()
    queue.try_acquire()
    assert not elsewhere(lambda: queue.wait(Ticket(work, 1), timeout=0.001))
    queue.release()
    assert queue.try_acquire()


@pytest.fixture
def engine(tmp_path: Path) -> Any:
    made = SQLiteEngine(tmp_path / "s.db", durability="normal")
    yield made
    step(made.close())


def together(engine: SQLiteEngine, commits: list[Commit]) -> list[Exception | None]:
    """Commit all of them from threads that are made to wait, so that they share one transaction."""
    outcomes: list[Exception | None] = [None] * len(commits)

    def one(number: int) -> None:
        try:
            step(engine.commit(commits[number]))
        except (Refused, InvalidInput, Unavailable) as error:
            outcomes[number] = error

    assert engine._writer.pause()
    threads = [threading.Thread(target=one, args=(n,)) for n in range(len(commits))]
    for number, thread in enumerate(threads, 1):
        thread.start()
        while len(engine._writer._queue._queue) < number:
            pass
    engine._writer.resume()
    for thread in threads:
        thread.join()
    return outcomes


def commits_seen(engine: SQLiteEngine, during: Callable[[], object]) -> int:
    """How many transactions were committed meanwhile."""
    statements: list[str] = []
    opened = engine._writer._connection or engine._writer._open()
    connection = opened.connection
    connection.set_trace_callback(statements.append)
    during()
    connection.set_trace_callback(None)
    return statements.count("COMMIT")


def test_writers_that_wait_share_one_transaction(engine: SQLiteEngine) -> None:
    commits = [sample_records.first(sample_records.branch(f"t{n}")) for n in range(8)]
    assert commits_seen(engine, lambda: together(engine, commits)) == 1
    assert [head.thread for head in step(engine.threads())] == [f"t{n}" for n in range(8)]


def test_a_lone_writer_needs_no_savepoint(engine: SQLiteEngine) -> None:
    statements: list[str] = []
    step(engine.commit(sample_records.first(sample_records.branch("a"))))
    assert engine._writer._connection is not None
    engine._writer._connection.connection.set_trace_callback(statements.append)
    branch = sample_records.branch("a")
    marked = Commit("a", rows=[sample_records.row(branch, 2)], marks=[Mark(branch.id, 1, b"mark")])
    step(engine.commit(marked))
    assert [statement.split()[0] for statement in statements] == [
        *("BEGIN", "SELECT", "INSERT"),  # the row
        *("SELECT", "INSERT", "COMMIT"),  # the mark
    ]


def test_one_refused_commit_does_not_fail_those_beside_it(engine: SQLiteEngine) -> None:
    taken = sample_records.first(sample_records.branch("a"))
    too_far = Commit(
        "b", branches=[sample_records.branch("b")], rows=[sample_records.row(sample_records.branch("b"), 1 << 40)]
    )
    outcomes = together(engine, [taken, taken, too_far, sample_records.first(sample_records.branch("c"))])
    assert [type(outcome) for outcome in outcomes] == [type(None), Refused, InvalidInput, type(None)]
    assert [head.thread for head in step(engine.threads())] == ["a", "c"]
    assert step(engine.branches("b")) == []


def test_when_the_shared_transaction_fails_each_is_tried_alone(
    engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ticket that rolls everything back (a full disk does) must not take the others with it."""
    poison = sample_records.first(sample_records.branch("poison"))
    write = transactions.write

    def fails(cursor: sqlite3.Cursor, writing: transactions.Writing) -> None:
        if writing.commit is poison:
            cursor.execute("ROLLBACK")
            raise sqlite3.OperationalError("database or disk is full")
        write(cursor, writing)

    monkeypatch.setattr(transactions, "write", fails)
    outcomes = together(
        engine,
        [sample_records.first(sample_records.branch("a")), poison, sample_records.first(sample_records.branch("c"))],
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), Unavailable, type(None)]
    assert [head.thread for head in step(engine.threads())] == ["a", "c"]


def test_everybody_is_told_when_the_store_was_closed_while_they_waited(engine: SQLiteEngine) -> None:
    engine._writer._closed = True
    engine._writer._connection = None
    outcomes = together(engine, [sample_records.first(sample_records.branch(name)) for name in "abc"])
    assert [type(outcome) for outcome in outcomes] == [Closed] * 3


def test_readers_go_on_while_a_writer_is_at_work(engine: SQLiteEngine) -> None:
    branch = sample_records.branch()
    step(engine.commit(sample_records.first(branch, 3)))
    assert engine._writer.pause()
    try:
        assert step(engine.head("t")) == sample_records.head(branch, 3)
        assert len(step(engine.payloads("t", branch.id, 1, 3))) == 3
    finally:
        engine._writer.resume()


def test_threads_that_come_and_go_leave_a_bounded_number_of_connections(engine: SQLiteEngine) -> None:
    step(engine.commit(sample_records.first(sample_records.branch())))
    barrier = threading.Barrier(12)

    def read() -> None:
        barrier.wait()
        for _ in range(20):
            step(engine.threads())

    threads = [threading.Thread(target=read) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(engine._readers._all) == len(engine._readers._idle) <= KEPT


def test_readers_that_are_done_at_the_same_instant_keep_no_more_connections_than_others(engine: SQLiteEngine) -> None:
    """Each of them finds room before any of them has taken it."""
    step(engine.commit(sample_records.first(sample_records.branch())))
    done = threading.Barrier(KEPT + 3)

    class Together(list[sqlite3.Connection]):
        def append(self, connection: sqlite3.Connection) -> None:
            done.wait()
            super().append(connection)

    engine._readers._idle = Together(engine._readers._idle)
    threads = [threading.Thread(target=lambda: step(engine.threads())) for _ in range(KEPT + 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(engine._readers._all) == len(engine._readers._idle) == KEPT


# -- branch numbers that another engine made out of date -------------------------------------------------------------


def test_a_branch_that_another_process_dropped_takes_no_more_rows(engine: SQLiteEngine, tmp_path: Path) -> None:
    branch = sample_records.branch()
    step(engine.commit(sample_records.first(branch)))
    other = SQLiteEngine(tmp_path / "s.db")
    head = sample_records.head(branch)
    step(other.commit(Commit("t", swaps=[Swap("t", head.key, None)])))
    step(other.drop(Drop("t", expect=[], branches=[branch.id])))
    with pytest.raises(Refused, match="a sweep removed it"):
        step(engine.commit(Commit("t", rows=[sample_records.row(branch, 2)])))
    assert step(engine.steps("t", branch.id, 0, 100)) == []
    # Another branch must not inherit the number that is still remembered.
    strange = sample_records.branch("strange")
    step(other.commit(sample_records.first(strange)))
    assert step(engine.steps("t", branch.id, 0, 100)) == []
    # The same branch again (a replica catches up): found under its new number, by readers and by writers.
    step(other.commit(sample_records.first(branch)))
    assert [row.step for row in step(engine.rows("t", branch.id, 0, 100))] == [1]
    engine._numbers["t", branch.id] = 1
    step(engine.commit(Commit("t", rows=[sample_records.row(branch, 2)])))
    assert [row.step for row in step(other.rows("t", branch.id, 0, 100))] == [1, 2]
    step(other.close())


def test_what_is_remembered_of_branches_is_bounded(engine: SQLiteEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backtrail.engines.sqlite.engine.REMEMBERED", 10)
    for n in range(35):
        step(engine.commit(sample_records.first(sample_records.branch(f"t{n}"))))
        assert len(engine._numbers) <= 10
    assert all(step(engine.row(f"t{n}", sample_records.branch(f"t{n}").id, 1)) for n in range(35))


def test_numbers_beyond_64_bits_are_refused_and_change_nothing(engine: SQLiteEngine) -> None:
    branch = sample_records.branch()
    huge = Head("t", "t", branch.owner, branch.id, 1, 1, "thread", 1, 1, 1, size=1 << 70)
    with pytest.raises(InvalidInput, match="64 bit"):
        step(engine.commit(Commit("t", swaps=[Swap("t", None, huge)], branches=[branch])))
    assert step(engine.branches("t")) == []


def test_leases_that_ended_long_ago_are_forgotten_but_their_tokens_are_not_used_again(engine: SQLiteEngine) -> None:
    first = step(engine.lease("job", "me", 100.0))
    assert step(engine.release("job", "me"))
    step(engine.compact())
    assert engine._writer.read("SELECT count(*) FROM leases", ()) == [(0,)]
    again = step(engine.lease("job", "me", 100.0))
    assert again.token > first.token  # type: ignore[union-attr]


def test_a_turn_that_was_lost_in_an_interrupt_is_found_by_who_lost_it(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "s.db", durability="normal") as store:
        thread = store.thread("t")
        thread.append("log", [0])
        writer = store._core.context.engine._connections.writer
        assert writer._queue.try_acquire()  # and then Ctrl-C: nobody gives it back
        assert thread.append("log", [1]).step == 2
        writer._queue.wait(Ticket(lambda cursor, argument: None, None, alone=True))  # the same, while queueing
        assert thread.append("log", [2]).step == 3
        assert thread.load() == {"log": [0, 1, 2]}


def test_a_commit_that_is_run_again_goes_by_no_number_that_was_rolled_back(tmp_path: Path) -> None:
    """Else a row could land on a branch of somebody else that got the number meanwhile."""
    engine = SQLiteEngine(tmp_path / "s.db")
    mine, other = sample_records.branch("mine"), sample_records.branch("other")
    begin, goes_on = (
        transactions.Writing(commit, {}, {}, SavedTips())
        for commit in (sample_records.first(mine), Commit("mine", rows=[sample_records.row(mine, 2)]))
    )
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as connection:
        cursor = connection.cursor()
        cursor.execute("BEGIN")
        transactions.write(cursor, begin)
        transactions.write(cursor, goes_on)
        cursor.execute("ROLLBACK")
        step(engine.commit(sample_records.first(other)))
        with pytest.raises(Refused):
            transactions.write(cursor, goes_on)
    assert [row.step for row in step(engine.steps("other", other.id, 1, LAST_STEP))] == [1]
    step(engine.close())
