"""The descent: reaches whatever is below a root by directory descriptors, and never through a link.

Somebody may swap a directory for a link while a snapshot is being taken. A path that is resolved as a whole would then
lead out of the root; here each directory on the way is opened relative to the one above it, and not if it is a link.
Whatever is read of a directory (names, signatures, contents, targets of links) is read through here.
"""

from __future__ import annotations

import errno
import os
import stat
from types import TracebackType
from typing import Self

from backtrail.errors import FilesError

#: Errors of a path at which there is nothing any more, or a link, or a file in the place of a directory.
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # O_NONBLOCK: a FIFO does not hang

_OPEN_DIR = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Descent:
    """Reaches folders of one root; for one thread. Paths are relative to the root, and those of folders end in a slash.

    The folder used last stays open, with those above it: walking in the order of a tree opens each folder once.
    """

    def __init__(self, root: bytes) -> None:
        try:
            handle = os.open(root, _OPEN_DIR)
        except OSError as error:
            raise FilesError(root, f"it is not a directory that can be opened ({error.strerror})") from error
        self._open: dict[bytes, int] = {b"": handle}  # by path, from the root down

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every descriptor."""
        while self._open:
            os.close(self._open.popitem()[1])

    def folder(self, path: bytes) -> int:
        """A descriptor of a folder, valid until a folder is asked for that is neither above nor below this one. An
        `OSError` with one of `GONE` if there is no such folder."""
        known = self._open.get(path)
        if known is not None:
            return known
        opened = self._open
        deepest = next(reversed(opened))
        while not path.startswith(deepest):
            os.close(opened.pop(deepest))
            deepest = next(reversed(opened))
        handle = opened[deepest]
        start = len(deepest)
        while start < len(path):
            end = path.index(b"/", start)
            handle = os.open(path[start:end], _OPEN_DIR, dir_fd=handle)
            start = end + 1
            opened[path[:start]] = handle
        return handle

    def names(self, path: bytes) -> list[bytes]:
        """The names in a folder."""
        handle = os.open(b".", _LIST_DIR, dir_fd=self.folder(path))
        try:
            return list(map(os.fsencode, os.listdir(handle)))
        finally:
            os.close(handle)

    def lstat(self, path: bytes) -> os.stat_result | None:
        """What is at a path, links not followed; None if there is nothing, or a link or a file on the way to it."""
        folder, slash, name = path.rpartition(b"/")
        try:
            return os.lstat(name, dir_fd=self.folder(folder + slash))
        except OSError as error:
            if error.errno in GONE:
                return None
            raise

    def open_file(self, path: bytes) -> int:
        """Open a file to be read; not if it is a link. It need not be a regular file."""
        folder, slash, name = path.rpartition(b"/")
        return os.open(name, OPEN_FILE, dir_fd=self.folder(folder + slash))

    def read_file(self, path: bytes, size: int) -> bytes | None:
        """The content of a regular file of that size; None if there is none that can be read."""
        try:
            handle = self.open_file(path)
        except OSError:
            return None
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            return file.read(size) if stat.S_ISREG(found.st_mode) and found.st_size == size else None

    def read_link(self, path: bytes) -> bytes:
        """The target of a link."""
        folder, slash, name = path.rpartition(b"/")
        return os.readlink(name, dir_fd=self.folder(folder + slash))
