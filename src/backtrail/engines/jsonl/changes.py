"""`.changes`: the names of the logs that were changed last, so that a listing looks at these and not at every file.

A writer, which holds the lock, adds the name of a log before it changes the log; several changes of one log in a row
need the name only once. A reader looks at the logs that were named since it last read, and again at the last one named
before: its writer may still have been at work. A reader that comes for the first time, or finds another file in its
place, has to look at every log. The first line, which is random, tells one file from another.

The file serves processes that are running, and no other: it is never synced to disk, and starts anew when it is long.
"""

from __future__ import annotations

import os
from pathlib import Path

from backtrail.engines.jsonl.file_names import SUFFIX
from backtrail.owned_files import open_regular, read_at, replace_atomically, write_all

LONGEST = 1 << 20  #: bytes, some 50,000 names
_LONGEST_NAME = 1 << 10  # bytes, many more than a name has
_START = 17  # bytes of the first line


class Changes:
    """The file, as one process writes and reads it. Not thread-safe: the caller holds the mutex."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / ".changes"
        self._name = str(self._path)  # used at every commit
        self._fd = -1
        self._fd_inode = -1
        self._written = (-1, -1, "")  # inode and size after our last write, and the name that it wrote
        self._seen = (b"", 0)  # the first line, and where the last name begins that was read
        self._next = (b"", 0)

    # -- writers: they hold the lock -------------------------------------------------------------------------------

    def announce(self, name: str) -> None:
        """Add the name of a log that is about to be changed."""
        try:
            found = os.lstat(self._name)
        except FileNotFoundError:
            found = self.restart()
        if self._written == (found.st_ino, found.st_size, name):
            return
        if found.st_size > LONGEST:
            found = self.restart()
        if self._fd < 0 or self._fd_inode != found.st_ino:
            self.close()
            self._fd, self._fd_inode = open_regular(self._path, os.O_WRONLY | os.O_APPEND), found.st_ino
        ours = self._written[:2] == (found.st_ino, found.st_size)
        # After the name of another process, which a crash may have left incomplete, a line of its own begins.
        line = f"{name}\n" if ours else f"\n{name}\n"
        write_all(self._fd, line.encode())
        self._written = (found.st_ino, found.st_size + len(line.encode()), name)

    def restart(self) -> os.stat_result:
        """Begin a new file, so that all readers look at every log."""
        replace_atomically(self._path, [os.urandom(_START // 2).hex().encode() + b"\n"], sync=False)
        return os.lstat(self._name)

    # -- readers ---------------------------------------------------------------------------------------------------

    def unseen(self) -> set[str] | None:
        """The names of the logs that may have changed since the last `seen()`; None if it may be any log."""
        try:
            fd = open_regular(self._path)
        except FileNotFoundError:
            self._next = (b"", 0)
            return None
        try:
            size, start, (known, first) = os.fstat(fd).st_size, read_at(fd, _START, 0), self._seen
            other = not known or start != known or size < first
            if other:
                first = max(0, size - _LONGEST_NAME)
            data = read_at(fd, size - first, first)
        finally:
            os.close(fd)
        complete = data[: data.rfind(b"\n") + 1]
        self._next = (start, first + complete.rfind(b"\n", 0, -1) + 1)
        if other:
            return None
        names = {line.decode(errors="replace") for line in complete.splitlines()}
        return {name for name in names if name.endswith(SUFFIX) and "/" not in name and "\0" not in name}

    def seen(self) -> None:
        """The logs that `unseen` named have been looked at."""
        self._seen = self._next

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
