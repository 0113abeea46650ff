"""The graph: children above parents, the ancestors of the head on lane 0, every line joined to its ends."""

from __future__ import annotations

import datetime as dt
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import backtrail
from backtrail.model import Checkpoint
from backtrail.render.graph import MAX_LANES, Graph, GraphRow, draw, width

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
    rows = Graph(checkpoints, head).page()
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
        rows = Graph(thread.history(all=True), head.id).page()
    assert [text for _, text in draw(rows, head.id)] == ["◉", "│ ○", "│ ○", "├─╯", "●", "●"]


def test_a_head_below_what_it_left_behind_is_joined_from_the_side() -> None:
    with backtrail.open("memory:") as store:
        thread: backtrail.Thread[Any] = store.thread("t")
        for i in range(3):
            thread.save({"n": i})
        head = thread.rewind(1)
        rows = Graph(thread.history(all=True), head.id).page()
    assert [text for _, text in draw(rows, head.id)] == ["  ○", "  ○", "╭─╯", "◉"]


def test_thousands_of_abandoned_branches_do_not_make_thousands_of_lanes() -> None:
    made = [_checkpoint(0, None, 0), *(_checkpoint(i, 0, i) for i in range(1, 2000))]
    rows = Graph(made, "c700").page()
    assert width(rows) == MAX_LANES + 1
    assert sum(len(row.through) + len(row.joins) for row in rows) <= len(rows) * (MAX_LANES + 1)
    assert {row.checkpoint.id for row in rows} == {checkpoint.id for checkpoint in made}
    assert [row.lane for row in rows if row.on_trail] == [0, 0]
    _lines_meet(rows)
    assert len(draw(rows, "c700")) >= len(made)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_histories(), st.integers(0, 30), st.integers(0, 30))
def test_a_page_has_the_rows_that_the_whole_graph_has_there(
    history: tuple[list[Checkpoint], str], start: int, length: int
) -> None:
    graph = Graph(*history)
    rows = graph.page()
    assert graph.page(start, start + length) == rows[start : start + length]
    assert graph.lanes == max(max((row.lane, *row.joins, *row.through)) for row in rows) + 1


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_histories(), st.integers(1, 5))
def test_a_graph_that_grew_is_the_graph_of_the_longer_history(
    history: tuple[list[Checkpoint], str], added: int
) -> None:
    checkpoints, head = history
    count = len(checkpoints)
    newer = [_checkpoint(count + i, int(head[1:]) if i == 0 else count + i - 1, 41 + i) for i in range(added)]
    graph = Graph(checkpoints, head)
    graph.extend(newer)
    whole = Graph([*checkpoints, *newer], newer[-1].id)
    assert (graph.page(), graph.lanes, graph.head) == (whole.page(), whole.lanes, whole.head)
    assert [*graph.trail()] == [*whole.trail()]
    assert graph.checkpoints().keys() == whole.checkpoints().keys()


def test_the_first_page_of_many_branches_does_not_look_at_the_rows_below_it() -> None:
    checkpoints = [_checkpoint(0, None, 0), *(_checkpoint(i, 0, i) for i in range(1, 2000))]
    graph = Graph(checkpoints, "c0")
    looked_at = 0

    class Counted(list[Checkpoint]):
        def __reversed__(self) -> Any:
            nonlocal looked_at
            for checkpoint in super().__reversed__():
                looked_at += 1
                yield checkpoint

    graph._oldest_first = Counted(graph._oldest_first)
    assert len(graph.page(0, 20)) == 20
    assert looked_at <= 20
