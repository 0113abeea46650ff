"""Looks into a snapshot without restoring it: the entries of one folder, the bytes of one file.

No file system is touched: a path is only looked up in the trees of the store.
"""

from __future__ import annotations

import os
from typing import Any

from backtrail.errors import InvalidInput, NotFound
from backtrail.workspace.journal import Journal
from backtrail.workspace.model import FileEntry
from backtrail.workspace.trees import DIR, LINK, TreeEntry


async def list_folder(journal: Journal, snapshot: Any, path: str) -> tuple[FileEntry, ...]:
    """The entries of a folder, folders first, by name."""
    record = await journal.find(snapshot)
    ref = record.tree
    for name in _names(path):
        entry = (await journal.trees([ref]))[ref].get(name)
        if entry is None or entry.kind != DIR:
            raise NotFound(f"the snapshot has no folder {path!r}")
        ref = entry.ref
    tree = (await journal.trees([ref]))[ref]
    found = [FileEntry(os.fsdecode(name), _kind(entry), entry.size, entry.mode) for name, entry in tree.items()]
    return tuple(sorted(found, key=lambda one: (one.kind != "folder", one.name)))


async def read_file(journal: Journal, snapshot: Any, path: str) -> bytes:
    """The content of a file."""
    *folders, last = _names(path) or [b""]
    record = await journal.find(snapshot)
    ref = record.tree
    for name in folders:
        folder = (await journal.trees([ref]))[ref].get(name)
        if folder is None or folder.kind != DIR:
            raise NotFound(f"the snapshot has no file {path!r}")
        ref = folder.ref
    entry = (await journal.trees([ref]))[ref].get(last)
    if entry is None or entry.kind in (DIR, LINK):
        raise NotFound(f"the snapshot has no file {path!r}")
    return (await journal.contents([entry]))[entry.ref]


def _names(path: str) -> list[bytes]:
    if not isinstance(path, str):
        raise InvalidInput(f"path must be a string, not {path!r}")
    return [os.fsencode(name) for name in path.split("/") if name]


def _kind(entry: TreeEntry) -> Any:
    return "folder" if entry.kind == DIR else "link" if entry.kind == LINK else "file"
