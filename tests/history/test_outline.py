"""An outline shows one level of a state at a time; `forks` names the last checkpoint in common."""

from __future__ import annotations

from typing import Any

import pytest

import backtrail


@pytest.fixture
def thread(store: Any) -> Any:
    thread = store.thread("t")
    thread.save(
        {"plan": {"steps": ["a", "b"], "note": "x" * 5000}, "n": 7, "text": "y" * 200_000, "raw": b"z" * 200_000}
    )
    for i in range(300):
        thread.append("messages", [{"role": "user", "content": f"message {i} " + "w" * 200}])
    return thread


def test_an_outline_names_kinds_counts_and_sizes_without_values(thread: backtrail.Thread[Any]) -> None:
    found = {part.name: part for part in thread.outline().parts}
    assert (found["messages"].kind, found["messages"].count, found["messages"].known) == ("list", 300, False)
    assert (found["plan"].kind, found["plan"].count) == ("dict", 2)
    assert (found["n"].value, found["n"].known) == (7, True)
    assert (found["text"].kind, found["text"].known, found["raw"].kind) == ("text", False, "bytes")
    assert found["text"].size >= 200_000


def test_a_path_leads_to_any_part(thread: backtrail.Thread[Any]) -> None:
    assert thread.outline(["plan", "steps", 1]).value == "b"
    assert thread.outline(["messages", 17, "content"]).value.startswith("message 17 ")
    assert thread.outline(["raw"]).value == b"z" * 200_000
    page = thread.outline(["messages"], start=290, stop=400)
    assert (page.count, page.start, [part.name for part in page.parts]) == (300, 290, list(range(290, 300)))
    assert thread.outline(["messages"], at=11, start=0, stop=0).count == 10


@pytest.mark.parametrize(
    "path", [["nope"], ["messages", 300], ["messages", "x"], ["plan", "steps", -1], ["n", "deeper"]]
)
def test_a_path_to_nothing_is_not_found(thread: backtrail.Thread[Any], path: list[str | int]) -> None:
    with pytest.raises(backtrail.NotFound, match="has nothing at"):
        thread.outline(path)


def test_a_path_is_a_sequence_and_bounds_are_numbers(thread: backtrail.Thread[Any]) -> None:
    with pytest.raises(backtrail.InvalidInput):
        thread.outline("messages")
    with pytest.raises(backtrail.InvalidInput):
        thread.outline(["messages"], start=-1)
    with pytest.raises(backtrail.InvalidInput, match="sequence of keys"):
        thread.outline(3)  # type: ignore[arg-type]


def test_forks_name_the_last_checkpoint_in_common(store: Any) -> None:
    thread = store.thread("t")
    steps = [thread.append("messages", [i]) for i in range(5)]
    child = thread.fork("child", at=3)
    child.append("messages", ["c"])
    grandchild = child.fork("grandchild")
    thread.rewind(2)
    thread.append("messages", ["other"])
    [one, two] = thread.forks()
    assert (one.thread_id, one.at, one.relation) == ("child", steps[2].id, "child")
    assert (two.thread_id, two.at) == ("grandchild", steps[2].id)
    relations = {fork.thread_id: (fork.step, fork.relation) for fork in grandchild.forks()}
    assert relations["child"] == (4, "parent")
    assert relations["t"][0] == 2
    with pytest.raises(backtrail.ThreadNotFound):
        store.thread("nobody").forks()


def test_pages_of_a_wide_dict_are_its_slices(store: Any) -> None:
    thread = store.thread("wide")
    wide = {f"key {i}": {"n": i} if i % 3 else "é" * i for i in range(2_000)}
    thread.save({"notes": wide})
    whole = thread.outline(["notes"]).parts
    assert [part.name for part in whole] == list(wide)
    for start, stop in ((0, 100), (0, 0), (37, 38), (1_990, 3_000), (2_000, 2_100), (5, None), (700, 1_400)):
        page = thread.outline(["notes"], start=start, stop=stop)
        assert (page.count, page.parts) == (2_000, whole[start:stop])


def test_a_difference_in_a_wide_state_is_found_on_whichever_page_it_is(store: Any) -> None:
    wide = {f"key {i}": "x" * 200 for i in range(1000)}
    thread = store.thread("t")
    first = thread.save({"notes": wide, "deep": {"inner": wide}})
    changed = {**wide, "key 500": "y", "new": {"a": wide}}
    del changed["key 7"]
    second = thread.save({"notes": changed, "deep": {"inner": wide}})
    found = {change.path: change.kind for change in thread.diff(first, second).changes}
    assert found == {'notes["key 500"]': "changed", 'notes["key 7"]': "removed", "notes.new": "added"}
    [whole] = [change for change in thread.diff(first, second).changes if change.kind == "added"]
    assert whole.new == {"a": wide}
    assert not thread.diff(second, second)
