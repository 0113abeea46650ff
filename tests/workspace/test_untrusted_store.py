"""Snapshots that an attacker wrote into the store: a restore is refused, and nothing in or outside the root changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import backtrail
from backtrail.engines.base import Commit
from backtrail.engines.coroutines import finish
from backtrail.errors import BacktrailError, Corrupt, UnsafePath, UnsupportedFormat
from backtrail.workspace import apply, trees
from backtrail.workspace.journal import Record, RestoreIntent
from backtrail.workspace.trees import DIR, FILE, LINK, PIECES, TreeEntry

from .conftest import Project


class Forger:
    """Writes forged blobs and records into a workspace's journal."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.journal = project.ws._core._journal
        self.directory = project.ws._core._directory.restorer.directory.id

    def blob(self, data: bytes) -> bytes:
        name = self.journal.blob_id(data)
        blobs = {name: self.journal.wrap(name, data)}
        finish(self.project.store._core.context.engine.commit(Commit(self.project.ws.name, blobs=blobs)))
        return name

    def file(self, text: bytes = b"evil") -> TreeEntry:
        return TreeEntry(FILE, 0o644, len(text), self.blob(text))

    def tree(self, *items: tuple[bytes, TreeEntry]) -> bytes:
        """A tree in the format, whatever the names are."""
        return self.blob(
            msgspec.msgpack.encode(
                [
                    trees.VERSION,
                    [name for name, _ in items],
                    [entry.kind << 12 | entry.mode for _, entry in items],
                    [entry.size for _, entry in items],
                    [entry.ref for _, entry in items],
                ]
            )
        )

    def snapshot(self, tree: bytes) -> str:
        tip = finish(self.journal.tip())
        facts = {"files": 1, "bytes": 1, "directory": self.directory}
        record = finish(self.journal.append("snapshot", tree, after=tip, facts=facts, blobs={}))
        return record.id

    def intent(self, path: bytes) -> tuple[RestoreIntent, Record]:
        """Add a restore to the journal that is not closed, and that writes a file at `path`."""
        tip = finish(self.journal.tip())
        steps: list[Any] = [(path, None, tuple(self.file()))]
        intent = RestoreIntent(steps, tip.tree, tip.id, None, None, b"token")
        facts = {"files": 1, "bytes": 1, "directory": self.directory}
        opened = finish(self.journal.append("restoring", tip.tree, after=tip, facts=facts, intent=intent, blobs={}))
        return intent, opened


def folder(ref: bytes) -> TreeEntry:
    return TreeEntry(DIR, 0o755, 0, ref)


Forgery = Callable[[Forger, Path], bytes]


