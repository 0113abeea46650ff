"""The hands of a restore: they stage what will be written, then put it in place, step by step.

Everything new is first written into one staging directory inside the root, so that a full disk or a missing blob is
found while nothing has changed. Then each path is changed by one rename, unlink, mkdir or rmdir, relative to a
descriptor of its directory that was reached without following a single link: whatever the directory or the snapshot
holds, nothing outside the root can be touched.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from backtrail.errors import FilesError, UnsafePath
from backtrail.workspace.blob_reader import BlobReader
from backtrail.workspace.exclusions import STAGING
from backtrail.workspace.index import Signature, signature
from backtrail.workspace.trees import DIR, FILE, LINK, MODES, PIECES, Op, TreeEntry

_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
GROUP = 64  # small files that are staged together
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_HOLD = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC if hasattr(os, "O_PATH") else 0
HELD = 64  # files at most that are held at once
CREW = 4  # threads that stage at once, at most


class Applier:
    """Changes one root, with one staging directory named by `token` (32 hex digits)."""

    def __init__(self, root: bytes, token: str) -> None:
        self._root = os.open(root, _OPEN)
        self._path = root
        self._staging_name = b".backtrail-restore-" + token.encode()
        self._staging: int | None = None
        self._staged: dict[bytes, bytes] = {}  # path -> name in the staging directory
        self._given = 0  # permission bits that new files are known to get when they are asked for: the umask's others
        self._made: set[bytes] = set()  # directories that had their mode from the start
        self._open: list[tuple[bytes, int]] = []  # directories from the root down to the one used last
        # Only on a disk: NFS gives a file that loses its name while somebody holds it another one.
        self._holds = bool(_HOLD and os.major(os.fstat(self._root).st_dev))
        self._held: list[int] = []  # files that have lost their names, and are freed by and by
        self._letting: threading.Thread | None = None
        self._loosened: dict[bytes, int] = {}  # directories made writable for a while, and the mode they had

    def close(self) -> None:
        """Remove the staging directory and let go of every descriptor."""
        self._forget(0)
        try:
            os.rmdir(self._staging_name, dir_fd=self._root)
        except OSError:  # not empty, or never made
            shutil.rmtree(self._staging_name, ignore_errors=True, dir_fd=self._root)
        if self._staging is not None:
            self._held.append(self._staging)
            self._staging = None
        self._let_go()
        os.close(self._root)

    # -- staging ----------------------------------------------------------------------------------------------------

    def prepare(self, steps: list[Op]) -> None:
        """Make the staging directory, and in it every directory that the steps will make: a new directory is filled
        there and comes into its place as a whole."""
        os.mkdir(self._staging_name, 0o700, dir_fd=self._root)
        self._staging = os.open(self._staging_name, _OPEN, dir_fd=self._root)
        for op in steps:  # parents come before children
            if op.new is not None and op.new.kind == DIR and (op.old is None or op.old.kind != DIR):
                self._staged[op.path] = name = self._staged_name(op.path)
                mode = op.new.mode & MODES
                os.mkdir(name, mode | 0o700, dir_fd=self._staging)
                if mode & 0o700 != 0o700:
                    continue  # it gets its mode when it is filled
                if mode & ~self._given:
                    self._given |= stat.S_IMODE(os.stat(name, dir_fd=self._staging).st_mode) & mode
                if not mode & ~self._given:
                    self._made.add(op.path)

    def _staged_name(self, path: bytes) -> bytes:
        above, _, name = path.rpartition(b"/")
        inside = self._staged.get(above) if above else None
        return b"%d" % len(self._staged) if inside is None else inside + b"/" + name

    def assign(self, ops: Iterable[Op]) -> None:
        """Give the files and links of these steps their names in the staging directory."""
        for op in ops:
            self._staged[op.path] = self._staged_name(op.path)

    def stage_small(self, ops: Iterable[Op], contents: BlobReader) -> None:
        """Write the new small files and links of steps, complete with their modes, where they can be renamed from.
        Several threads may do this for different steps."""
        files: list[TreeEntry] = []
        names: list[bytes] = []
        for path, _, entry in ops:
            if entry is not None and entry.kind == LINK:
                os.symlink(entry.ref, self._staged[path], dir_fd=self._staging)
            elif entry is not None:
                files.append(entry)
                names.append(self._staged[path])
        for name, entry, content in zip(names, files, contents.small(files), strict=True):
            self._stage(name, entry.mode & MODES, ([content],))

    def stage_large(self, op: Op, contents: BlobReader) -> None:
        """The same for one large file."""
        if op.new is not None:
            self._stage(self._staged[op.path], op.new.mode & MODES, contents.parts(op.new))

    def _stage(self, name: bytes, mode: int, parts: Iterable[Sequence[memoryview]]) -> None:
        handle = os.open(name, _CREATE, mode, dir_fd=self._staging)
        try:
            for pieces in parts:
                _write(handle, pieces)
            if mode & ~self._given:
                got = stat.S_IMODE(os.fstat(handle).st_mode) & mode
                self._given |= got
                if got != mode:
                    os.fchmod(handle, mode)
        finally:
            os.close(handle)

    # -- carrying out -----------------------------------------------------------------------------------------------

    def carry_out(self, steps: list[Op], expect: Mapping[bytes, Signature] | None = None) -> None:
        """Change the directory. With `expect`, a path that is no longer as it was seen stops everything."""
        for op in reversed(steps):  # children before parents
            if op.old is not None and (op.new is None or (op.old.kind == DIR) != (op.new.kind == DIR)):
                self._take_away(op, expect)
        for op in steps:
            staged = self._staged.get(op.path)
            if op.new is None or (staged is not None and b"/" in staged):
                continue  # nothing to put, or it came with its directory
            if staged is not None:
                self._put(op, expect)
            elif op.new.kind != DIR:
                self._set_mode(op.path, op.new.mode)
        self._forget(0)
        for op in reversed(steps):
            if op.new is not None and op.new.kind == DIR and op.path not in self._made:
                self._loosened.pop(op.path, None)
                self._set_mode(op.path, op.new.mode)
        for path, mode in self._loosened.items():
            if self._facts(path) is not None:
                self._set_mode(path, mode)
        self._loosened.clear()
        self._forget(0)

    def _take_away(self, op: Op, expect: Mapping[bytes, Signature] | None) -> None:
        facts = self._facts(op.path)
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
                    raise FilesError(self._full(op.path), "something appeared in it during the restore") from error
        else:
            self._check(op, facts, expect)
            self._hold(directory, name)
            os.unlink(name, dir_fd=directory)

    def _put(self, op: Op, expect: Mapping[bytes, Signature] | None) -> None:
        facts = self._facts(op.path)
        if facts is not None:
            if op.old is None:
                raise FilesError(self._full(op.path), "it appeared during the restore")
            self._check(op, facts, expect)
        directory, name = self._parent(op.path)
        if facts is not None:
            self._hold(directory, name)
        os.rename(self._staged[op.path], name, src_dir_fd=self._staging, dst_dir_fd=directory)

    def _hold(self, directory: int, name: bytes) -> None:
        """Keep a file that is about to lose its name for a moment: to free its blocks may take a disk longer than all
        the rest of a restore, and nobody has to wait for that."""
        if not self._holds:
            return
        if len(self._held) >= HELD:
            self._let_go()
        with suppress(OSError):
            self._held.append(os.open(name, _HOLD, dir_fd=directory))

    def _let_go(self) -> None:
        held, self._held = self._held, []
        if not self._holds:
            _close_all(held)
            return
        if self._letting is not None:
            self._letting.join()
        self._letting = threading.Thread(target=_close_all, args=(held,), name="backtrail-let-go")
        try:
            self._letting.start()
        except RuntimeError:  # no more threads: the interpreter is about to end, or there are too many
            self._letting = None
            _close_all(held)

    def _check(self, op: Op, facts: os.stat_result, expect: Mapping[bytes, Signature] | None) -> None:
        if expect is None:
            return
        seen = expect.get(op.path)
        if seen is not None and signature(facts) != seen:
            raise FilesError(self._full(op.path), "it was changed by somebody else during the restore")

    def _set_mode(self, path: bytes, mode: int) -> None:
        facts = self._facts(path)
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

    # -- getting there ----------------------------------------------------------------------------------------------

    def _facts(self, path: bytes) -> os.stat_result | None:
        try:
            directory, name = self._parent(path)
            return os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def _parent(self, path: bytes) -> tuple[int, bytes]:
        """A descriptor of the directory that holds a path, and the last name of it."""
        *above, name = path.split(b"/")
        depth = 0
        while depth < len(above) and depth < len(self._open) and self._open[depth][0] == above[depth]:
            depth += 1
        self._forget(depth)
        for at in range(depth, len(above)):
            handle = self._enter(self._open[-1][1] if self._open else self._root, above[at], b"/".join(above[: at + 1]))
            self._open.append((above[at], handle))
        return (self._open[-1][1] if self._open else self._root), name

    def _enter(self, directory: int, name: bytes, path: bytes) -> int:
        try:
            handle = os.open(name, _OPEN, dir_fd=directory)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise UnsafePath(f"{self._full(path)!r} is not a directory: it could lead out of the root") from error
            raise
        facts = os.fstat(handle)
        if facts.st_mode & 0o700 != 0o700 and facts.st_uid == os.geteuid():
            self._loosened.setdefault(path, stat.S_IMODE(facts.st_mode) & MODES)
            os.fchmod(handle, stat.S_IMODE(facts.st_mode) & MODES | 0o700)
        return handle

    def _forget(self, depth: int) -> None:
        while len(self._open) > depth:
            os.close(self._open.pop()[1])

    def _full(self, path: bytes) -> bytes:
        return self._path + b"/" + path


class Crew:
    """Stages files with as many threads as there are cores, of which its caller is one whenever the others have enough
    to do. What one thread unpacks without the interpreter's lock, another writes to files meanwhile."""

    def __init__(self, hands: Applier) -> None:
        self._hands = hands
        self._size = min(os.cpu_count() or 1, CREW)
        self._pool: ThreadPoolExecutor | None = None
        self._given: deque[tuple[Callable[[], None], Future[None]]] = deque()

    def give(self, ops: Sequence[Op], contents: BlobReader) -> None:
        """Stage these. The last of them may be under way afterwards, but only so many are in memory."""
        hands = self._hands
        hands.assign(ops)
        small: list[Op] = []
        for op in ops:
            if op.new is not None and op.new.kind == PIECES:
                self._give(partial(hands.stage_large, op, contents))
            else:
                small.append(op)
        while len(small) > GROUP:
            some, small = small[:GROUP], small[GROUP:]
            self._give(partial(hands.stage_small, some, contents))
        hands.stage_small(small, contents)
        self.wait(2 * self._size)

    def _give(self, task: Callable[[], None]) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(max(self._size - 1, 1), thread_name_prefix="backtrail-stage")
        self._given.append((task, self._pool.submit(task)))

    def wait(self, left: int = 0) -> None:
        """Help until no more than so many tasks are left, or something went wrong."""
        while len(self._given) > left:
            while self._given and self._given[0][1].done():
                self._given.popleft()[1].result()
            if len(self._given) > left:
                task, future = self._given.pop()
                if future.cancel():
                    task()
                else:
                    future.result()

    def close(self) -> None:
        """No thread touches anything any more."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _close_all(handles: Iterable[int]) -> None:
    for handle in handles:
        os.close(handle)


def _write(handle: int, pieces: Sequence[memoryview]) -> None:
    """Write all pieces, with one call if that can be."""
    done = os.write(handle, pieces[0]) if len(pieces) == 1 else os.writev(handle, pieces)
    if done == sum(map(len, pieces)):
        return
    for piece in pieces:
        while done < len(piece):  # a full disk raises; a signal or a limit may cut a write short
            done += os.write(handle, piece[done:])
        done -= len(piece)


def clear_leftovers(root: bytes) -> None:
    """Remove the staging directories of restores that died. Only for who has the root's lock."""
    for name in os.listdir(root):
        if STAGING.fullmatch(name):
            shutil.rmtree(root + b"/" + name)


def needs_staging(op: Op) -> bool:
    """Whether a step needs a new file or link, and not just a mode or a directory."""
    if op.new is None or op.new.kind == DIR:
        return False
    return not (op.old is not None and op.old.kind in (FILE, PIECES) and _content(op.old) == _content(op.new))


def _content(entry: TreeEntry) -> tuple[int, int, bytes]:
    return entry.kind, entry.size, entry.ref
