"""The file of a SQLite store: checks, creates and opens it.

A file is checked with plain reads before SQLite opens it, so that a file that is not a backtrail store is left
unchanged, byte for byte. A new store is made under another name and renamed when it is complete. The path may be a link
to a store, and is resolved once; the file itself and those that SQLite keeps beside it must be regular files without a
second name, because SQLite would write through it, and wait for ever on a FIFO.

The plain reads happen only while this process has no connection to the file: POSIX locks belong to the process, and
closing any handle of a file releases all of them, SQLite's included. Another process could then remove the write-ahead
log while we use it. So the open files of this process are counted, and not read directly.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from backtrail.engines.conflicts import Refused
from backtrail.engines.lockfile import LockFile
from backtrail.engines.sqlite import migrations
from backtrail.engines.sqlite.disk_check import DiskCheck, looks_damaged, release, twice_if_damaged
from backtrail.engines.sqlite.schema_check import check_schema, harden, limited
from backtrail.errors import BacktrailError, Corrupt, InvalidInput, NotFound, Unavailable, UnsupportedFormat
from backtrail.owned_files import (
    create_exclusive,
    open_regular,
    read_at,
    real_place,
    remove_abandoned,
    require_directory,
    require_regular,
    sync_directory,
    temporary_file,
)

APPLICATION_ID = int.from_bytes(b"btrl", "big")
PAGE_SIZE = 8192  # a row of 2 to 3 KB fills a page three times; with 4 KB pages it would half fill one
BUSY_MS = 60_000  # only other programs make us wait here: backtrail's writers queue on the lock file
# Half of SQLite's default: a WAL that is reset sooner is overwritten, which is faster than growing it, and other
# processes wait half as long during a checkpoint. With 250, every hundredth write would wait for one.
WAL_PAGES = 500
CACHE_KB = 16_000  # at most, for each connection; a state of 3.5 MB is read from it in half the time

_OPENING = threading.Lock()
_OPEN: Counter[tuple[int, int]] = Counter()  # (device, inode) of the files that stores of this process have open

MAGIC = b"SQLite format 3\0"
_COMPANIONS = ("-wal", "-shm", "-journal")


class DatabaseFile:
    """The checked file of a backtrail store; `readonly` if it or its directory is not writable."""

    def __init__(self, path: str | os.PathLike[str], *, create: bool, durability: str) -> None:
        if durability not in ("full", "normal"):
            raise InvalidInput(f'durability must be "full" or "normal", not {durability!r}')
        self.path = _real(path)
        self._synchronous = durability
        self._disk = DiskCheck(self.path)
        self.immutable = False
        with self.translating_errors(), _OPENING:
            if not self.path.exists():
                if not create:
                    raise NotFound(f"there is no store at {self.path}")
                _make(self.path)
            self._counted: tuple[int, int] | None = self.identity()
            version = migrations.newest() if _OPEN[self._counted] else _look(self.path)
            self.readonly = not _writable(self.path)
            self._check_names()
            if version < migrations.newest():
                self._migrate()
            _OPEN[self._counted] += 1

    def unregister(self) -> None:
        """Record that all connections of this object are closed."""
        with _OPENING:
            if self._counted is not None:
                _OPEN[self._counted] -= 1
                if not _OPEN[self._counted]:
                    del _OPEN[self._counted]
                    release(self._counted)
                self._counted = None

    def connect(self, *, writes: bool = False) -> sqlite3.Connection:
        """A new connection, ready for use from any thread."""
        with self.translating_errors():
            self._check_names()
            return twice_if_damaged(lambda: self._connect(writes))

    def _connect(self, writes: bool) -> sqlite3.Connection:
        if not self.readonly:
            return self._ready(_open(self.path, "rw"), writes)
        try:
            return self._ready(_open(self.path, "ro"), False)
        except sqlite3.OperationalError as error:
            # A WAL database can be read without its -wal and -shm files only if there is no writer. There is no
            # -wal now, but one may appear at any moment: such a connection is used once.
            if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _NO_FILES or beside(self.path, "-wal").exists():
                raise
            self.immutable = True
            return self._ready(_open(self.path, "ro&immutable=1"), False)

    def _check_names(self) -> None:
        """Check the files that SQLite opens by name: regular, and with no other name if it may write to them."""
        for path in (self.path, *(beside(self.path, suffix) for suffix in _COMPANIONS)):
            require_regular(path, alone=not self.readonly)

    def lock(self) -> LockFile:
        """The lock that writers of all processes queue on."""
        with self.translating_errors():
            return LockFile(beside(self.path, "-lock"))

    def size(self) -> int:
        """Bytes on disk: the file and its -wal, -shm and lock files."""
        files = [self.path, *(beside(self.path, suffix) for suffix in ("-wal", "-shm", "-lock"))]
        return sum(file.stat().st_size for file in files if file.exists())

    def identity(self) -> tuple[int, int]:
        """(device, inode) of the file at the path; it changes if the store is deleted or replaced while open."""
        with self.translating_errors():
            found = self.path.stat()
            return (found.st_dev, found.st_ino)

    def _ready(self, connection: sqlite3.Connection, writes: bool) -> sqlite3.Connection:
        execute = connection.execute
        try:
            harden(connection)
            execute(f"PRAGMA busy_timeout = {BUSY_MS:d}")
            with limited(connection, self.path):
                execute(f"PRAGMA cache_size = {-CACHE_KB:d}")
                execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES:d}")
                execute("PRAGMA query_only = 0" if writes else "PRAGMA query_only = 1")
                execute("PRAGMA synchronous = FULL" if self._synchronous == "full" else "PRAGMA synchronous = NORMAL")
                self._check_contents(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_contents(self, connection: sqlite3.Connection) -> None:
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version > migrations.newest():
            raise _too_new(self.path, version)
        if int(connection.execute("PRAGMA application_id").fetchone()[0]) != APPLICATION_ID:
            raise UnsupportedFormat(f"{self.path} is not a backtrail store any more: another file took its place")
        check_schema(connection, self.path, version)

    @contextmanager
    def translating_errors(self) -> Iterator[None]:
        """Raise errors of SQLite and of the operating system as backtrail's."""
        try:
            yield
        except DRIVER as error:
            raise self.translated(error) from error

    def translated(self, error: Exception) -> BacktrailError | Refused:
        """The backtrail error for a driver's error. The caller raises it `from` that."""
        path, code = self.path, getattr(error, "sqlite_errorcode", None)
        primary = None if code is None else code & 0xFF
        if isinstance(error, UnicodeDecodeError):
            return Corrupt(str(path), f"its schema or a name in it is not text any more: {error}")
        if looks_damaged(error):
            fault = self._disk.fault()
            if fault is not None:
                return Unavailable(f"{path} cannot be read now: {fault}")
            return Corrupt(str(path), str(error))
        if primary == sqlite3.SQLITE_CONSTRAINT:
            return Refused(str(path), f"{path}: {error}")
        if primary == sqlite3.SQLITE_TOOBIG or isinstance(error, (sqlite3.DataError, OverflowError)):
            return InvalidInput(
                f"{path}: a value is larger than SQLite can keep (1 GB, or 64 bit for a number): {error}"
            )
        if primary == sqlite3.SQLITE_ERROR:  # our statements are right, so the tables were changed by another program
            version = _version_now(path)
            if version > migrations.newest():
                return _too_new(path, version)
        return Unavailable(f"{path} cannot be used now: {error}")

    def _migrate(self) -> None:
        if self.readonly:
            raise UnsupportedFormat(f"{self.path} has an older format and is read-only: open it once with write access")
        with closing(self.lock()) as lock, lock, closing(_open(self.path, "rw")) as connection:
            harden(connection)
            with limited(connection, self.path):
                connection.execute("PRAGMA synchronous = FULL")
                self._check_contents(connection)
            migrations.migrate(connection)