FORGERIES: dict[str, tuple[Forgery, type[BacktrailError]]] = {
    "dot dot": (lambda f, _: f.tree((b"..", folder(f.tree((b"evil", f.file()))))), UnsafePath),
    "dot": (lambda f, _: f.tree((b".", f.file())), UnsafePath),
    "empty name": (lambda f, _: f.tree((b"", f.file())), UnsafePath),
    "slash": (lambda f, _: f.tree((b"../outside/evil", f.file())), UnsafePath),
    "absolute": (lambda f, outside: f.tree((os.fsencode(outside / "evil"), f.file())), UnsafePath),
    "nul": (lambda f, _: f.tree((b"a\0b", f.file())), UnsafePath),
    "long name": (lambda f, _: f.tree((b"a" * 256, f.file())), UnsafePath),
    "git hook": (lambda f, _: f.tree((b".git", folder(f.tree((b"config", f.file()))))), UnsafePath),
    "git in capitals": (lambda f, _: f.tree((b".GiT", folder(f.tree((b"config", f.file()))))), UnsafePath),
    "deep git": (lambda f, _: f.tree((b"d", folder(f.tree((b".git", f.file()))))), UnsafePath),
    "git with a dot": (lambda f, _: f.tree((b".git.", folder(f.tree((b"config", f.file()))))), UnsafePath),
    "git as a short name": (lambda f, _: f.tree((b"GIT~1", folder(f.tree((b"config", f.file()))))), UnsafePath),
    "git with a stream": (lambda f, _: f.tree((b".git::$INDEX_ALLOCATION", f.file())), UnsafePath),
    "git without width": (lambda f, _: f.tree((".g\u200cit".encode(), f.file())), UnsafePath),
    "deep git with a space": (
        lambda f, _: f.tree((b"d", folder(f.tree((b"e", folder(f.tree((b".git ", f.file())))))))),
        UnsafePath,
    ),
    "link and directory of one name": (
        lambda f, outside: f.tree(
            (b"a", TreeEntry(LINK, 0, 0, os.fsencode(outside))), (b"a", folder(f.tree((b"evil", f.file()))))
        ),
        UnsafePath,
    ),
    "unsorted": (lambda f, _: f.tree((b"b", f.file()), (b"a", f.file())), UnsafePath),
    "empty link": (lambda f, _: f.tree((b"a", TreeEntry(LINK, 0, 0, b""))), UnsafePath),
    "link with nul": (lambda f, _: f.tree((b"a", TreeEntry(LINK, 0, 0, b"x\0y"))), UnsafePath),
    "unknown kind": (lambda f, _: f.tree((b"a", TreeEntry(9, 0, 0, bytes(32)))), Corrupt),
    "negative size": (lambda f, _: f.tree((b"a", TreeEntry(FILE, 0, -1, bytes(32)))), Corrupt),
    "missing blob": (lambda f, _: f.tree((b"a", TreeEntry(FILE, 0o644, 4, bytes(32)))), Corrupt),
    "missing tree": (lambda f, _: f.tree((b"a", folder(bytes(32)))), Corrupt),
    "a file as a tree": (lambda f, _: f.blob(b"not a tree"), Corrupt),
    "pieces of the wrong size": (
        lambda f, _: f.tree((b"a", TreeEntry(PIECES, 0o644, 99, f.blob(trees.encode_pieces([4], [f.blob(b"evil")]))))),
        Corrupt,
    ),
    "a newer format": (lambda f, _: f.blob(msgspec.msgpack.encode([2, [], [], [], []])), UnsupportedFormat),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_snapshot_is_refused_and_nothing_changes(sqlite_project: Project, name: str) -> None:
    make, error = FORGERIES[name]
    outside = sqlite_project.base / "outside"
    outside.mkdir()
    sqlite_project.write("mine", "1")
    sqlite_project.write(".git/config", "theirs")
    sqlite_project.ws.snapshot()
    before = sqlite_project.contents()
    forged = Forger(sqlite_project).snapshot(make(Forger(sqlite_project), outside))
    for attempt in ({"dry_run": True}, {}):
        if attempt and name in ("missing blob", "pieces of the wrong size"):
            continue  # contents are not read before they are needed
        with pytest.raises(error):
            sqlite_project.ws.restore(forged, **attempt)
        assert sqlite_project.contents() == before
    assert list(outside.iterdir()) == []
    if name != "a newer format":  # a record of a newer backtrail is not replaced
        assert sqlite_project.ws.snapshot().files == 1, "the workspace itself goes on"


def test_a_small_tree_that_unfolds_endlessly_is_refused(
    sqlite_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "MAX_ENTRIES", 5_000)
    forger = Forger(sqlite_project)
    ref = forger.tree((b"evil", forger.file()))
    for _ in range(40):
        ref = forger.tree(*((b"%02d" % number, folder(ref)) for number in range(10)))
    with pytest.raises(UnsafePath, match="unfolds"):
        sqlite_project.ws.restore(forger.snapshot(ref))
    assert sqlite_project.names() == []


def test_a_tree_that_is_nested_too_deeply_is_refused(sqlite_project: Project) -> None:
    forger = Forger(sqlite_project)
    ref = forger.tree((b"evil", forger.file()))
    for _ in range(trees.MAX_DEPTH + 1):
        ref = forger.tree((b"d", folder(ref)))
    with pytest.raises(UnsafePath, match="deeper"):
        sqlite_project.ws.restore(forger.snapshot(ref))
    assert sqlite_project.names() == []


def test_forged_setuid_bits_are_dropped(sqlite_project: Project) -> None:
    forger = Forger(sqlite_project)
    ref = forger.blob(msgspec.msgpack.encode([1, [b"tool"], [FILE << 12 | 0o4755], [4], [forger.file().ref]]))
    sqlite_project.ws.restore(forger.snapshot(ref))
    assert (sqlite_project.root / "tool").stat().st_mode & 0o7777 == 0o755


def test_a_link_that_leads_outside_is_kept_as_a_link_and_never_followed(project: Project) -> None:
    outside = project.base / "outside"
    outside.mkdir()
    project.write("d/f", "inside")
    first = project.ws.snapshot()
    (project.root / "d/f").unlink()
    (project.root / "d").rmdir()
    os.symlink(outside, project.root / "d")
    (outside / "f").write_text("outside")
    second = project.ws.snapshot()
    project.ws.restore(first)
    assert (project.root / "d/f").read_text() == "inside"
    assert (outside / "f").read_text() == "outside"
    project.ws.restore(second)
    assert os.readlink(project.root / "d") == str(outside)
    assert (outside / "f").read_text() == "outside"


def test_a_directory_swapped_for_a_link_during_the_restore_stops_it(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = project.base / "outside"
    outside.mkdir()
    (outside / "f").write_text("outside")
    project.write("d/f", "1")
    first = project.ws.snapshot()
    project.write("d/f", "2")
    original = apply.Applier.apply

    def swap(self: Any, steps: Any, expect: Any = None) -> None:
        if expect is not None:
            (project.root / "d").rename(project.root / "moved")
            os.symlink(outside, project.root / "d")
        original(self, steps, expect)

    monkeypatch.setattr(apply.Applier, "apply", swap)
    with pytest.raises(UnsafePath):
        project.ws.restore(first)
    assert (outside / "f").read_text() == "outside"
    assert project.read("moved/f") == "2"


INTENT_PATHS = (b"evil", b"../outside/evil", b"/etc/evil", b"", b".git/hooks/evil", b"x/../../outside/evil")


@pytest.mark.parametrize("path", INTENT_PATHS)
def test_a_journal_that_only_the_store_knows_is_not_carried_out(sqlite_project: Project, path: bytes) -> None:
    sqlite_project.write("a", "1")
    sqlite_project.ws.snapshot()
    Forger(sqlite_project).intent(path)
    before = sqlite_project.contents()
    for _ in range(2):
        sqlite_project.ws.recover()
        sqlite_project.ws.snapshot()
        sqlite_project.reopen()
    assert sqlite_project.contents() == before


def test_a_journal_that_was_begun_here_but_is_altered_in_the_store_is_not_carried_out(sqlite_project: Project) -> None:
    sqlite_project.write("a", "1")
    sqlite_project.ws.snapshot()
    forger = Forger(sqlite_project)
    restorer = sqlite_project.ws._core._directory.restorer
    intent, opened = forger.intent(b"b")
    finish(restorer._set_restoring(intent.digest(opened.tree)))
    forger.intent(b"evil")
    sqlite_project.ws.recover()
    assert sqlite_project.names() == ["a"]


@pytest.mark.parametrize("path", INTENT_PATHS[1:])
def test_even_a_journal_that_was_begun_here_cannot_write_outside(sqlite_project: Project, path: bytes) -> None:
    outside = sqlite_project.base / "outside"
    outside.mkdir()
    sqlite_project.write("a", "1")
    sqlite_project.ws.snapshot()
    intent, opened = Forger(sqlite_project).intent(path)
    restorer = sqlite_project.ws._core._directory.restorer
    finish(restorer._set_restoring(intent.digest(opened.tree)))
    with pytest.raises(UnsafePath):
        sqlite_project.ws.recover()
    assert list(outside.iterdir()) == []
    assert sqlite_project.names() == ["a"]


def test_a_journal_that_was_closed_is_not_carried_out_again(sqlite_project: Project) -> None:
    sqlite_project.write("a", "1")
    first = sqlite_project.ws.snapshot()
    sqlite_project.write("a", "2")
    sqlite_project.ws.restore(first)
    journal = sqlite_project.ws._core._journal
    opened = next(record for record in finish(journal.records()) if record.kind == "restoring")
    intent = finish(journal.intent(opened))
    sqlite_project.write("a", "2")  # as the restore found it
    facts = {"files": 1, "bytes": 1, "directory": opened.directory}
    tip = finish(journal.tip())
    finish(journal.append("restoring", opened.tree, after=tip, facts=facts, intent=intent, blobs={}))
    sqlite_project.reopen()
    assert sqlite_project.read("a") == "2"


def test_a_snapshot_cannot_put_anything_where_the_store_keeps_its_files(tmp_path: Path) -> None:
    project = Project(tmp_path, lambda: backtrail.open(tmp_path / "root" / "agents.db"))
    project.ws = project.workspace(cache=False)
    project.write("mine", "1")
    project.ws.snapshot()
    forger = Forger(project)
    names = [b"agents.db", b"agents.db-journal", b"agents.db-x", b"agents.dbx"]
    result = project.ws.restore(forger.snapshot(forger.tree(*((name, forger.file()) for name in names))))
    assert [change.path for change in result.changes if change.kind == "added"] == ["agents.dbx"]
    assert {kept.path for kept in result.kept} >= {"agents.db", "agents.db-journal", "agents.db-x"}
    assert not (project.root / "agents.db-journal").exists()
    project.close()


def test_a_damaged_blob_is_named_and_nothing_changes(sqlite_project: Project) -> None:
    sqlite_project.write("a", "one content")
    first = sqlite_project.ws.snapshot()
    sqlite_project.write("a", "another")
    sqlite_project.write("b", "b")
    sqlite_project.ws.snapshot()
    before = sqlite_project.contents()
    journal = sqlite_project.ws._core._journal
    engine = sqlite_project.store._core.context.engine
    name = journal.blob_id(b"one content")
    original = engine.blobs

    async def damaged(pool: str, ids: Any) -> dict[bytes, bytes]:
        found = await original(pool, ids)
        return {key: journal.wrap(key, b"forged") if key == name else value for key, value in found.items()}

    engine.blobs = damaged
    with pytest.raises(Corrupt, match=name.hex()):
        sqlite_project.ws.restore(first)
    assert sqlite_project.contents() == before
