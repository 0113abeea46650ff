"""Bad input: one clear typed error each, nothing is changed, and the store stays usable."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.errors import InvalidInput, Unavailable, UnsupportedFormat


@pytest.mark.parametrize("id", ["", "x" * 10_000, "a\0b", None, 5, b"bytes", ["t"], "\ud800"], ids=repr)
def test_an_id_that_cannot_be_one_is_refused(store: Any, id: Any) -> None:
    with pytest.raises(InvalidInput, match="thread id"):
        store.thread(id)
    store.thread("t").save({})
    with pytest.raises(InvalidInput):
        store.thread("t").fork(id) if id is not None else store.thread("t").rewind(None)
    assert [info.id for info in store.threads()] == ["t"]


HOSTILE = [
    *("../../etc/passwd", "/", ".", "a/b", "\U0001f9f5", "\n", "\x1f", "con", "x" * 512),
    *("\u00e9", "e\u0301", "\u0410", "A", "a", "a "),  # look-alikes: composed and decomposed, Cyrillic and Latin
    *("a%", "a_", "a*", "a:b", "a_b", "lock:x", "'; DROP TABLE heads; --", "{a}", "[1]"),
]


def test_hostile_and_look_alike_ids_are_names_like_any_other(store: Any) -> None:
    for n, id in enumerate(HOSTILE):
        store.thread(id).save({"n": n})
    for n, id in enumerate(HOSTILE):
        assert store.thread(id).load() == {"n": n}
        assert id in [info.id for info in store.threads(prefix=id)]
    assert store.count() == len(HOSTILE)
    assert [info.id for info in store.threads()] == sorted(HOSTILE)


def test_an_at_that_names_nothing_is_refused(store: Any) -> None:
    thread, other = store.thread("t"), store.thread("other")
    thread.save({"n": 1})
    foreign = other.save({"n": 2})
    for at in (0, 2, -2, 10**12, "zzzz", "", "ffff", foreign, foreign.id, "x" * 100):
        with pytest.raises(backtrail.CheckpointNotFound, match="'t' has no checkpoint"):
            thread.load(at)
    for at in (1.5, True, [], {}):
        with pytest.raises(InvalidInput):
            thread.load(at)
    with pytest.raises(backtrail.CheckpointNotFound):
        thread.rewind(foreign.id)
    fork = thread.fork()
    kept = fork.save({"n": "fork"})
    with pytest.raises(backtrail.CheckpointNotFound, match="belongs to another thread"):
        thread.load(kept)
    assert thread.load() == {"n": 1}


def test_a_thread_that_does_not_exist_is_named(store: Any) -> None:
    nobody = store.thread("nobody")
    calls = [nobody.load, nobody.undo, nobody.fork, nobody.delete, lambda: nobody.get(1), lambda: nobody.rewind(1)]
    for call in calls:
        with pytest.raises(backtrail.ThreadNotFound, match="'nobody' does not exist"):
            call()
    assert nobody.head is None
    assert nobody.step == 0
    assert not nobody.exists()


def test_limits_and_facts_are_checked(store: Any) -> None:
    thread = store.thread("t")
    thread.save({"n": 1})
    for limit in (-1, 1.5, "3", True):
        with pytest.raises(InvalidInput, match="limit"):
            thread.history(limit=limit)
        with pytest.raises(InvalidInput, match="limit"):
            store.threads(limit=limit)
    bad: list[dict[str, Any]] = [
        {"label": ""},
        {"label": 5},
        {"label": "x" * 513},
        {"tags": "text"},
        {"tags": [1]},
        {"tags": 5},
        {"custom": [1]},
        {"custom": {1: 2}},
        {"custom": {"a": object()}},
        {"id": "no uuid"},
        {"id": 5},
        {"expect": 1.5},
        {"parent": True},
        {"on_conflict": "shrug"},
    ]
    for facts in bad:
        with pytest.raises(InvalidInput):
            thread.save({"n": 2}, **facts)
    for every in (0, -1, 1.5):
        with pytest.raises(InvalidInput):
            thread.autosave(every=every)
    with pytest.raises(InvalidInput):
        thread.append("messages", "text")
    with pytest.raises(InvalidInput):
        thread.update([1])
    assert thread.step == 1


def test_a_closed_store_says_so(opener: Any) -> None:
    store = opener()
    thread = store.thread("t")
    thread.save({"n": 1})
    store.close()
    store.close()
    calls = [thread.load, thread.history, lambda: thread.save({}), lambda: thread.append("a", [1]), store.threads]
    for call in [*calls, store.ping, store.stats, lambda: store.thread("x"), lambda: thread.fork("f")]:
        with pytest.raises(Unavailable, match="closed"):
            call()


@pytest.mark.parametrize(
    ("target", "options", "hint"),
    [
        ("nosuch://x", {}, "sqlite:"),
        ("memory:", {"colour": 1}, "compression"),
        ("memory:?colour=1", {}, "compression"),
        ("memory:", {"compression": "lzma"}, "zstd"),
        ("memory:", {"compression_level": 99}, "1 to 19"),
        ("memory:", {"detect": "guess"}, "exact"),
        ("memory:?detect=exact", {"detect": "exact"}, "twice"),
        ("memory:", {"types": [5]}, "classes"),
        ("memory:", {"types": [int]}, "cannot be registered"),
        ("", {}, "path or a URL"),
        (5, {}, "path, a URL"),
        ("a\0b", {}, "path or a URL"),
    ],
)
def test_what_open_cannot_use_is_refused_with_a_hint(target: Any, options: Any, hint: str) -> None:
    with pytest.raises(InvalidInput, match=hint):
        backtrail.open(target, **options)


def test_a_wrong_option_creates_no_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        backtrail.open(tmp_path / "s.db", colour="red")
    with pytest.raises(InvalidInput):
        backtrail.open(f"sqlite:///{tmp_path}/s.db?durability=maybe")
    assert list(tmp_path.iterdir()) == []


def test_urls_and_paths_open_the_same_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    backtrail.open("s.db").thread("t").save({"n": 1})
    for target in ("sqlite:///s.db", f"sqlite:///{tmp_path}/s.db", tmp_path / "s.db", "sqlite:s.db?durability=normal"):
        assert backtrail.open(target).thread("t").load() == {"n": 1}


def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("dear diary " * 100)
    other = tmp_path / "other.db"
    database = sqlite3.connect(other)
    database.execute("CREATE TABLE t (x)")
    database.commit()
    database.close()
    for path in (text, other, tmp_path):
        before = path.read_bytes() if path.is_file() else sorted(tmp_path.iterdir())
        with pytest.raises(UnsupportedFormat):
            backtrail.open(path)
        assert (path.read_bytes() if path.is_file() else sorted(tmp_path.iterdir())) == before


def test_store_files_are_for_their_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        store = backtrail.open(tmp_path / "s.db")
        store.thread("t").save({"n": 1})
        assert {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()} == {
            path.name: "0o600" for path in tmp_path.iterdir()
        }
        store.close()
    finally:
        os.umask(old)


def test_a_state_that_fails_half_way_leaves_the_thread_usable(store: Any) -> None:
    thread = store.thread("t")
    state: dict[str, Any] = {"messages": ["x" * 300] * 10, "plan": "p" * 500}
    thread.save(state)
    with pytest.raises(backtrail.EncodeError):
        thread.save({"messages": [*state["messages"], "new"], "plan": object()})
    with pytest.raises(backtrail.EncodeError):
        thread.append("messages", ["fine", object()])
    assert thread.load() == state
    state["messages"].append("after")
    assert thread.save(state).step == 2
    assert thread.load() == state
