"""Differences: between snapshots, and between a snapshot and the directory now."""

from __future__ import annotations

import os
from typing import Any

from .conftest import Project


def changed(changes: Any) -> dict[str, str]:
    return {change.path: change.kind for change in changes.changes}


def test_diff_shows_text_as_text_and_names_the_rest(project: Project) -> None:
    project.write("text", "one\ntwo\nthree\n")
    project.write("binary", b"\0\1")
    project.write("mode", "x", mode=0o644)
    os.symlink("here", project.root / "link")
    first = project.ws.snapshot()
    project.write("text", "one\n2\nthree\n")
    project.write("binary", b"\0\2")
    (project.root / "mode").chmod(0o755)
    (project.root / "link").unlink()
    os.symlink("there", project.root / "link")
    project.write("new", "hello")
    now = str(project.ws.diff(first))
    second = project.ws.snapshot()
    assert str(project.ws.diff(first, second)) == now
    assert "--- a/text\n+++ b/text\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three" in now
    assert "~ binary" in now
    assert "mode 644 -> 755 mode" in now
    assert "--> here\n+-> there" in now
    assert "--- /dev/null\n+++ b/new" in now
    assert not project.ws.diff(second)
    assert str(project.ws.diff(second, second)) == "nothing differs"
    assert changed(project.ws.diff(second, first, text=False))["new"] == "removed"


def test_status_shows_the_changes_that_the_next_snapshot_would_hold(project: Project) -> None:
    project.write("a", "12")
    project.write("b", "3")
    assert changed(project.ws.status()) == {"a": "added", "b": "added"}
    project.ws.snapshot()
    project.write("a", "45")
    (project.root / "b").unlink()
    status = project.ws.status()
    assert (status.files, status.bytes, changed(status)) == (1, 2, {"a": "changed", "b": "removed"})
    assert len(project.ws.snapshots()) == 1
