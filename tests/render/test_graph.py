"""The graph: children above parents, the ancestors of the head on lane 0, every line joined to its ends."""

from __future__ import annotations

import datetime as dt
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import backtrail
from backtrail.model import Checkpoint
from backtrail.render.graph import MAX_LANES, GraphRow, arrange, draw, width

_START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def _checkpoint(number: int, parent: int | None, seconds: int) -> Checkpoint:
    return Checkpoint(
        id=f"c{number}",
        thread_id="t",
        parent_id=None if parent is None else f"c{parent}",
        step=number + 1,
        created_at=_START + dt.timedelta(seconds=seconds),
    )


@st.composite
def _histories(draw: Any) -> tuple[list[Checkpoint], str]:
    count = draw(st.integers(1, 25))
    made = [
        _checkpoint(i, draw(st.none() | st.integers(0, i - 1)) if i else None, draw(st.integers(0, 40)))
        for i in range(count)
    ]
    return made, f"c{draw(st.integers(0, count - 1))}"


def _lines_meet(rows: list[GraphRow]) -> None:
    """Every line that leaves a row enters the next one, and no other line does."""
    below: set[int] = set()
    for row in rows:
        above = {*row.joins, *row.through}
        assert above == below
        assert row.lane not in row.through
        below = {*row.through, *([row.lane] if row.open else [])}
    assert not below


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # other work may share the machine
@given(_histories())
def test_any_history_is_drawn_with_every_line_joined_to_its_ends(history: tuple[list[Checkpoint], str]) -> None:
    checkpoints, head = history
    rows = arrange(checkpoints, head)
    assert {row.checkpoint.id for row in rows} == {c.id for c in checkpoints}
    index = {row.checkpoint.id: i for i, row in enumerate(rows)}
    assert all(index[c.id] < index[c.parent_id] for c in checkpoints if c.parent_id is not None)
    assert all(row.lane == 0 for row in rows if row.on_trail)
    assert all(row.lane > 0 for row in rows if not row.on_trail)
    _lines_meet(rows)


def test_a_rewind_is_drawn_as_git_would() -> None:
    with backtrail.open("memory:") as store:
        thread: backtrail.Thread[Any] = store.thread("t")
        for i in range(4):
            thread.save({"n": i})
        thread.rewind(2)
        thread.save({"n": "again"})
        head = thread.head
        assert head is not None
        rows = arrange(thread.history(all=True), head.id)
    assert [text for _, text in draw(rows, head.id)] == ["◉", "│ ○", "│ ○", "├─╯", "●", "●"]


def test_a_head_below_what_it_left_behind_is_joined_from_the_side() -> None:
    with backtrail.open("memory:") as store:
        thread: backtrail.Thread[Any] = store.thread("t")
        for i in range(3):
            thread.save({"n": i})
        head = thread.rewind(1)
        rows = arrange(thread.history(all=True), head.id)
    assert [text for _, text in draw(rows, head.id)] == ["  ○", "  ○", "╭─╯", "◉"]


def test_thousands_of_abandoned_branches_do_not_make_thousands_of_lanes() -> None:
    made = [_checkpoint(0, None, 0), *(_checkpoint(i, 0, i) for i in range(1, 2000))]
    rows = arrange(made, "c700")
    assert width(rows) == MAX_LANES + 1
    assert sum(len(row.through) + len(row.joins) for row in rows) <= len(rows) * (MAX_LANES + 1)
    assert {row.checkpoint.id for row in rows} == {checkpoint.id for checkpoint in made}
    assert [row.lane for row in rows if row.on_trail] == [0, 0]
    _lines_meet(rows)
    assert len(draw(rows, "c700")) >= len(made)
