"""Opens and replaces the files that backtrail itself makes: stores, logs, locks, caches, exports.

Somebody else may have put something in the place of such a file: a symbolic link to a victim, a FIFO that hangs its
reader, a directory, a second name (hard link) of another file. So a file of ours is opened without following a link,
without waiting, and used only if it is regular; it is created only where there is nothing; it is replaced through a
temporary file with a random name. Anything else is refused as `UnsafePath`, and left as it was.

The directories above a file are the caller's choice, and may be links. Every file is made with mode 0600 and every
directory with 0700, whatever the umask. Other errors are the operating system's own (`OSError`).
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from backtrail.errors import NotFound, UnsafePath

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
ABANDONED = 3600.0  #: seconds after its last change, a temporary file belongs to a process that died

# O_NONBLOCK: opening a FIFO returns at once; it does nothing to a regular file.
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NOT_A_FILE = (errno.ELOOP, errno.ENXIO, errno.EISDIR, errno.EMLINK, errno.ENODEV, errno.EOPNOTSUPP)
_WRITES = os.O_WRONLY | os.O_RDWR
_TEMPORARY = r"\.backtrail-[0-9a-f]{16}\.new(-journal|-wal|-shm)?"
_CREATING = 100  # attempts, in case others create and remove the file meanwhile
_CHUNK = 1 << 20


def real_place(path: str | os.PathLike[str]) -> Path:
    """The real path of a store, which its user may name through a link. The link must lead to something: a store is
    made only where its user says."""
    named = Path(path)
    real = named.resolve()
    if named.is_symlink() and not real.exists():
        raise UnsafePath(f"{named} is a link to {real}, where there is nothing: remove the link, or open that path")
    return real


def open_regular(path: Path, flags: int = os.O_RDONLY, *, any_links: bool = False) -> int:
    """Open a file that exists, and return its descriptor.

    A file that is opened for writing must have no other name: a write would change what that name belongs to.
    `any_links` allows it, for a file whose contents are never written.
    """
    try:
        fd = os.open(path, flags | _SAFE)
    except OSError as error:
        if error.errno in _NOT_A_FILE:
            require_regular(path)  # says what is there instead
        raise
    try:
        _check(path, os.fstat(fd), alone=bool(flags & _WRITES) and not any_links)
    except BaseException:
        os.close(fd)
        raise
    return fd


def create_exclusive(path: Path, flags: int = os.O_WRONLY) -> int:
    """Create a file where there is nothing, not even a dangling link (`FileExistsError`); return its descriptor."""
    fd = os.open(path, flags | os.O_CREAT | os.O_EXCL | _SAFE, FILE_MODE)
    try:
        os.fchmod(fd, FILE_MODE)  # a umask may have taken the owner's own rights
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_or_create(path: Path, flags: int, *, any_links: bool = False) -> int:
    """Open a file, or create it if there is none; see `open_regular`."""
    for _ in range(_CREATING):
        with suppress(FileNotFoundError):
            return open_regular(path, flags, any_links=any_links)
        with suppress(FileExistsError):  # another process was faster
            return create_exclusive(path, flags)
    raise OSError(errno.EBUSY, "it is created and removed all the time", str(path))


def require_regular(path: Path, *, alone: bool = False) -> os.stat_result | None:
    """Check a name without opening it: raises unless it is a regular file or nothing (None).

    For files that a library opens by name. `alone`: the file must have no other name."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    _check(path, found, alone=alone)
    return found


def _check(path: Path, found: os.stat_result, *, alone: bool) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UnsafePath(
            f"{path} should be a file of backtrail's, but is {_kind(found.st_mode)}: "
            "see who put it there, and remove it; nothing was touched"
        )
    if alone and found.st_nlink > 1:
        raise UnsafePath(
            f"{path} has {found.st_nlink} names (hard links), and writing to it would change the file under each: "
            "copy it and put the copy in its place; nothing was touched"
        )


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "not a regular file")


def read_bytes(path: Path) -> bytes:
    """The contents of a file."""
    fd = open_regular(path)
    try:
        return _read_all(fd)
    finally:
        os.close(fd)


def _read_all(fd: int) -> bytes:
    parts = []
    while part := os.read(fd, _CHUNK):
        parts.append(part)
    return b"".join(parts)


def read_at(fd: int, size: int, offset: int) -> bytes:
    """`size` bytes from `offset`, however many the system returns at once; fewer only at the end of the file."""
    data = os.pread(fd, size, offset)
    while len(data) < size and (more := os.pread(fd, size - len(data), offset + len(data))):
        data += more
    return data


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, however much of it the system takes at once."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


def replace_atomically(path: Path, parts: Iterable[bytes], *, sync: bool = True) -> None:
    """Give a file new contents: readers find the old ones or the new ones, and nothing between.

    With `sync`, both the contents and the name are on disk when this returns. If it fails, nothing was changed."""
    require_regular(path)
    with temporary_file(path) as fresh:
        fd = create_exclusive(fresh)
        try:
            for part in parts:
                write_all(fd, part)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        fresh.rename(path)
    if sync:
        sync_directory(path.parent)


@contextmanager
def temporary_file(path: Path) -> Iterator[Path]:
    """A random name beside `path`, not yet in use. After an error, what was made under that name is removed."""
    fresh = path.with_name(f".backtrail-{os.urandom(8).hex()}.new")
    try:
        yield fresh
    except BaseException:
        for suffix in ("", "-journal", "-wal", "-shm"):
            fresh.with_name(fresh.name + suffix).unlink(missing_ok=True)
        raise


def remove_abandoned(directory: Path) -> None:
    """Remove temporary files of processes that died before they could rename or remove them."""
    limit = time.time() - ABANDONED
    for path in directory.iterdir():
        if re.fullmatch(_TEMPORARY, path.name):
            with suppress(FileNotFoundError):
                found = path.lstat()
                if stat.S_ISREG(found.st_mode) and found.st_mtime < limit:
                    path.unlink()


def require_directory(path: Path) -> None:
    """Refuse to make a store in a directory that does not exist: its path is more likely mistyped than meant."""
    if path.is_symlink() and not path.exists():
        raise UnsafePath(f"{path} is a symbolic link that leads to no directory: remove it, or choose another path")
    if not path.exists():
        raise NotFound(f"there is no directory {path}: make it first, or correct the path of the store")


def make_directories(path: Path) -> None:
    """Make a directory, and those above it that are missing, for this user only."""
    missing = []
    while not path.is_dir():
        if path.is_symlink():
            raise UnsafePath(f"{path} is a symbolic link that leads to no directory: remove it, or choose another path")
        missing.append(path)
        path = path.parent
    for each in reversed(missing):
        with suppress(FileExistsError):  # another process was faster; or it is a file, which the next one reports
            each.mkdir(mode=DIRECTORY_MODE)
            each.chmod(DIRECTORY_MODE)  # a umask may have taken the owner's own rights
    if missing and not missing[0].is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(missing[0]))


def sync_directory(path: Path) -> None:
    """Wait until the names in a directory are on disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
