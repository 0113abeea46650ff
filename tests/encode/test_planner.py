"""Plans reuse what is unchanged; roots and loads stay bounded whatever is done to a list."""

from __future__ import annotations

import random
from typing import Any

import pytest

import backtrail
from backtrail.encode.piece_table import MAX_PIECES, bytes_read
from backtrail.encode.row_format import ListNode
from backtrail.store import Thread

WORDS = "the agent wrote a file and ran the tests again because one of them had failed "


def item(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"{number} {WORDS * (1 + number % 4)}"}


def listing(thread: Thread[Any], key: str = "messages") -> ListNode:
    from backtrail.engines.coroutines import finish

    root = finish(thread._core.read_root()).root
    node = (root.tree.children or {})[key]
    assert isinstance(node, ListNode)
    return node


@pytest.fixture
def thread() -> Thread[Any]:
    return backtrail.open("memory:").thread("t")


def test_an_append_extends_the_one_piece_there_is(thread: Thread[Any]) -> None:
    items: list[Any] = []
    for n in range(200):
        items.append(item(n))
        if n % 3:
            thread.save({"messages": items})
        else:
            thread.append("messages", [items[-1]])
    assert len(listing(thread).pieces) == 1
    assert thread.load() == {"messages": items}


def test_the_root_stays_the_same_size_for_ever(thread: Thread[Any]) -> None:
    overhead = [thread.append("messages", [item(4)]).written for _ in range(2000)]
    settled = overhead[10:]  # the first items are short enough to lie in the root itself
    assert max(settled) - min(settled) <= 16


@pytest.mark.parametrize(
    ("edit", "limit"),
    [
        (lambda items: [*items[:500], item(9), *items[501:]], 1500),
        (lambda items: items[:-3], 700),
        (lambda items: items[100:], 700),
        (lambda items: [*items[300:], item(8)], 1500),
        (lambda items: [item(7), *items], 1500),
        (lambda items: items[:200] + items[700:], 900),
        (lambda items: items[500:] + items[:500], 900),
        (lambda items: [*items[:-1], {**items[-1], "done": True}], 1500),
    ],
    ids=["middle", "end cut", "front cut", "window", "front insert", "hole", "swap", "last"],
)
def test_an_edit_reuses_what_is_unchanged(thread: Thread[Any], edit: Any, limit: int) -> None:
    items = [item(n) for n in range(1000)]
    thread.save({"messages": items[:400]})
    for n in range(400, 1000, 20):
        thread.append("messages", items[n : n + 20])
    edited = edit(items)
    saved = thread.save({"messages": edited})
    assert thread.load() == {"messages": edited}
    assert saved.written < limit
    assert thread.load(saved.step - 1) == {"messages": items}


def test_replacing_everything_writes_everything_once(thread: Thread[Any]) -> None:
    thread.save({"messages": [item(n) for n in range(100)]})
    other = [item(n + 1000) for n in range(100)]
    saved = thread.save({"messages": other})
    assert saved.written == pytest.approx(saved.size, rel=0.1)
    assert thread.load() == {"messages": other}


