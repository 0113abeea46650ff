"""Applying a restore: new files are staged, then moved into place step by step.

Everything new is first written into one staging directory inside the root, so that a full disk or a missing blob is
found before anything has changed. Then each path is changed by one rename, unlink, mkdir or rmdir, relative to a
descriptor of its directory that was reached without following a single link: whatever the directory or the snapshot
holds, nothing outside the root can be touched.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from backtrail.errors import FilesError, UnsafePath
from backtrail.workspace.blob_reader import BlobReader
from backtrail.workspace.exclusions import STAGING_PREFIX, is_staging
from backtrail.workspace.signatures import Signature, signature
from backtrail.workspace.trees import DIR, FILE, LINK, MODES, PIECES, Op, TreeEntry

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
FILES_PER_TASK = 64  # small files that one task stages
_OPEN_DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_PATH = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC if hasattr(os, "O_PATH") else 0
MAX_KEPT_OPEN = 64  # unlinked files that are open at once
MAX_THREADS = 4  # that stage at once


class Applier:
    """Changes one root, with one staging directory named by `token` (32 hex digits)."""

    def __init__(self, root: bytes, token: str) -> None:
        self._root_fd = os.open(root, _OPEN_DIR)
        self._root_path = root
        self._staging_name = STAGING_PREFIX + token.encode()
        self._staging_fd: int | None = None
        self._staged: dict[bytes, bytes] = {}  # path -> name in the staging directory
        self._granted = 0  # permission bits that the umask is known to let through
        self._made_with_mode: set[bytes] = set()  # directories that had their final mode from the start
        self._open_dirs: list[tuple[bytes, int]] = []  # directories from the root down to the one used last
        # Only on a local disk: NFS renames a file that is unlinked while it is open.
        self._keeps_open = bool(_OPEN_PATH and os.major(os.fstat(self._root_fd).st_dev))
        self._kept_open: list[int] = []  # descriptors of unlinked files, closed later in a thread
        self._closing: threading.Thread | None = None
        self._widened: dict[bytes, int] = {}  # directories made writable for the time being, and the mode they had

    def close(self) -> None:
        """Remove the staging directory and close every descriptor."""
        self._close_dirs(0)
        try:
            os.rmdir(self._staging_name, dir_fd=self._root_fd)
        except OSError:  # not empty, or never made
            import shutil  # a process that only takes snapshots does not wait for it

            shutil.rmtree(self._staging_name, ignore_errors=True, dir_fd=self._root_fd)
        if self._staging_fd is not None:
            self._kept_open.append(self._staging_fd)
            self._staging_fd = None
        self._close_kept()
        os.close(self._root_fd)

    # -- staging ----------------------------------------------------------------------------------------------------

    def make_staging(self, steps: list[Op]) -> None:
        """Make the staging directory, and in it every directory that the steps add: a new directory is filled there and
        moved into place as a whole."""
        os.mkdir(self._staging_name, 0o700, dir_fd=self._root_fd)
        self._staging_fd = os.open(self._staging_name, _OPEN_DIR, dir_fd=self._root_fd)
        for op in steps:  # parents come before children
            if op.new is not None and op.new.kind == DIR and (op.old is None or op.old.kind != DIR):
                self._staged[op.path] = name = self._staged_name(op.path)
                mode = op.new.mode & MODES
                os.mkdir(name, mode | 0o700, dir_fd=self._staging_fd)
                if mode & 0o700 != 0o700:
                    continue  # it gets its mode once it is filled
                if mode & ~self._granted:
                    self._granted |= stat.S_IMODE(os.stat(name, dir_fd=self._staging_fd).st_mode) & mode
                if not mode & ~self._granted:
                    self._made_with_mode.add(op.path)

    def _staged_name(self, path: bytes) -> bytes:
        above, _, name = path.rpartition(b"/")
        inside = self._staged.get(above) if above else None
        return b"%d" % len(self._staged) if inside is None else inside + b"/" + name

    def assign_names(self, ops: Iterable[Op]) -> None:
        """Give the files and links of these steps their names in the staging directory."""
        for op in ops:
            self._staged[op.path] = self._staged_name(op.path)

    def stage_small(self, ops: Iterable[Op], blobs: BlobReader) -> None:
        """Write the small files and links of these steps, with their modes, into the staging directory. Several threads
        may do this for different steps."""
        files: list[TreeEntry] = []
        names: list[bytes] = []
        for path, _, entry in ops:
            if entry is not None and entry.kind == LINK:
                os.symlink(entry.ref, self._staged[path], dir_fd=self._staging_fd)
            elif entry is not None:
                files.append(entry)
                names.append(self._staged[path])
        for name, entry, content in zip(names, files, blobs.read_small(files), strict=True):
            self._stage(name, entry.mode & MODES, ([content],))

    def stage_large(self, op: Op, blobs: BlobReader) -> None:
        """Write one large file into the staging directory."""
        if op.new is not None:
            self._stage(self._staged[op.path], op.new.mode & MODES, blobs.read_parts(op.new))

    def _stage(self, name: bytes, mode: int, parts: Iterable[Sequence[memoryview]]) -> None:
        handle = os.open(name, _CREATE, mode, dir_fd=self._staging_fd)
        try:
            for pieces in parts:
                _write_all(handle, pieces)
            if mode & ~self._granted:
                got = stat.S_IMODE(os.fstat(handle).st_mode) & mode
                self._granted |= got
                if got != mode:
                    os.fchmod(handle, mode)
        finally:
            os.close(handle)

    # -- changing the directory -------------------------------------------------------------------------------------

    def apply(self, steps: list[Op], expect: Mapping[bytes, Signature] | None = None) -> None:
        """Change the directory. With `expect`, a path that has another signature than expected stops the restore."""
        for op in reversed(steps):  # children before parents
            if op.old is not None and (op.new is None or (op.old.kind == DIR) != (op.new.kind == DIR)):
                self._remove(op, expect)
        for op in steps:
            staged = self._staged.get(op.path)
            if op.new is None or (staged is not None and b"/" in staged):
                continue  # nothing to install, or it came with its directory
            if staged is not None:
                self._install(op, expect)
            elif op.new.kind != DIR:
                self._set_mode(op.path, op.new.mode)
        self._close_dirs(0)
        for op in reversed(steps):
            if op.new is not None and op.new.kind == DIR and op.path not in self._made_with_mode:
                self._widened.pop(op.path, None)
                self._set_mode(op.path, op.new.mode)
        for path, mode in self._widened.items():
            if self._lstat(path) is not None:
                self._set_mode(path, mode)
        self._widened.clear()
        self._close_dirs(0)

    def _remove(self, op: Op, expect: Mapping[bytes, Signature] | None) -> None:
        facts = self._lstat(op.path)
        if facts is None:
            return
        directory, name = self._parent(op.path)
        if stat.S_ISDIR(facts.st_mode):
            try:
                os.rmdir(name, dir_fd=directory)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                if op.new is not None:
                    raise FilesError(self._absolute(op.path), "something appeared in it during the restore") from error
        else:
            self._check_unchanged(op, facts, expect)
            self._keep_open(directory, name)
            os.unlink(name, dir_fd=directory)

    def _install(self, op: Op, expect: Mapping[bytes, Signature] | None) -> None:
        facts = self._lstat(op.path)
        if facts is not None:
            if op.old is None:
                raise FilesError(self._absolute(op.path), "it appeared during the restore")
            self._check_unchanged(op, facts, expect)
        directory, name = self._parent(op.path)
        if facts is not None:
            self._keep_open(directory, name)
        os.rename(self._staged[op.path], name, src_dir_fd=self._staging_fd, dst_dir_fd=directory)

    def _keep_open(self, directory: int, name: bytes) -> None:
        """Open a file that is about to be unlinked, to have its blocks freed later in a thread: a disk may take longer
        for that than for all the rest of a restore."""
        if not self._keeps_open:
            return
        if len(self._kept_open) >= MAX_KEPT_OPEN:
            self._close_kept()
        with suppress(OSError):
            self._kept_open.append(os.open(name, _OPEN_PATH, dir_fd=directory))

    def _close_kept(self) -> None:
        handles, self._kept_open = self._kept_open, []
        if not self._keeps_open:
            _close_all(handles)
            return
        if self._closing is not None:
            self._closing.join()
        self._closing = threading.Thread(target=_close_all, args=(handles,), name="backtrail-close")
        try:
            self._closing.start()
        except RuntimeError:  # no more threads: the interpreter is about to end, or there are too many
            self._closing = None
            _close_all(handles)

    def _check_unchanged(self, op: Op, facts: os.stat_result, expect: Mapping[bytes, Signature] | None) -> None:
        if expect is None:
            return
        expected = expect.get(op.path)
        if expected is not None and signature(facts) != expected:
            raise FilesError(self._absolute(op.path), "it was changed by somebody else during the restore")

    def _set_mode(self, path: bytes, mode: int) -> None:
        facts = self._lstat(path)
        if facts is None or stat.S_ISLNK(facts.st_mode) or stat.S_IMODE(facts.st_mode) == mode & MODES:
            return
        directory, name = self._parent(path)
        if os.chmod in os.supports_follow_symlinks:
            os.chmod(name, mode & MODES, dir_fd=directory, follow_symlinks=False)
            return
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            os.chmod(f"/proc/self/fd/{handle}", mode & MODES)
        finally:
            os.close(handle)

    # -- reaching a path without following links ----------------------------------------------------------------------

    def _lstat(self, path: bytes) -> os.stat_result | None:
        try:
            directory, name = self._parent(path)
            return os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def _parent(self, path: bytes) -> tuple[int, bytes]:
        """A descriptor of the directory that holds a path, and the path's last name."""
        *above, name = path.split(b"/")
        depth = 0
        while depth < len(above) and depth < len(self._open_dirs) and self._open_dirs[depth][0] == above[depth]:
            depth += 1
        self._close_dirs(depth)
        directory = self._open_dirs[-1][1] if self._open_dirs else self._root_fd
        for at in range(depth, len(above)):
            directory = self._open_child(directory, above[at], b"/".join(above[: at + 1]))
            self._open_dirs.append((above[at], directory))
        return directory, name

    def _open_child(self, directory: int, name: bytes, path: bytes) -> int:
        try:
            handle = os.open(name, _OPEN_DIR, dir_fd=directory)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                full = self._absolute(path)
                raise UnsafePath(f"{full!r} is not a directory: it could lead out of the root") from error
            raise
        facts = os.fstat(handle)
        if facts.st_mode & 0o700 != 0o700 and facts.st_uid == os.geteuid():
            self._widened.setdefault(path, stat.S_IMODE(facts.st_mode) & MODES)
            os.fchmod(handle, stat.S_IMODE(facts.st_mode) & MODES | 0o700)
        return handle

    def _close_dirs(self, depth: int) -> None:
        while len(self._open_dirs) > depth:
            os.close(self._open_dirs.pop()[1])

    def _absolute(self, path: bytes) -> bytes:
        return self._root_path + b"/" + path


