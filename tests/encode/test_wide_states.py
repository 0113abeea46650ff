"""Reading a wide state is linear work: each row's headers are read once, and each page is unpacked once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.encode import assemble, tree_walks
from backtrail.encode.payload_format import Payload
from backtrail.store import Thread

TEXT = "a document of about one kilobyte " * 31


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often payloads and pages are unpacked, and how many rows are asked for a stream."""
    counts: Counter[str] = Counter()

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            counts[name] += 1
            return function(*args)

        return call

    monkeypatch.setattr(assemble, "Payload", counted("payloads", Payload))
    monkeypatch.setattr(assemble, "unpack_page", counted("pages", assemble.unpack_page))
    monkeypatch.setattr(Payload, "sections", counted("sections", Payload.sections))
    return counts


@pytest.fixture
def thread() -> Thread[Any]:
    return backtrail.open("memory:").thread("t")


def documents(count: int) -> dict[str, str]:
    return {f"doc {n}": f"{n} {TEXT}" for n in range(count)}


@pytest.mark.parametrize("count", [300, 1200])
def test_a_wide_dict_unpacks_its_row_once_and_each_page_once(
    thread: Thread[Any], work: Counter[str], count: int
) -> None:
    state = {"docs": documents(count)}
    thread.save(state)
    for read in (thread.load, lambda: thread.pick(["docs"])):
        work.clear()
        found = read()
        assert found == state and list(found["docs"]) == list(state["docs"])
        assert work["payloads"] == 1
        assert work["pages"] <= 2 + count / 8


def test_a_wide_dict_that_was_loaded_is_loaded_and_saved_again_without_its_pages(
    tmp_path: Path, work: Counter[str]
) -> None:
    state = {"docs": documents(300)}
    with backtrail.open(tmp_path / "store.db") as store:
        store.thread("t").save(state)
    with backtrail.open(tmp_path / "store.db") as store:
        assert store.thread("t").load() == state
        assert work["pages"] > 2
        work.clear()
        assert store.thread("t").load() == state
        state["docs"]["doc 7"] = "another"
        store.thread("t").save(state)
        assert store.thread("t").load() == state
        assert work["pages"] == 0


def test_the_nodes_of_a_wide_dict_are_visited_once(thread: Thread[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"docs": documents(300)}
    visited: list[int] = []
    find = tree_walks._find_runs
    monkeypatch.setattr(tree_walks, "_find_runs", lambda nodes: visited.append(len(nodes)) or find(nodes))
    thread.save(state)
    for _ in range(3):
        assert thread.load() == state
    assert [count for count in visited if count > 1] == [300]


def test_a_wide_dict_keeps_its_order_whatever_its_values_are_and_wherever_they_lie(thread: Thread[Any]) -> None:
    kinds: list[Any] = [TEXT, 1, [TEXT] * 3, {"a": TEXT, "b": {"c": TEXT * 2}}, "short", TEXT * 9]
    docs: dict[str, Any] = {f"doc {n}": kinds[n % len(kinds)] for n in range(240)}
    thread.save({"docs": docs})
    for n in (3, 77, 78, 200):
        docs[f"doc {n}"] = f"{n} {TEXT}"
        thread.save({"docs": docs})
        found = thread.load()["docs"]
        assert found == docs and list(found) == list(docs)


@pytest.mark.parametrize("count", [100, 400])
def test_many_long_lists_in_one_row_unpack_it_once(thread: Thread[Any], work: Counter[str], count: int) -> None:
    state = {"notes": {f"list {n}": [f"{n} {TEXT}", TEXT] for n in range(count)}}
    thread.save(state)
    work.clear()
    assert thread.load() == state
    assert work["payloads"] == 1
    assert work["sections"] == count


def test_lists_that_grow_in_turns_are_found_without_visiting_each_others_rows(
    thread: Thread[Any], work: Counter[str]
) -> None:
    lists: dict[str, Any] = {f"list {n}": [TEXT] for n in range(20)}
    thread.save(lists)
    for turn in range(400):
        key = f"list {turn % 20}"
        lists[key].append(f"{turn}")
        thread.append(key, [f"{turn}"])
    work.clear()
    assert thread.load() == lists
    assert work["payloads"] <= 401
    assert work["sections"] <= 20 + 400


@pytest.mark.parametrize("shape", ["text", "dict", "record in a dict", "list", "mixed"])
def test_a_wide_dict_of_any_shape_comes_back_in_its_order(thread: Thread[Any], shape: str) -> None:
    def value(n: int) -> Any:
        whole = {
            "text": f"{n} {TEXT}",
            "dict": {"id": n, "body": {"text": f"{n} {TEXT}", "tags": ["a", n], "long": [TEXT, n, TEXT]}, "ok": True},
            "record in a dict": {"it": backtrail.Unregistered("Doc", {"n": n, "text": TEXT * 2}), "n": n},
            "list": [n, TEXT, {"n": n}],
        }
        return whole[shape] if shape != "mixed" else [*whole.values(), n, TEXT * 5][n % 6]

    state = {f"key {n}": value(n) for n in range(200)}
    thread.save({"docs": state})
    assert thread.load() == {"docs": state} and list(thread.load()["docs"]) == list(state)
    state["key 7"], state["new"] = "changed", value(8)
    del state["key 100"]
    thread.save({"docs": state})
    assert thread.load() == {"docs": state} and list(thread.load()["docs"]) == list(state)


def test_a_step_that_adds_one_document_writes_little(thread: Thread[Any]) -> None:
    docs = documents(600)
    thread.save({"docs": docs})
    docs["one more"] = TEXT
    assert thread.save({"docs": docs}).written < 12_000


def test_a_list_is_read_again_with_more_of_its_rows() -> None:
    """Rows that are fetched twice by one reader, the second time with others, are not counted twice."""
    from backtrail.encode.assemble import Assembler, FetchedRows
    from backtrail.encode.frame import BEFORE, BEHIND
    from backtrail.encode.payload_format import Section, pack_payload
    from backtrail.encode.record_types import Types
    from backtrail.encode.row_format import Piece
    from backtrail.encode.values import Values

    values, rows, branch = Values(Types()), FetchedRows(), bytes(16)
    frames = {
        step: BEFORE + pack_payload([Section(0, step - 1, 1, 0, values.encode(step))], [b"\xc0"]) + BEHIND
        for step in range(1, 7)
    }
    assembler = Assembler(values, rows, {})
    for last in (3, 5, 6):
        rows.add(branch, range(1, last + 1), [frames[step] for step in range(1, last + 1)])
        assert assembler.piece(Piece(branch, 0, 0, last, 1, last, 0, 0)) == list(range(1, last + 1))
