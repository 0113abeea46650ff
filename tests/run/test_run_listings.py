"""Runs in listings: pages across statuses, and questions that are paged by run, on every engine."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import backtrail


def begin(store: Any, number: int) -> str:
    """A run of one of six statuses, which changes with the number."""
    id = f"r{number:02d}"
    kind = number % 6
    if kind == 0:
        store.submit("t", number, id=id)
    elif kind == 1:
        store.submit("t", number, id=id, at=3600)
    elif kind == 2:
        with suppress(backtrail.Suspended), store.run(id) as run:
            run.ask("ok?", "Shall I?")
    elif kind == 3:
        store.run(id).checkpoint()
    elif kind == 4:
        with suppress(TimeoutError), store.run(id) as run:
            run.step("s", int)
            raise TimeoutError
    else:
        with store.run(id) as run:
            run.step("s", int)
    return id


def in_pages(store: Any, limit: int, **options: Any) -> list[str]:
    found: list[str] = []
    while page := store.runs(limit=limit, after=found[-1] if found else None, **options):
        assert len(page) <= limit
        found += [info.id for info in page]
    return found


def test_pages_of_runs_go_from_the_newest_to_the_oldest_whatever_their_status(everywhere: Any) -> None:
    made = [begin(everywhere, number) for number in range(18)][::-1]
    everywhere.thread("a thread").save({"n": 1})  # is in none of them
    unfinished = [id for id in made if int(id[1:]) % 6 != 5]
    asleep_or_failed = [id for id in made if int(id[1:]) % 6 in (1, 4)]
    for limit in (1, 2, 5, 100):
        assert in_pages(everywhere, limit, status="all") == made
        assert in_pages(everywhere, limit) == unfinished
        assert in_pages(everywhere, limit, status=["sleeping", "failed"]) == asleep_or_failed
        assert in_pages(everywhere, limit, status="all", prefix="r1") == [id for id in made if id.startswith("r1")]
    statuses = {info.status for info in everywhere.runs(status="all")}
    assert statuses == {"ready", "sleeping", "waiting", "running", "failed", "finished"}


def test_a_run_whose_status_changes_between_two_pages_is_not_missing(everywhere: Any) -> None:
    made = [begin(everywhere, number) for number in range(12)][::-1]
    first = [info.id for info in everywhere.runs(status="all", limit=4)]
    everywhere.answer("r02", "ok?", True)  # it is the newest now: whoever pages on has it before or has seen it
    second = [info.id for info in everywhere.runs(status="all", after=first[-1])]
    assert first + second == [id for id in made if id != "r02"]
    assert everywhere.runs(status="all", limit=1)[0].id == "r02"


def test_the_questions_of_one_run_are_not_parted_by_a_page(everywhere: Any) -> None:
    for number in range(4):
        with suppress(backtrail.Suspended), everywhere.run(f"r{number}") as run:
            with suppress(backtrail.Suspended):
                run.ask("a", "Shall I do a?")
            run.ask("b", "Shall I do b?")
    whole = [(one.run_id, one.name) for one in everywhere.pending()]
    assert whole == [(f"r{number}", name) for number in (3, 2, 1, 0) for name in ("b", "a")]
    found: list[Any] = []
    while page := everywhere.pending(limit=1, after=found[-1].run_id if found else None):
        assert len(page) == 2
        found += page
    assert [(one.run_id, one.name) for one in found] == whole
