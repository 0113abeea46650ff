"""Sessions rewound together with a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import backtrail


def test_a_rewind_with_files_moves_both_or_neither(store: Any, tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "app.py").write_text("one")
    workspace = store.workspace(root)
    session = store.session("s")
    session.add("user", "write two", id="m1")
    session.snapshot("m1", files=workspace)
    (root / "app.py").write_text("two")
    session.add("user", "now three", id="m2")
    session.snapshot("m2")
    session.rewind("m1", files=True)
    assert (root / "app.py").read_text() == "one"
    assert session.ids() == ["m1"]
    session.thread.undo()
    with pytest.raises(backtrail.NoCheckpoint):
        session.rewind("m2", files=True)
    assert session.ids() == ["m1", "m2"]


def test_files_that_are_not_a_workspace_are_refused(store: Any) -> None:
    with pytest.raises(backtrail.InvalidInput, match="files"):
        store.session("s").snapshot("m", files=3)
    assert not store.session("s").exists()
