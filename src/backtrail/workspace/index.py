"""The index: the directory as the last scan found it, laid out for one fast comparison.

Every item that matters (files, links, directories, ignore files, oversized files) has one slot in flat columns, so that
"has anything changed?" is one `lstat` per item and one comparison per folder, without a line of Python per file. An
item whose signature cannot be trusted has the signature None, which equals nothing that `lstat` gives.

The index is only a cache. Kept in a file between processes it saves time; without it every file is read again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec
from blake3 import blake3

from backtrail.errors import DECODE_ERRORS, Corrupt, UnsafePath
from backtrail.owned_files import make_directories, open_regular, replace_atomically
from backtrail.workspace import trees
from backtrail.workspace.descent import Descent
from backtrail.workspace.signatures import Signature, lstat_signature, packed, signature
from backtrail.workspace.trees import DIR, Tree, TreeEntry

VERSION = 1


class Folder(msgspec.Struct):
    """One directory, and the range of slots that its items have."""

    path: bytes  #: from the root, ending in a slash; b"" for the root itself
    slot: int  #: its own, among its parent's items
    parent: int  #: the number of the folder above; -1 for the root
    first: int  #: the slot of its first item
    names: list[bytes]
    skipped: list[tuple[bytes, str]]  #: items that are left out, with the reasons
    tree: bytes | None = None  #: the id of its tree, once that is known
    files: int = 0  #: directly in it, as of its tree
    size: int = 0  #: bytes of those files
    packed: bytes | None = None  #: its items' signatures as one byte string, once they have been compared

    @property
    def slots(self) -> range:
        return range(self.first, self.first + len(self.names))

    @property
    def span(self) -> slice:
        """Its slots as a slice of a column."""
        return slice(self.first, self.first + len(self.names))


class Index(msgspec.Struct):
    """All folders, parents first, and the columns of their items. Slot 0 is the root."""

    key: bytes  #: all that the contents depend on besides the files: options and the root's path
    folders: list[Folder]
    paths: list[bytes]  #: absolute
    signatures: list[Signature | None]
    entries: list[TreeEntry | None]  #: None: watched, but not in the snapshot
    files: int = 0
    size: int = 0  #: bytes of all files
    version: int = VERSION

    @property
    def tree(self) -> bytes | None:
        return self.folders[0].tree

    def skipped(self) -> Iterable[tuple[bytes, str]]:
        """Every path that is left out, with the reason."""
        return ((folder.path + name, reason) for folder in self.folders for name, reason in folder.skipped)

    def copy(self) -> Index:
        """A copy whose folders, signatures and entries can be changed."""
        return msgspec.structs.replace(
            self,
            folders=[msgspec.structs.replace(folder, packed=None) for folder in self.folders],
            signatures=list(self.signatures),
            entries=list(self.entries),
        )

    def changed_folders(self, descent: Descent) -> dict[int, list[Signature | None]]:
        """The folders (by number) with an item that has another signature now, each with the current signatures of all
        its items: None where one is gone. Signatures of unchanged folders are not kept, which saves much memory."""
        found: dict[int, list[Signature | None]] = {}
        lstat = os.lstat
        for number, folder in enumerate(self.folders):
            if not folder.names:
                continue
            try:
                # Relative to the directory: the kernel resolves its path once, and not once for each of its items.
                handle = descent.folder(folder.path)
            except OSError:
                found[number] = [None] * len(folder.names)
                continue
            try:
                current: list[Signature | None] = [signature(lstat(name, dir_fd=handle)) for name in folder.names]
            except OSError:
                found[number] = [lstat_signature(name, handle) for name in folder.names]
                continue
            if folder.packed is None:
                folder.packed = packed(self.signatures[folder.span])
            if folder.packed is None or packed(current) != folder.packed:
                found[number] = current
        return found

    def hash_trees(self, blob_id: Callable[[bytes], bytes]) -> dict[bytes, tuple[Tree, bytes]]:
        """Make the trees of the folders that have none, and of those above them, deepest first. Returns them by id,
        each with its encoding."""
        made: dict[bytes, tuple[Tree, bytes]] = {}
        entries = self.entries
        for folder in reversed(self.folders):
            own_entry = entries[folder.slot]
            if own_entry is None and folder.parent >= 0:
                continue  # it could not be listed, so it is not in the snapshot
            if folder.tree is None:
                items = zip(folder.names, entries[folder.span], strict=True)
                tree = {name: entry for name, entry in items if entry is not None}
                data = trees.encode(tree)
                folder.tree = blob_id(data)
                folder.files = sum(entry.kind != DIR for entry in tree.values())
                folder.size = sum(entry.size for entry in tree.values())  # links and directories have none
                made[folder.tree] = tree, data
            if own_entry is not None and own_entry.ref != folder.tree:
                entries[folder.slot] = own_entry._replace(ref=folder.tree)
                self.folders[folder.parent].tree = None
        self.files = sum(folder.files for folder in self.folders)
        self.size = sum(folder.size for folder in self.folders)
        return made


# -- the file that keeps an index between processes -------------------------------------------------------------------

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Index)


def load(path: Path | None, key: bytes, unseal: Callable[[bytes], bytes]) -> Index | None:
    """The index in the file, or None: a missing, damaged or foreign one only costs time."""
    if path is None:
        return None
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            data = unseal(file.read())
        if len(data) < 32 or blake3(data[32:]).digest() != data[:32]:
            return None
        index = _decoder.decode(data[32:])
    except (OSError, UnsafePath, Corrupt, *DECODE_ERRORS):
        return None  # only a cache: the walk reads everything again
    return index if index.version == VERSION and index.key == key else None


def save(path: Path | None, index: Index, seal: Callable[[bytes], bytes]) -> None:
    """Keep the index for the next process, readable by its owner only, and sealed if the store is: it holds the names
    of files. A full or read-only disk only costs time."""
    if path is None:
        return
    folders = [msgspec.structs.replace(folder, packed=None) for folder in index.folders]
    body = _encode(msgspec.structs.replace(index, folders=folders))
    with suppress(OSError, UnsafePath):  # only a cache
        make_directories(path.parent)
        replace_atomically(path, [seal(blake3(body).digest() + body)], sync=False)