@pytest.mark.parametrize("seed", range(6))
def test_random_edits_keep_tables_short_and_loads_lean(thread: Thread[Any], seed: int) -> None:
    rng = random.Random(seed)
    items = [item(n) for n in range(300)]
    thread.save({"messages": items})
    written = 0
    for n in range(250):
        at = rng.randrange(len(items) + 1)
        items = items[:]
        match rng.randrange(5):
            case 0:
                items[at:at] = [item(1000 + n)]
            case 1:
                items[at : at + rng.randrange(4)] = []
            case 2:
                items[at : at + 1] = [item(2000 + n)]
            case 3:
                items.append(item(3000 + n))
            case 4:
                if n % 25 == 0:
                    items = [*items[len(items) // 2 :], item(n)]
        items = items or [item(0)]
        written += thread.save({"messages": items}).written
        node = listing(thread)
        assert len(node.pieces) <= MAX_PIECES + 1
        assert bytes_read(node.pieces) <= 2 * node.size + 70_000
        assert node.count == len(items)
    assert thread.load() == {"messages": items}
    assert written < 250 * 300 * len(WORDS)  # a whole-state store would have written more than twice that


def test_many_forks_of_forks_stay_short(thread: Thread[Any]) -> None:
    current = thread
    expected: list[Any] = []
    for n in range(3 * MAX_PIECES):
        expected.append(item(n))
        current.append("messages", [item(n)])
        current = current.fork(f"fork {n}")
        current.load()
    assert current.load() == {"messages": expected}
    assert len(listing(current).pieces) <= MAX_PIECES + 1


def test_lists_at_any_depth_grow_at_the_cost_of_what_is_new(thread: Thread[Any]) -> None:
    state = {"agents": {"planner": {"log": [item(n) for n in range(200)]}, "coder": {"log": [item(1)] * 50}}}
    thread.save(state)
    state["agents"]["planner"]["log"].append(item(5))
    assert thread.save(state).written < 1500
    assert thread.load() == state


def test_an_unchanged_state_writes_next_to_nothing(thread: Thread[Any]) -> None:
    state = {"messages": [item(n) for n in range(50)], "doc": WORDS * 10, "big": WORDS * 5000, "n": 1}
    thread.save(state)
    assert thread.save(state).written < 400
    assert thread.load() == state


def test_a_large_string_is_one_blob_however_often_it_is_saved(thread: Thread[Any]) -> None:
    big = WORDS * 2000
    first = thread.save({"a": big, "b": big})
    assert first.written < 1.1 * len(big)
    thread.update({"a": "small"})
    assert thread.update({"c": big}).written < 1.1 * len(big)
    assert thread.load() == {"a": "small", "b": big, "c": big}


def test_no_payload_is_read_for_the_history_and_few_for_the_last_items() -> None:
    from backtrail.engines.memory import MemoryEngine

    engine = MemoryEngine()
    thread = backtrail.open(engine).thread("t")
    for n in range(1000):
        thread.append("messages", [item(n)])
    reads: list[tuple[int, int]] = []
    plain = engine.payloads

    async def counted(lineage: str, branch: bytes, first: int, last: int) -> list[tuple[int, bytes]]:
        reads.append((first, last))
        return await plain(lineage, branch, first, last)

    engine.payloads = counted  # type: ignore[method-assign]  # counts what the store asks for
    cold = backtrail.open(engine).thread("t")
    cold.history()
    cold.append("messages", [item(1)])
    cold.fork()
    assert reads == []
    cold.tail("messages", 50)
    assert reads == [(952, 1001)]


def test_a_wide_dict_within_a_wide_dict_stays_where_it_was_written(thread: Thread[Any]) -> None:
    inner = {f"fact {n}": item(n) for n in range(40)}
    state: dict[str, Any] = {"agent": {**{f"note {n}": item(n) for n in range(40)}, "memory": inner}, "n": 0}
    thread.save(state)
    for n in range(40):  # each of them is on one page of the outer dict, and one of these holds the inner dict's pages
        state["agent"][f"note {n}"] = "changed"
        thread.save(state)
        assert backtrail.open(thread._core.context.engine).thread("t").load() == state
    inner["fact 1"] = "changed"
    thread.save(state)
    assert thread.load() == state
    assert backtrail.open(thread._core.context.engine).verify().ok


def test_a_text_that_changes_at_every_step_is_no_dead_weight_between_the_items_of_a_list() -> None:
    from backtrail.engines.memory import MemoryEngine

    engine = MemoryEngine()
    thread: Thread[Any] = backtrail.open(engine).thread("t")
    for n in range(200):
        thread.update({"plan": f"{n} " + WORDS * 100}, append=("messages", [item(n)]))
    reads: list[int] = []
    plain = engine.payloads

    async def counted(lineage: str, branch: bytes, first: int, last: int) -> list[tuple[int, bytes]]:
        found = await plain(lineage, branch, first, last)
        reads.extend(len(data) for _, data in found)
        return found

    engine.payloads = counted  # type: ignore[method-assign]  # counts what the store asks for
    cold = backtrail.open(engine)
    cold.thread("t").load()
    assert sum(reads) < 2 * cold.thread("t").head.size
    cold.prune(backtrail.Retention(keep_last=1))
    assert cold.stats()["bytes"] < 2.1 * cold.thread("t").head.size  # with the mark of each deleted checkpoint
