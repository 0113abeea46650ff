"""Comparing checkpoints of one thread, of threads of a lineage, and of unrelated threads, on every engine."""

from __future__ import annotations

from typing import Any

import pytest

import backtrail

LONG = [{"role": "user", "content": f"message {n}, " * 10} for n in range(60)]


def changes(diff: backtrail.Diff) -> list[tuple[str, str]]:
    return [(change.kind, change.path) for change in diff.changes]


def test_threads_of_a_lineage_are_compared_directly_or_from_their_common_ancestor(everywhere: Any) -> None:
    a = everywhere.thread("a")
    a.save({"messages": LONG, "plan": "x"})
    b = a.fork("b")
    a.append("messages", ["of a"])
    b.update({"plan": "y"})
    b.append("messages", ["of b"])

    direct = a.diff(b.head)
    assert (direct.a, direct.b) == (b.head, a.head)
    assert changes(direct) == [("changed", "messages[60]"), ("changed", "plan")]
    assert changes(a.diff(a.head, b.head)) == changes(b.diff(a.head))
    assert changes(a.diff(b.head.id)) == changes(direct)

    own = a.diff(b.head, since_fork=True)
    assert (own.a.step, changes(own)) == (1, [("added", "messages[60]")])
    theirs = a.diff("@", b.head, since_fork=True)
    assert changes(theirs) == [("added", "messages[60]"), ("changed", "plan")]
    assert a.common_ancestor(b.head).id == b.common_ancestor(a.head).id == a.get(1).id
    assert not a.diff(b.get(1), 1)


def test_siblings_and_forks_of_forks_are_related(everywhere: Any) -> None:
    root = everywhere.thread("root")
    for n in range(1, 6):
        root.save({"n": n})
    one, two = root.fork("one", at=2), root.fork("two", at=4)
    one.save({"n": "one"})
    three = two.fork("three")
    three.save({"n": "three"})
    assert one.common_ancestor(three.head).step == three.common_ancestor(one.head).step == 2
    assert three.common_ancestor(root.head).step == 4
    assert changes(one.diff(three.head)) == [("changed", "n")]
    two.delete()
    assert changes(one.diff(three.head)) == [("changed", "n")]


def test_unrelated_threads_are_compared_directly(everywhere: Any) -> None:
    a, b = everywhere.thread("a"), everywhere.thread("b")
    a.save({"messages": LONG, "plan": "x", "deep": {"wide": {"a": 1, "b": "text " * 100}}, "same": [1, 2]})
    b.save({"messages": LONG[:59], "plan": "y", "deep": {"wide": {"a": 2, "b": "text " * 100}}, "same": [1, 2]})
    found = b.diff(a.head)
    assert changes(found) == [("removed", "messages[59]"), ("changed", "plan"), ("changed", "deep.wide.a")]
    assert str(found).startswith("'a' step 1 -> 'b' step 1: 3 changes")
    assert a.common_ancestor(b.head) is None
    with pytest.raises(backtrail.NoCheckpoint, match="no checkpoint in common"):
        a.diff(b.head, since_fork=True)


def test_a_checkpoint_that_is_gone_or_only_named_is_refused(store: Any) -> None:
    a = store.thread("a")
    a.save({"n": 1})
    b = a.fork("b")
    gone = b.save({"n": 2}, label="theirs")
    b.save({"n": 3})
    with pytest.raises(backtrail.CheckpointNotFound):
        a.diff("theirs")  # a name is one of this thread's own
    b.delete(gone)
    with pytest.raises(backtrail.CheckpointNotFound):
        a.diff(gone)
    other = store.thread("other")
    deleted = other.save({"n": 4})
    other.delete()
    with pytest.raises(backtrail.CheckpointNotFound):
        a.diff(deleted)


def test_deleted_checkpoints_are_not_a_common_ancestor(store: Any) -> None:
    a = store.thread("a")
    for n in range(1, 4):
        a.save({"n": n})
    b = a.fork("b")
    b.save({"n": "b"})
    a.save({"n": "a"})
    a.delete(3)
    assert a.common_ancestor(b.head).step == b.common_ancestor(a.head).step == 2


def test_a_comparison_within_a_lineage_reads_only_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    from backtrail.engines.memory import MemoryEngine

    engine = MemoryEngine()
    with backtrail.open(engine) as store:
        a: Any = store.thread("a")
        a.save({"messages": []})
        for message in LONG:
            a.append("messages", [message])
        b = a.fork("b")
        b.append("messages", ["of b"])
        read: list[int] = []
        plain = engine.rows

        async def counting(*args: Any, **kwargs: Any) -> Any:
            found = await plain(*args, **kwargs)
            read.append(len(found))
            return found

        monkeypatch.setattr(engine, "rows", counting)
        assert changes(a.diff("@", b.head)) == [("added", "messages[60]")]
        assert sum(read) <= 3


def test_the_repr_of_a_difference_is_short(store: Any) -> None:
    thread = store.thread("t")
    thread.save({"text": "a" * 10_000})
    thread.save({"text": "b" * 10_000})
    assert repr(thread.diff(1)) == "<backtrail.Diff step 1 -> step 2: 1 change>"


def test_without_arguments_the_last_two_checkpoints_are_compared(store: Any) -> None:
    thread = store.thread("t")
    thread.save({"n": 1})
    with pytest.raises(backtrail.CheckpointNotFound, match="nothing comes before it"):
        thread.diff()
    thread.save({"n": 2})
    assert (thread.diff().a.step, thread.diff().b.step) == (1, 2)
