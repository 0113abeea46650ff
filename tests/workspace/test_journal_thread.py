"""The thread that is a workspace's journal can be written by the workspace alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import backtrail


@pytest.mark.parametrize(
    "write",
    [
        lambda store, name: store.thread(name).save({"n": 1}),
        lambda store, name: store.thread(name).append("messages", [1]),
        lambda store, name: store.thread(name).update({"n": 1}),
        lambda store, name: store.session(name).add("user", "hi"),
        lambda store, name: store.run(name).checkpoint(),
        lambda store, name: store.thread(name).annotate(1, custom={}),
    ],
)
def test_no_other_writer_can_hide_the_snapshots(
    write: Callable[[backtrail.Store, str], object], tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    with backtrail.open("memory:") as store:
        workspace = store.workspace(tmp_path, cache=False)
        taken = workspace.snapshot()
        with pytest.raises(backtrail.InvalidInput, match="workspace"):
            write(store, workspace.name)
        assert workspace.snapshots() == [taken]
        store.thread(workspace.name).annotate(1, label="known")
        assert [one.label for one in workspace.snapshots()] == ["known"]
        (tmp_path / "a.txt").write_text("two\n")
        workspace.restore(taken)
        assert (tmp_path / "a.txt").read_text() == "one\n"
