"""The index: what was seen in the directory the last time it was looked at, laid out for one fast comparison.

Every item that matters (files, links, directories, ignore files, oversized files) has one place in flat columns, so
that "has anything changed?" is one `lstat` per item and one comparison of lists, without a line of Python per file.
An item whose signature cannot be trusted next time has the signature None, which equals nothing that `lstat` gives.

The index is only a cache. Kept in a file between processes it saves time; without it every file is read again.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from pathlib import Path

import msgspec
from blake3 import blake3

from backtrail.workspace import trees
from backtrail.workspace.trees import DIR, Tree, TreeEntry

Signature = tuple[int, int, int, int, int]
signature = attrgetter("st_mtime_ns", "st_ctime_ns", "st_size", "st_ino", "st_mode")

VERSION = 2
FAR = 2**63  # nanoseconds, about the year 2262
RACY = 2 * 10**9  # coarser than the timestamps of any file system in use


class Folder(msgspec.Struct):
    """One directory: the range of places that its items take."""

    path: bytes  #: from the root, ending in a slash; b"" for the root itself
    at: int  #: its own place, among its parent's items
    parent: int  #: the number of the folder above; -1 for the root
    first: int
    names: list[bytes]
    skipped: list[tuple[bytes, str]]
    tree: bytes | None = None  #: the hash of its tree, once that is known
    files: int = 0  #: in the tree itself, as of then; and their bytes
    size: int = 0
    sight: bytes | None = None  #: its items' signatures in one piece, once they have been compared

    @property
    def places(self) -> range:
        return range(self.first, self.first + len(self.names))


class Index(msgspec.Struct):
    """All folders, parents first, and the columns of their items. Place 0 is the root."""

    key: bytes  #: what the contents depend on besides the directory: options and the root's path
    folders: list[Folder]
    paths: list[bytes]  #: absolute, for lstat
    sigs: list[Signature | None]
    entries: list[TreeEntry | None]  #: None: watched, but not in the snapshot
    files: int = 0
    size: int = 0  #: bytes of all files
    version: int = VERSION

    @property
    def tree(self) -> bytes | None:
        return self.folders[0].tree

    def skipped(self) -> Iterable[tuple[bytes, str]]:
        """Everything left out, with the reason."""
        return ((folder.path + name, reason) for folder in self.folders for name, reason in folder.skipped)

    def seal(self, name_of: Callable[[bytes], bytes]) -> dict[bytes, tuple[Tree, bytes]]:
        """Hash the folders whose hash is unknown, deepest first, and their parents; return the trees made, and their
        bytes."""
        made: dict[bytes, tuple[Tree, bytes]] = {}
        entries = self.entries
        for number in range(len(self.folders) - 1, -1, -1):
            folder = self.folders[number]
            known = entries[folder.at]
            if known is None and folder.parent >= 0:
                continue  # it could not be listed, so it is not in the snapshot
            if folder.tree is None:
                items = zip(folder.names, entries[folder.first : folder.first + len(folder.names)], strict=True)
                tree = {name: entry for name, entry in items if entry is not None}
                data = trees.encode(tree)
                folder.tree = name_of(data)
                folder.files = sum(entry.kind != DIR for entry in tree.values())
                folder.size = sum(entry.size for entry in tree.values())  # links and directories have none
                made[folder.tree] = tree, data
            if known is not None and known.ref != folder.tree:
                entries[folder.at] = known._replace(ref=folder.tree)
                self.folders[folder.parent].tree = None
        self.files = sum(folder.files for folder in self.folders)
        self.size = sum(folder.size for folder in self.folders)
        return made


def trusted(sig: Signature, start: int) -> Signature | None:
    """The signature if a later change is sure to show in it: not if it was made about when the look began, nor if its
    time is so far away that the index cannot hold it."""
    mtime, ctime = sig[0], sig[1]
    return None if ctime > start - RACY or abs(mtime - start) <= RACY or not -FAR <= mtime < FAR else sig


def sight_of(sigs: Sequence[Signature | None]) -> bytes | None:
    """Signatures in one piece: bytes that lie together are compared several times as fast as numbers that do not. None
    if one of them is beyond all bounds."""
    try:
        return _encode(sigs)
    except OverflowError:
        return None


# -- the file that keeps an index between processes -------------------------------------------------------------------

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Index)


def load(path: Path | None, key: bytes) -> Index | None:
    """The index in the file, if there is one that fits; a damaged or foreign one is as good as none."""
    if path is None:
        return None
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            data = file.read()
        if len(data) < 32 or blake3(data[32:]).digest() != data[:32]:
            return None
        index = _decoder.decode(data[32:])
    except (OSError, msgspec.DecodeError):
        return None  # only a cache: the walk reads everything again
    return index if index.version == VERSION and index.key == key else None


def store(path: Path | None, index: Index) -> None:
    """Keep the index for the next process, readable by its owner only. A full or read-only disk costs only time."""
    if path is None:
        return
    folders = [msgspec.structs.replace(folder, sight=None) for folder in index.folders]
    body = _encode(msgspec.structs.replace(index, folders=folders))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)  # made 0600
    except OSError:
        return  # only a cache
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(blake3(body).digest() + body)
        os.replace(name, path)
    except OSError:
        os.unlink(name)
