"""Property test: after random edits of random trees, a restore brings back every byte and every mode bit."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

import backtrail
from backtrail.engines.memory import MemoryEngine

from .conftest import Project

NAMES = st.sampled_from(
    [
        b"a",
        b"A",
        b"b c",
        b" lead",
        b"trail ",
        b"new\nline",
        "émoji 🧵".encode(),
        b"\xff\xfe broken",
        b"-rf",
        b"*",
        b"a.b",
        b"#x",
        b"!y",
        b"\\",
        b"~",
        b"'q'",
        b"x" * 200,
    ]
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(b"/".join)
CONTENT = st.one_of(st.binary(max_size=40), st.just(b"\0" * 5000), st.sampled_from([b"same", b"size"]))
MODES = st.sampled_from([0o644, 0o755, 0o600, 0o444, 0o700])
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("file"), PATHS, CONTENT, MODES),
        st.tuples(st.just("dir"), PATHS, st.sampled_from([0o755, 0o700, 0o750])),
        st.tuples(st.just("link"), PATHS, st.sampled_from([b"a", b"../x", b"/etc/passwd", b"\xff"])),
        st.tuples(st.just("remove"), PATHS),
        st.tuples(st.just("move"), PATHS, PATHS),
        st.tuples(st.just("chmod"), PATHS, MODES),
    ),
    max_size=12,
)


def clear(path: bytes) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def apply(root: bytes, edit: tuple[Any, ...]) -> None:
    """One edit, as a tool might make it: what is in the way goes."""
    kind, path = edit[0], os.path.join(root, edit[1])
    above = root
    for name in edit[1].split(b"/")[:-1]:
        above = os.path.join(above, name)
        if os.path.islink(above) or not os.path.isdir(above):
            if kind not in ("file", "dir", "link"):
                return
            clear(above)
            os.mkdir(above)
    if kind == "file":
        if os.path.islink(path) or os.path.isdir(path):
            clear(path)
        elif os.path.exists(path):
            os.chmod(path, 0o600)
        Path(os.fsdecode(path)).write_bytes(edit[2])
        os.chmod(path, edit[3])
    elif kind == "dir":
        if os.path.islink(path) or not os.path.isdir(path):
            clear(path)
            os.mkdir(path)
        os.chmod(path, edit[2])
    elif kind == "link":
        clear(path)
        os.symlink(edit[2], path)
    elif kind == "remove":
        clear(path)
    elif kind == "move" and os.path.lexists(path):
        target = os.path.join(root, edit[2])
        if os.path.isdir(os.path.dirname(target)) and not (target + b"/").startswith(path + b"/"):
            if any(os.path.islink(target[: len(root) + i]) for i in range(1, len(target) - len(root))):
                return
            if not (path + b"/").startswith(target + b"/"):
                clear(target)
                os.rename(path, target)
    elif kind == "chmod" and os.path.lexists(path) and not os.path.islink(path):
        os.chmod(path, edit[2] | (0o700 if os.path.isdir(path) else 0))


@pytest.mark.linux
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rounds=st.lists(EDITS, min_size=1, max_size=4), data=st.data())
def test_any_tree_comes_back_byte_for_byte_and_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[list[tuple[Any, ...]]], data: st.DataObject
) -> None:
    engine = MemoryEngine()
    project = Project(tmp_path_factory.mktemp("tree"), lambda: backtrail.open(engine))
    root = os.fsencode(project.root)
    states = []
    for edits in rounds:
        for edit in edits:
            apply(root, edit)
        snapshot = project.ws.snapshot()
        states.append((snapshot, project.contents()))
        assert project.workspace(cache=False).status().changes == (), "a fresh look sees the same"
    for _ in range(3):
        snapshot, wanted = data.draw(st.sampled_from(states))
        planned = project.ws.restore(snapshot, dry_run=True)
        note(str(planned))
        before = project.contents()
        done = project.ws.restore(snapshot)
        assert done.changes == planned.changes
        assert not done.kept
        assert project.contents() == wanted
        if done:
            project.ws.undo()
            assert project.contents() == before
            project.ws.restore(snapshot)
        assert project.workspace(cache=False).snapshot().tree == snapshot.tree