def beside(path: Path, suffix: str) -> Path:
    """The file beside a store's file whose name has this suffix."""
    return path.with_name(path.name + suffix)


#: Errors of the driver; damaged text raises UnicodeDecodeError.
DRIVER = (sqlite3.Error, OSError, OverflowError, UnicodeDecodeError)

_NO_FILES = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)  # SQLite may not create -wal and -shm


def _open(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"file:{quote(os.fsencode(path))}?mode={mode}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


def _real(path: str | os.PathLike[str]) -> Path:
    text = os.fsdecode(path)
    if not text or "\0" in text:
        raise InvalidInput(f"not a path: {text!r}")
    return real_place(text)


def _look(path: Path) -> int:
    """The format of the store at `path`; raises if it is not a store. Only reads."""
    if not path.is_file():
        raise UnsupportedFormat(f"{path} is not a backtrail store: it is not a regular file; choose another path")
    fd = open_regular(path)
    try:
        header = read_at(fd, 100, 0)
    finally:
        os.close(fd)
    if len(header) < 100 or not header.startswith(MAGIC):
        what = "it is not a SQLite database" if header else "it is empty"
        raise UnsupportedFormat(
            f"{path} is not a backtrail store: {what}; choose another path, this file was left untouched"
        )
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise UnsupportedFormat(
            f"{path} is not a backtrail store: it is another program's database; choose another path, "
            "it was left untouched"
        )
    version = int.from_bytes(header[60:64], "big")
    if version > migrations.newest():
        raise _too_new(path, version)
    return version


def _version_now(path: Path) -> int:
    """The format of an open store, read through SQLite; 0 if it cannot be read."""
    try:
        with closing(_open(path, "ro")) as connection:
            return int(connection.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error:
        return 0


def _too_new(path: Path, version: int) -> UnsupportedFormat:
    return UnsupportedFormat(
        f"{path} has format {version}, this backtrail reads formats up to {migrations.newest()}: "
        "pip install -U backtrail"
    )


def _writable(path: Path) -> bool:
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        return False
    try:
        LockFile(beside(path, "-lock")).close()
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise  # a failing disk, or too many open files, will pass: the store is not read-only
        return False
    return True


def _make(path: Path) -> None:
    require_directory(path.parent)
    with closing(LockFile(beside(path, "-lock"))) as lock, lock:
        if path.exists():
            return  # another process was faster
        remove_abandoned(path.parent)
        with temporary_file(path) as fresh:
            os.close(create_exclusive(fresh))
            with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
                connection.execute(f"PRAGMA page_size = {PAGE_SIZE:d}")
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID:d}")
                migrations.migrate(connection)
                connection.execute("PRAGMA journal_mode = WAL")
            fd = open_regular(fresh)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            fresh.rename(path)
        sync_directory(path.parent)