class StagingPool:
    """Stages files in as many threads as there are cores. The caller is one of them whenever the others have enough to
    do. While one thread unpacks without the interpreter's lock, another writes to files."""

    def __init__(self, applier: Applier) -> None:
        self._applier = applier
        self._size = min(os.cpu_count() or 1, MAX_THREADS)
        self._pool: ThreadPoolExecutor | None = None
        self._tasks: deque[tuple[Callable[[], None], Future[None]]] = deque()

    def stage(self, ops: Sequence[Op], blobs: BlobReader) -> None:
        """Stage files and links. The last tasks may still run afterwards, but only a few, to limit memory."""
        applier = self._applier
        applier.assign_names(ops)
        small: list[Op] = []
        for op in ops:
            if op.new is not None and op.new.kind == PIECES:
                self._submit(partial(applier.stage_large, op, blobs))
            else:
                small.append(op)
        while len(small) > FILES_PER_TASK:
            some, small = small[:FILES_PER_TASK], small[FILES_PER_TASK:]
            self._submit(partial(applier.stage_small, some, blobs))
        applier.stage_small(small, blobs)
        self.wait(2 * self._size)

    def _submit(self, task: Callable[[], None]) -> None:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(max(self._size - 1, 1), thread_name_prefix="backtrail-stage")
        self._tasks.append((task, self._pool.submit(task)))

    def wait(self, left: int = 0) -> None:
        """Help until at most `left` tasks are left; raises the error of a task that failed."""
        while len(self._tasks) > left:
            while self._tasks and self._tasks[0][1].done():
                self._tasks.popleft()[1].result()
            if len(self._tasks) > left:
                task, future = self._tasks.pop()
                if future.cancel():
                    task()
                else:
                    future.result()

    def close(self) -> None:
        """Cancel the tasks that have not begun, and wait for the others."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _close_all(handles: Iterable[int]) -> None:
    for handle in handles:
        os.close(handle)


def _write_all(handle: int, pieces: Sequence[memoryview]) -> None:
    """Write all pieces, with one call if possible."""
    done = os.write(handle, pieces[0]) if len(pieces) == 1 else os.writev(handle, pieces)
    if done == sum(map(len, pieces)):
        return
    for piece in pieces:
        while done < len(piece):  # a full disk raises; a signal or a limit may cut a write short
            done += os.write(handle, piece[done:])
        done -= len(piece)


def remove_leftover_staging(root: bytes) -> None:
    """Remove the staging directories of restores that died. The caller must have the root's lock."""
    with os.scandir(root) as items:
        leftover = [item.path for item in items if is_staging(item.name) and item.is_dir(follow_symlinks=False)]
    for path in leftover:
        try:
            import shutil

            shutil.rmtree(path)
        except OSError as error:
            raise FilesError(path, f"it is left of a restore and cannot be removed ({error.strerror})") from error


def needs_staging(op: Op) -> bool:
    """True if a step needs a new file or link, and not just a mode or a directory."""
    if op.new is None or op.new.kind == DIR:
        return False
    return not (op.old is not None and op.old.kind in (FILE, PIECES) and _content(op.old) == _content(op.new))


def _content(entry: TreeEntry) -> tuple[int, int, bytes]:
    return entry.kind, entry.size, entry.ref
