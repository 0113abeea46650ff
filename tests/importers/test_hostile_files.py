"""Files to import that mean harm: nothing outside is read, nothing hangs, and the rest is imported."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.importers import FORMATS, claude_code, source_files

from .conftest import write_lines

GOOD = [{"role": "user", "content": "good"}]
PRIVATE = [{"role": "user", "content": "a private conversation"}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory to import, with one good file; beside it is a private one."""
    write_lines(tmp_path / "private.jsonl", PRIVATE)
    inside = tmp_path / "inside"
    inside.mkdir()
    write_lines(inside / "good.jsonl", GOOD)
    return inside


def ids(lines: Any) -> list[str]:
    return sorted(Path(line.source).name for line in lines)


def test_links_in_a_directory_are_named_and_not_followed(store: Any, folder: Path) -> None:
    (folder / "link.jsonl").symlink_to(folder.parent / "private.jsonl")
    (folder / "dangling.json").symlink_to(folder / "nowhere")
    (folder / "up").symlink_to(folder.parent, target_is_directory=True)
    (folder / "round").symlink_to(folder, target_is_directory=True)
    report = store.import_(folder)
    assert ids(report.imported) == ["good.jsonl"]
    assert ids(report.failed) == ["dangling.json", "link.jsonl"]
    assert all("not followed" in line.reason for line in report.failed)


def test_a_link_that_the_user_names_is_followed(store: Any, folder: Path) -> None:
    link = folder.parent / "mine.jsonl"
    link.symlink_to(folder.parent / "private.jsonl")
    assert [line.id for line in store.import_(link).imported] == ["mine"]


@pytest.mark.parametrize("name", ["pipe.json", "pipe.jsonl", "good.meta.json"])
def test_a_fifo_does_not_hang_the_import(store: Any, folder: Path, name: str) -> None:
    os.mkfifo(folder / name)
    report = store.import_(folder)
    assert ids(report.imported) == ["good.jsonl"]
    assert ids(report.failed) == ([name] if name.startswith("pipe") else [])


def test_a_meta_file_that_is_a_link_is_not_read(store: Any, folder: Path) -> None:
    (folder.parent / "secret.json").write_text(json.dumps({"key": "stolen", "summary": "stolen"}))
    (folder / "good.meta.json").symlink_to(folder.parent / "secret.json")
    report = store.import_(folder)
    assert [line.id for line in report.imported] == ["good"]
    assert "not followed" in report.notes[0].reason


def test_a_file_over_the_limit_is_named_and_the_rest_is_imported(
    store: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_files, "MAX_BYTES", 1000)
    write_lines(folder / "large.jsonl", GOOD * 100)
    report = store.import_(folder)
    assert ids(report.imported) == ["good.jsonl"]
    assert ids(report.failed) == ["large.jsonl"]


def test_a_damaged_thread_of_the_same_id_does_not_stop_the_import(folder: Path, tmp_path: Path) -> None:
    write_lines(folder / "also.jsonl", GOOD)
    path = tmp_path / "store.db"
    with backtrail.open(path) as store:
        store.session("good").append({"role": "user", "content": "x" * 500})
    with sqlite3.connect(path) as database:
        database.execute("UPDATE steps SET root = zeroblob(length(root)), meta = zeroblob(length(meta))")
    database.close()
    with backtrail.open(path) as store:
        report = store.import_(folder)
        assert ids(report.imported) == ["also.jsonl"]
        assert ids(report.failed) == ["good.jsonl"]
        assert "damaged" in report.failed[0].reason


def test_a_long_chain_of_a_sub_agent_is_read_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0
    parent = claude_code._parent

    def counted(entry: dict[str, Any]) -> Any:
        nonlocal asked
        asked += 1
        return parent(entry)

    monkeypatch.setattr(claude_code, "_parent", counted)
    entries = {
        str(n): {"uuid": str(n), "parentUuid": str(n - 1), "isSidechain": True, "type": "user", "message": GOOD[0]}
        for n in range(5000)
    }
    assert set(claude_code._owners(entries).values()) == {"sidechain-0"}
    assert set(claude_code._owners(dict(reversed(entries.items()))).values()) == {"sidechain-0"}
    assert asked <= 2 * len(entries)


def test_a_chain_that_leads_into_itself_ends() -> None:
    entries = {n: {"uuid": n, "parentUuid": p, "isSidechain": True} for n, p in (("a", "b"), ("b", "c"), ("c", "b"))}
    assert len(set(claude_code._owners(entries).values())) == 1


@pytest.mark.parametrize("format", [None, *FORMATS])
def test_no_format_rebuilds_objects_or_changes_its_source(store: Any, tmp_path: Path, format: str | None) -> None:
    mark, source = tmp_path / "it-ran", tmp_path / "source"
    source.mkdir()
    command = f"touch {mark}"
    calls = [
        {"lc": 2, "type": "constructor", "id": ["os", "system"], "args": [command], "kwargs": {}},
        {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": command}},
        {"$type": "os.system", "value": command},
        {"py/object": "os.system", "py/reduce": [{"py/function": "os.system"}, {"py/tuple": [command]}]},
        {"__class__": "os.system", "__reduce__": [command]},
    ]
    messages = [{"role": "user", "content": call, **call} for call in calls]
    write_lines(source / "talk.jsonl", messages)
    (source / "state.json").write_text(
        json.dumps({"messages": messages, "task": "t", "iteration": 1, "custom": calls[0]})
    )
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in source.iterdir()}
    store.import_(source, format)
    for info in store.threads():
        store.thread(info.id).load()
    assert not mark.exists()
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in source.iterdir()} == before
