"""The command line as a new user meets it: no store yet, another name, help, narrow terminals."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

import backtrail
from backtrail.cli import output

from .conftest import Run


def test_a_store_beside_the_one_that_is_not_there_is_suggested(run: Run, store_dir: Path) -> None:
    ended = run("threads", "-s", "agents.db")
    assert (ended.code, "a store beside it: backtrail.db" in ended.err) == (3, True)
    (store_dir / "backtrail.db").rename(store_dir / "agents.db")
    (store_dir / "notes.db").write_bytes(b"SQLite format 3\0" + bytes(100))
    (store_dir / "empty.db").touch()
    ended = run("threads")
    assert "a store beside it: agents.db" in ended.err
    assert "-s or BACKTRAIL_STORE" in ended.err
    backtrail.open(f"jsonl:{store_dir}/sessions").close()
    assert "stores beside it: agents.db, jsonl:sessions" in run("log", "talk").err
    assert run("threads", "-s", "jsonl:sessions").code == 0
    assert sorted(path.name for path in store_dir.iterdir() if path.name.startswith("backtrail.db")) == [
        name for name in ("backtrail.db-lock", "backtrail.db-lock-next") if (store_dir / name).exists()
    ]


def test_where_there_is_no_store_at_all_the_ways_to_name_one_are_said(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ended = run("threads", "-s", "empty/backtrail.db")
    assert (ended.code, "name one with -s or BACKTRAIL_STORE" in ended.err) == (3, True)
    assert "beside" not in ended.err
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_store_is_not_made_in_a_directory_that_is_not_there(run: Run, store_dir: Path) -> None:
    ended = run("files", "snapshot", "-s", "nowhere/agents.db")
    assert (ended.code, "there is no directory" in ended.err) == (3, True)
    assert not (store_dir / "nowhere").exists()


def test_files_alone_shows_its_help(run: Run) -> None:
    ended = run("files")
    assert (ended.code, ended.err) == (0, "")
    assert "Usage: backtrail files" in ended.out
    assert all(name in ended.out for name in ("snapshot", "restore", "diff", "undo"))


def test_an_unknown_kind_lists_the_known_ones(run: Run) -> None:
    ended = run("threads", "--kind", "walk")
    assert ended.code == 2
    assert all(kind in ended.err for kind in ("thread", "session", "run", "workspace"))


@pytest.mark.parametrize("width", [60, 80, 100])
def test_runs_keep_task_iteration_and_tokens_on_a_narrow_terminal(
    run: Run, store_dir: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with backtrail.open(store_dir / "backtrail.db") as store:
        job = store.run("nightly-2026-11-17-the-whole-inbox", task="summarise the inbox and clean up every folder")
        job.checkpoint(input_tokens=1_234_567, output_tokens=98_765)
    terminal = Console(width=width, force_terminal=True, color_system=None, theme=output.THEME)
    monkeypatch.setattr(output, "console", lambda **_: terminal)
    lines = run("runs").out.splitlines()
    assert all(word in lines[0] for word in ("task", "iteration", "tokens in/out"))
    assert all(word in lines[1] for word in ("summarise", " 1 ", "1,234,567 / 98,765"))
    assert max(map(len, lines)) <= width
