"""The registry: which directories this user has used with a workspace on this machine. No store can write to it.

A store may come from anybody, so nothing in it chooses a directory. A record of a workspace has only a directory's id,
a random number that this machine made up; the registry says which directory that is. It is one small file for each
directory, in the user's state directory, under the place of the store: a copy of the store elsewhere finds nothing,
and neither does another store in the same place, because it holds no record with that id.

The file also has the digest of a restore in progress. Only the restore that it names is finished after a crash: one
that a store merely claims to be in progress is not.

A store in memory has nothing to remember once its process ends, so its directories are registered in memory as well.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import quote_from_bytes, unquote_to_bytes
from weakref import WeakKeyDictionary

import msgspec
from blake3 import blake3

from backtrail import owned_files
from backtrail.engines.base import Engine
from backtrail.errors import DECODE_ERRORS, FilesError, UnsafePath
from backtrail.history.context import Context

VERSION = 1
ABANDONED = 30 * 86400.0  #: seconds after which a directory that is gone is forgotten


class Directory(msgspec.Struct, frozen=True):
    """One directory that was used with a workspace."""

    id: str  #: random; records that were made of this directory have it
    root: bytes  #: its real path
    restoring: str | None = None  #: the digest of the restore in progress

    @classmethod
    def new(cls, root: bytes) -> Directory:
        return cls(os.urandom(16).hex(), root)


class _File(msgspec.Struct, frozen=True):
    """One directory as its file has it."""

    version: int
    store: str
    workspace: str
    root: str  # percent-encoded: a path need not be text
    id: str
    restoring: str | None = None


_decoder = msgspec.json.Decoder(_File)


class Registry:
    """The directories of one workspace of one store."""

    def __init__(self, context: Context, workspace: str) -> None:
        self._workspace = workspace
        self._place = context.place or "memory:"
        folder = blake3(f"{self._place}\0{workspace}".encode()).hexdigest(20)
        base = state_directory()
        self._files: _Files
        if context.place is None:
            self._files = _in_memory.setdefault(_innermost(context.engine), _FilesInMemory()).folder(folder)
        else:
            self._files = _FilesOnDisk(None if base is None else base / folder)

    def find(self, root: bytes) -> Directory:
        """The directory with this real path, as it is registered, or else a new one that is not registered yet."""
        return self.current(Directory.new(root))

    def current(self, known: Directory) -> Directory:
        """A directory as it is registered now; as it is known, if it is not registered."""
        return self._read(_file_name(known.root)) or known

    def directories(self) -> dict[str, Directory]:
        """All registered directories that are still where they were, by id."""
        found = filter(None, map(self._read, self._files.names()))
        return {one.id: one for one in found if os.path.realpath(one.root) == one.root and os.path.isdir(one.root)}

    def register(self, directory: Directory) -> None:
        """Register a directory of which a snapshot is taken. If that fails, its root must be given the next time."""
        if self._read(_file_name(directory.root)) is None:
            with suppress(OSError, UnsafePath):
                self._write(directory, sync=True)
                self._files.remove_abandoned()

    def set_restoring(self, directory: Directory, digest: str | None) -> Directory:
        """Note that a restore begins, or (None) that it is over. On disk when this returns, if it begins."""
        changed = msgspec.structs.replace(directory, restoring=digest)
        try:
            self._write(changed, sync=digest is not None)
        except (OSError, UnsafePath) as error:
            raise FilesError(
                directory.root,
                f"the note that it is being restored cannot be kept in {self._files.where} ({error}): make that "
                "directory writable, or set XDG_STATE_HOME to one that is; nothing was changed",
            ) from error
        return changed

    def _read(self, name: str) -> Directory | None:
        """What one file says; None if there is none, or it is damaged, or of something else."""
        data = self._files.read(name)
        try:
            file = None if data is None else _decoder.decode(data)
        except DECODE_ERRORS:
            return None
        if file is None or (file.version, file.store, file.workspace) != (VERSION, self._place, self._workspace):
            return None
        root = unquote_to_bytes(file.root)
        return Directory(file.id, root, file.restoring) if _file_name(root) == name else None

    def _write(self, directory: Directory, *, sync: bool) -> None:
        file = _File(
            VERSION, self._place, self._workspace, quote_from_bytes(directory.root), directory.id, directory.restoring
        )
        self._files.write(_file_name(directory.root), msgspec.json.format(msgspec.json.encode(file)), sync=sync)


def state_directory() -> Path | None:
    """The directory of the registry's files; None if the user has no home directory."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(base) / "backtrail" / "workspaces" if os.path.isabs(base) else None


def _file_name(root: bytes) -> str:
    return f"{blake3(root).hexdigest(20)}.json"


# -- where the files are ----------------------------------------------------------------------------------------------


class _Files(Protocol):
    """The files of one workspace's directories."""

    where: str

    def names(self) -> list[str]: ...

    def read(self, name: str) -> bytes | None: ...

    def write(self, name: str, data: bytes, *, sync: bool) -> None: ...

    def remove_abandoned(self) -> None: ...


class _FilesOnDisk:
    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self.where = "a home directory" if folder is None else str(folder)

    def names(self) -> list[str]:
        try:
            return [] if self._folder is None else sorted(os.listdir(self._folder))
        except OSError:
            return []  # nothing was registered, or this user may not read it

    def read(self, name: str) -> bytes | None:
        try:
            return None if self._folder is None else owned_files.read_bytes(self._folder / name)
        except OSError:
            return None  # as above

    def write(self, name: str, data: bytes, *, sync: bool) -> None:
        if self._folder is None:
            raise FileNotFoundError("there is none")
        owned_files.make_directories(self._folder)
        owned_files.replace_atomically(self._folder / name, [data], sync=sync)

    def remove_abandoned(self) -> None:
        """Remove what is known of directories that have long been gone, of all workspaces: temporary ones, mostly. A
        restore in progress is never forgotten."""
        limit = time.time() - ABANDONED
        for path in () if self._folder is None else self._folder.parent.glob("*/*.json"):
            with suppress(OSError, UnsafePath, msgspec.DecodeError):
                file = _decoder.decode(owned_files.read_bytes(path))
                gone = not os.path.isdir(unquote_to_bytes(file.root))
                if gone and file.restoring is None and path.lstat().st_mtime < limit:
                    path.unlink()
                    path.parent.rmdir()  # fails if it has others


class _FilesInMemory:
    where = "memory"

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._folders: dict[str, _FilesInMemory] = {}

    def folder(self, name: str) -> _FilesInMemory:
        return self._folders.setdefault(name, _FilesInMemory())

    def names(self) -> list[str]:
        return sorted(self._files)

    def read(self, name: str) -> bytes | None:
        return self._files.get(name)

    def write(self, name: str, data: bytes, *, sync: bool) -> None:  # noqa: ARG002  # there is nothing to wait for
        self._files[name] = data

    def remove_abandoned(self) -> None:
        """Nothing outlives the process."""


#: By the engine that has the data. Several stores may be opened over it.
_in_memory: WeakKeyDictionary[Engine, _FilesInMemory] = WeakKeyDictionary()


def _innermost(engine: Engine) -> Engine:
    while (inner := engine.unwrap()) is not None:
        engine = inner
    return engine
