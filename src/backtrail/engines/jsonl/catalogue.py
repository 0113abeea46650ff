"""The catalogue of all files of a store: heads for listings, and the file that holds a thread or a branch.

All of it is derived from the logs, and is rebuilt from them if it is missing or damaged. Two small files save that
work: `.index` holds the heads of each log with the inode, size and time that the log had, so that a listing reads only
the logs that have changed; `.names` records which threads are in the log of another one (the forks) and which branches
exist. A `.names` entry is a hint, to be confirmed in the log.

In a directory with many logs, a listing looks only at those that `.changes` names. Files that somebody else changes,
adds or removes are found when all are looked at again, on which a process spends at most a fiftieth of its time.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from backtrail.engines.base import Head
from backtrail.engines.dict_engine import HeadIndex
from backtrail.engines.jsonl import line_format
from backtrail.engines.jsonl.changes import Changes
from backtrail.engines.jsonl.file_names import SUFFIX, file_name
from backtrail.engines.jsonl.log import LineageLog
from backtrail.errors import DECODE_ERRORS, UnsafePath, UnsupportedFormat
from backtrail.owned_files import open_or_create, open_regular, read_at, read_bytes, replace_atomically, write_all

_log = logging.getLogger(__name__)

_SAVE_AFTER = 200  #: logs that were read for listings; an eighth of all of them, if that is more
FEW = 256  #: logs that are all looked at by every listing
PATIENCE = 50  #: times as long as a look at all files takes, until the next one
_LONGEST_HEADER = 1 << 16  #: bytes; the longest name of a thread takes a tenth of it


class CatalogueEntry(msgspec.Struct, array_like=True):
    """The contents of a log whose file had this `stamp`."""

    stamp: tuple[int, int, int]  #: inode, size, time of the last change
    lineage: str
    heads: list[Head]
    branches: list[bytes]
    rows: int
    blobs: int
    damaged: int

    def __bool__(self) -> bool:
        return bool(self.heads or self.branches or self.blobs)


class Totals(msgspec.Struct):
    """The numbers of all records, and the bytes of all files."""

    branches: int = 0
    rows: int = 0
    blobs: int = 0
    damaged: int = 0
    bytes: int = 0

    def add(self, entry: CatalogueEntry, times: int) -> None:
        self.branches += times * len(entry.branches)
        self.rows += times * entry.rows
        self.blobs += times * entry.blobs
        self.damaged += times * entry.damaged
        self.bytes += times * entry.stamp[1]


class Catalogue:
    """All logs of a directory. Not thread-safe: the caller holds the mutex."""

    def __init__(self, directory: Path, log: Callable[[str], LineageLog]) -> None:
        self._directory = directory
        self._names = directory / ".names"
        self._log = log  # returns the current log of a lineage
        self.changes = Changes(directory)
        self._entries: dict[str, CatalogueEntry] = {}
        self._index = HeadIndex()
        self._totals = Totals()
        self._other_bytes = 0  # of files that are no logs
        self._lineages: list[str] | None = None  # sorted, if none began or ended since the last listing
        self._looked, self._took = 0.0, 0.0  # when all files were looked at, and for how long
        self._loaded = False
        self._unsaved = 0
        self._hints: dict[str | bytes, list[str]] = {}
        self._hints_read = 0
        self._hints_inode = -1
        self._hints_lost = False

    # -- listings --------------------------------------------------------------------------------------------------

    def index(self) -> HeadIndex:
        """The heads of all logs, as they are now."""
        self._refresh()
        return self._index

    def totals(self) -> Totals:
        """What all files hold now."""
        self._refresh()
        return msgspec.structs.replace(self._totals, bytes=self._totals.bytes + self._other_bytes)

    def totals_between(self, low: str, high: str | None) -> tuple[int, Totals]:
        """The number of threads in the lineages from `low` on that come before `high`, and what their logs hold."""
        self._refresh()
        threads, totals = 0, Totals()
        for entry in self._entries.values():
            if entry and low <= entry.lineage and (high is None or entry.lineage < high):
                threads += len(entry.heads)
                totals.add(entry, 1)
        return threads, totals

    def lineages(self) -> list[str]:
        """The lineages that are not empty, sorted."""
        self._refresh()
        if self._lineages is None:
            self._lineages = sorted(entry.lineage for entry in self._entries.values() if entry)
        return self._lineages

    def _refresh(self) -> None:
        """Read the logs that have changed since the last time."""
        self._load()
        changed = self.changes.unseen()
        overdue = time.monotonic() > self._looked + PATIENCE * self._took
        try:
            if changed is None or overdue or len(self._entries) <= FEW:
                self._look_at_all()
            else:
                for name in changed:
                    self._look_at(name)
        except BaseException as error:
            if not isinstance(error, Exception):  # an interrupt, perhaps between an entry and what is derived from it
                self._forget()
            raise  # after an error, the same logs are looked at again
        self.changes.seen()
        if self._unsaved >= max(_SAVE_AFTER, len(self._entries) // 8):
            self.save()

    def _forget(self) -> None:
        self._entries, self._index, self._totals, self._lineages = {}, HeadIndex(), Totals(), None
        self._loaded, self._looked, self._took = False, 0.0, 0.0

    def _look_at_all(self) -> None:
        start = time.monotonic()
        there: set[str] = set()
        self._other_bytes = 0
        with os.scandir(self._directory) as files:
            for file in files:
                with suppress(FileNotFoundError):  # replaced, or compacted away, since the directory was read
                    found = file.stat(follow_symlinks=False)
                    if file.name.endswith(SUFFIX):
                        self._put(file.name, self._entry(file.name, found))
                        there.add(file.name)
                    else:
                        self._other_bytes += found.st_size
        for name in self._entries.keys() - there:
            self._put(name, None)
        self._looked = time.monotonic()
        self._took = self._looked - start

    def _look_at(self, name: str) -> None:
        try:
            self._put(name, self._entry(name, os.lstat(self._directory / name)))
        except FileNotFoundError:
            self._put(name, None)

    def _put(self, name: str, entry: CatalogueEntry | None) -> None:
        """Replace the entry of a log; None if there is no such file."""
        old = self._entries.get(name)
        if old is entry:
            return
        self._unsaved += 1
        if entry is None:
            del self._entries[name]
        else:
            self._entries[name] = entry
        if bool(old) != bool(entry):
            self._lineages = None
        self._take_off(old, entry)
        self._add(entry)

    def _take_off(self, old: CatalogueEntry | None, new: CatalogueEntry | None) -> None:
        if old is None:
            return
        self._totals.add(old, -1)
        stay = {head.thread for head in new.heads} if new else ()
        for head in old.heads:
            known = self._index.heads.get(head.thread)
            if head.thread not in stay and known is not None and known.lineage == old.lineage:
                self._index.put(head.thread, None)

    def _add(self, entry: CatalogueEntry | None) -> None:
        if entry is not None:
            self._totals.add(entry, 1)
            for head in entry.heads:
                self._index.put(head.thread, head)

    def save(self) -> None:
        """Write the index for the next process. It is only a cache: it is not synced to disk, and a full or failing
        disk, or something in its place, only costs time."""
        if self._unsaved and os.access(self._directory, os.W_OK):
            data = msgspec.msgpack.encode((line_format.FORMAT, self._entries))
            try:
                replace_atomically(self._directory / ".index", [data], sync=False)
            except (OSError, UnsafePath) as error:
                _log.warning("%s: its index was not written: %s", self._directory, error)
            self._unsaved = 0

    def _load(self) -> None:
        if not self._loaded:
            self._loaded = True
            try:
                data = read_bytes(self._directory / ".index")
                version, entries = msgspec.msgpack.decode(data, type=tuple[int, dict[str, CatalogueEntry]])
            except (OSError, UnsafePath, *DECODE_ERRORS):
                self._unsaved += 1
                return
            self._entries = entries if version == line_format.FORMAT else {}
            for entry in self._entries.values():
                self._add(entry)

    def _entry(self, name: str, found: os.stat_result) -> CatalogueEntry:
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        known = self._entries.get(name)
        if known is not None and known.stamp == stamp:
            return known
        path = self._directory / name
        lineage = known.lineage if known else lineage_at(path)
        if lineage is None or file_name(lineage) != name:
            # An incomplete header is being written now, or was torn: no commit in that file was ever acknowledged.
            return CatalogueEntry(stamp, "", [], [], 0, 0, damaged=int(_header(path).endswith(b"\n")))
        log = self._log(lineage)
        return CatalogueEntry(
            stamp,
            lineage,
            list(log.heads.values()),
            list(log.branch_indexes),
            sum(len(index.steps) for index in log.branch_indexes.values()),
            len(log.blobs),
            len(log.damages),
        )

    # -- hints -----------------------------------------------------------------------------------------------------

    def lineages_of(self, name: str | bytes) -> list[str]:
        """Lineages in which a thread (besides the lineage named like it) or a branch may be found."""
        self._read_hints()
        return self._hints.get(name, [])

    def hint(self, names: list[str | bytes], lineage: str, *, sync: bool) -> None:
        """Record the lineage of these names before they are written to its log. The caller holds the lock."""
        new = [name for name in names if lineage not in self.lineages_of(name)]
        if self._hints_lost:
            self.write_hints()
        if new:
            fd = open_or_create(self._names, os.O_WRONLY | os.O_APPEND)
            try:
                write_all(fd, b"".join(_hint(name, lineage) for name in new))
                if sync:
                    os.fsync(fd)
            finally:
                os.close(fd)

    def write_hints(self) -> None:
        """Rewrite all hints from the logs. The caller holds the lock."""
        self._gather_hints()
        hints = (_hint(name, lineage) for name, found in self._hints.items() for lineage in found)
        replace_atomically(self._names, [b"".join(hints)])
        self._hints_lost = False

    def _read_hints(self) -> None:
        try:
            found = self._names.lstat()
        except FileNotFoundError:
            self._gather_hints()
            return
        if found.st_ino != self._hints_inode or found.st_size < self._hints_read:
            self._hints, self._hints_read, self._hints_inode = {}, 0, found.st_ino
        if found.st_size == self._hints_read:
            return
        fd = open_regular(self._names)
        try:
            data = read_at(fd, found.st_size - self._hints_read, self._hints_read)
        finally:
            os.close(fd)
        whole = data[: data.rfind(b"\n") + 1]
        try:
            for line in whole.splitlines():
                branch, thread, lineage = _HINT.decode(line)
                self._remember(bytes.fromhex(branch) if branch is not None else thread or "", lineage)
        except (*DECODE_ERRORS, ValueError):
            self._gather_hints()
            return
        self._hints_read += len(whole)

    def _gather_hints(self) -> None:
        """Read the hints from the logs, because the file is missing or damaged. The next writer rewrites it."""
        self._hints_lost = True
        self._hints, self._hints_inode = {}, -1
        self._refresh()
        for entry in self._entries.values():
            for head in entry.heads:
                if head.thread != entry.lineage:
                    self._remember(head.thread, entry.lineage)
            for branch in entry.branches:
                self._remember(branch, entry.lineage)

    def _remember(self, name: str | bytes, lineage: str) -> None:
        known = self._hints.setdefault(name, [])
        if lineage not in known:
            known.append(lineage)


def _hint(name: str | bytes, lineage: str) -> bytes:
    branch, thread = (name.hex(), None) if isinstance(name, bytes) else (None, name)
    return line_format.as_json([branch, thread, lineage]) + b"\n"


_HINT = msgspec.json.Decoder(tuple[str | None, str | None, str])


def lineage_at(path: Path) -> str | None:
    """The lineage that a log's first line names; None if that line is damaged."""
    first = _header(path)
    try:
        if not line_format.sound(first):
            return None
        header = line_format.read_header(first)
    except (*DECODE_ERRORS, ValueError):
        return None
    if header.format > line_format.FORMAT:
        raise UnsupportedFormat(f"{path} has format {header.format}: pip install -U backtrail")
    return header.lineage


def _header(path: Path) -> bytes:
    with os.fdopen(open_regular(path), "rb") as file:
        return file.readline(_LONGEST_HEADER)
