"""Looking into a snapshot: folders and files, without a restore."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from backtrail import NotFound


def test_folders_are_listed_and_files_read_from_every_store(tmp_path: Path, everywhere: Any) -> None:
    root = tmp_path / "project"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "deep.txt").write_bytes(b"deep")
    (root / "large.bin").write_bytes(os.urandom(3_000_000))
    (root / "link").symlink_to("large.bin")
    large = (root / "large.bin").read_bytes()
    workspace = everywhere.workspace(root, cache=False)
    snapshot = workspace.snapshot()
    for name in ("large.bin", "link", "a/b/deep.txt"):
        (root / name).unlink()
    kinds = [(one.name, one.kind, one.size) for one in workspace.entries(snapshot)]
    assert kinds == [("a", "folder", 0), ("large.bin", "file", 3_000_000), ("link", "link", kinds[2][2])]
    assert [one.name for one in workspace.entries(snapshot, "a/b")] == ["deep.txt"]
    assert workspace.read(snapshot, "a/b/deep.txt") == b"deep"
    assert workspace.read(snapshot, "large.bin") == large
    for path in ("a", "link", "nothing", "a/nothing", "a/b/deep.txt/x", "..", "../s.db", ""):
        with pytest.raises(NotFound):
            workspace.read(snapshot, path)
    with pytest.raises(NotFound):
        workspace.entries(snapshot, "large.bin")
    assert not (root / "large.bin").exists()
