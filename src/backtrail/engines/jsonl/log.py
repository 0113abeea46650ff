"""The file of one lineage: an append-only log of lines. The offset of each record is kept in memory.

A log is read once, and afterwards only the lines that this or another process added. Rows, marks and blobs stay in the
file: memory holds their offsets. An incomplete line at the end of the file was torn by a crash and is cut off. A
complete line with a wrong checksum is damage: it is reported by its number, and everything else stays readable.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from bisect import insort
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TypeVar

import msgspec

from backtrail.engines.base import Commit, Head, Row, Step
from backtrail.engines.jsonl import line_format, readable_json
from backtrail.engines.jsonl.compaction import kept
from backtrail.engines.jsonl.line_format import CommitLine, Records, RowLine
from backtrail.engines.jsonl.offsets import BranchIndex, Damage, Offset, stretch
from backtrail.errors import DECODE_ERRORS, Corrupt, UnsupportedFormat
from backtrail.owned_files import open_or_create, open_regular, read_at, replace_atomically, sync_directory, write_all

T = TypeVar("T")
_log = logging.getLogger(__name__)
_CHUNK = 1 << 24
_TOGETHER = 1 << 20  # bytes of neighbouring lines that are read at once
_WAY_OUT = "opened with salvage=True, the store sets such lines aside"


class LineageLog:
    """A lineage's file. The caller locks out other threads, and other processes during writes."""

    def __init__(self, path: Path, lineage: str) -> None:
        self.path = path
        self._name = str(path)  # used at every commit
        self.lineage = lineage
        self._fd = -1
        self._forget()

    def _forget(self) -> None:
        self.close()
        self._inode = -1
        self.end = 0  # offset after the last complete line that was read
        self.size = 0  # of the file at that time
        self.number = 0  # lines read so far
        self.branch_indexes: dict[bytes, BranchIndex] = {}
        self.heads: dict[str, Head] = {}
        self.set_at: dict[str, int] = {}  # the line that set a head
        self.blobs: dict[bytes, Offset] = {}
        self.damages: list[Damage] = []
        self.drops = 0
        self._newest: tuple[bytes, Row] | None = None  # the branch and row that this process wrote last

    def __bool__(self) -> bool:
        return bool(self.branch_indexes or self.heads or self.blobs)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    # -- reading the file ------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Read the lines that were added since the last time."""
        try:
            found = os.lstat(self._name)  # half the time of Path.lstat, at every commit
            if found.st_ino != self._inode or found.st_size < self.end:
                self._forget()  # compacted, or deleted and created again
                self._descriptor()  # refuses anything but a regular file
            if found.st_size != self.end:
                self._read_on()
        except FileNotFoundError:
            if self._inode != -1:
                self._forget()

    @property
    def exists(self) -> bool:
        return self._inode != -1

    @property
    def torn(self) -> bool:
        """True if bytes follow the last complete line: a write in progress, or one that a crash ended."""
        return self.size > self.end

    def _read_on(self) -> None:
        fd = self._descriptor()
        size = os.fstat(fd).st_size
        rest = b""
        at = self.end
        try:
            while at + len(rest) < size:
                more = os.pread(fd, min(_CHUNK, size - at - len(rest)), at + len(rest))
                if not more:
                    break
                chunk = rest + more
                whole = chunk.rfind(b"\n") + 1
                for line in chunk[:whole].split(b"\n")[:-1]:
                    self._take(line + b"\n", at)
                    at += len(line) + 1
                rest = chunk[whole:]
        except BaseException:
            self._forget()  # some lines were taken and some were not: the next call reads the file from its beginning
            raise
        self.end = at
        self.size = size
        last = self.damages[-1] if self.damages else None
        if last is not None and last.offset + len(last.raw) == self.end and b"\0" in last.raw:
            # JSON has no NUL: these are blocks that a power cut kept from the disk, in a line that was never
            # acknowledged.
            self.damages.pop()
            self.number -= 1
            self.end = last.offset

    def _take(self, raw: bytes, offset: int) -> None:
        self.number += 1
        try:
            if not line_format.sound(raw):
                raise ValueError("its checksum does not hold")
            if self.number == 1:
                self._begin(raw)
            else:
                self._apply(line_format.read(raw), offset, len(raw))
        except (*DECODE_ERRORS, ValueError) as error:
            self.damages.append(Damage(self.number, offset, raw))
            _log.warning("%s: %s", self.where(self.number), error)

    def _begin(self, raw: bytes) -> None:
        header = line_format.read_header(raw)
        if header.format > line_format.FORMAT:
            raise UnsupportedFormat(
                f"{self.path} has format {header.format}, this backtrail reads up to {line_format.FORMAT}: "
                f"pip install -U backtrail"
            )
        if header.lineage != self.lineage:
            raise UnsupportedFormat(f"{self.path} holds {header.lineage!r}, not {self.lineage!r}: was it renamed?")

    def _apply(self, line: CommitLine, offset: int, length: int, records: Records | None = None) -> None:
        """Record the offsets of a line's records: of all of them or, on an error, of none."""
        if records is None:
            records = line_format.records_in(line, self.lineage, self.where(self.number))
        rows, heads, branches, marks, blobs = records
        self._newest = None
        for branch in branches:
            self.branch_indexes[branch.id] = BranchIndex(branch, self.number)
        for nth, (name, step, id, *_) in enumerate(rows):
            index = self.branch_indexes.get(name)
            if index is not None:
                if index.steps and step < index.steps[-1]:
                    insort(index.steps, step)
                else:
                    index.steps.append(step)
                index.offsets[step] = Offset(offset, length, nth)
                index.ids[step] = id
        for nth, (name, step, said) in enumerate(marks):
            index = self.branch_indexes.get(name)
            if index is not None and said is not None:
                index.marks[step] = Offset(offset, length, nth)
            elif index is not None:
                index.marks.pop(step, None)
        for blob in blobs:
            self.blobs.setdefault(blob, Offset(offset, length, 0))
        for thread in line.deleted:
            self.heads.pop(thread, None)
            self.set_at[thread] = self.number
        for head in heads:
            self.heads[head.thread] = head
            self.set_at[head.thread] = self.number
        if line.drop is not None:
            self._drop(line.drop)

    def _drop(self, drop: line_format.DropLine) -> None:
        self.drops += 1
        for name in drop.branches:
            self.branch_indexes.pop(bytes.fromhex(name), None)
        for name, step in drop.rows:
            if (index := self.branch_indexes.get(bytes.fromhex(name))) is not None:
                index.forget(step)
        for name, step in drop.bodies:
            index = self.branch_indexes.get(bytes.fromhex(name))
            if index is not None and step in index.offsets:
                index.emptied.add(step)
        for name in drop.blobs:
            self.blobs.pop(bytes.fromhex(name), None)

    def _descriptor(self) -> int:
        if self._fd < 0:
            try:
                self._fd = open_regular(self.path, os.O_RDWR | os.O_APPEND)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                    raise
                self._fd = open_regular(self.path)
            self._inode = os.fstat(self._fd).st_ino
        return self._fd

    # -- reading records -------------------------------------------------------------------------------------------

    def where(self, number: int) -> str:
        return f"{self.path}, line {number}"

    def line(self, at: Offset) -> CommitLine:
        """A line that was read before."""
        return next(self._lines([at], line_format.read))

    def _lines(self, offsets: list[Offset], read: Callable[[bytes], T]) -> Iterator[T]:
        """The line of each offset, checked and decoded by `read`; once for several offsets in the same line.
        Neighbouring lines are fetched together."""
        fd = self._descriptor()
        start, data, held = 0, b"", -1
        for number, (offset, length, _) in enumerate(offsets):
            if offset != held:
                if not start <= offset <= offset + length <= start + len(data):
                    start, data = offset, read_at(fd, stretch(offsets, number, _TOGETHER), offset)
                raw = data[offset - start : offset - start + length]
                if not line_format.sound(raw):
                    raise Corrupt(self.where(self._number_of(offset)), "its checksum does not hold any more")
                try:
                    held, line = offset, read(raw)
                except readable_json.NOT_OURS as error:
                    raise self._foreign(offset, error) from error
            yield line

    def _number_of(self, offset: int) -> int:
        return read_at(self._descriptor(), offset, 0).count(b"\n") + 1

    def row_lines(self, index: BranchIndex, steps: list[int]) -> Iterator[tuple[int, RowLine]]:
        """Rows in the form that the file has."""
        offsets = [index.offsets[step] for step in steps]
        for step, at, line in zip(steps, offsets, self._lines(offsets, line_format.read), strict=True):
            yield step, line.rows[at.nth]

    def mark(self, index: BranchIndex, step: int) -> bytes | None:
        at = index.marks.get(step)
        return None if at is None else self._reveal(self.line(at).marks[at.nth].data, at.offset)

    def payloads(self, index: BranchIndex, first: int, last: int) -> list[tuple[int, bytes]]:
        steps = index.between(first, last)
        offsets = [index.offsets[step] for step in steps]
        found = []
        for step, at, payloads in zip(steps, offsets, self._lines(offsets, line_format.read_payloads), strict=True):
            try:
                found.append((step, b"" if step in index.emptied else readable_json.undo(payloads[at.nth].payload)))
            except readable_json.NOT_OURS as error:
                raise self._foreign(at.offset, error) from error
        return found

    def steps(self, index: BranchIndex, steps: list[int]) -> list[Step]:
        return [
            Step(
                step,
                index.ids[step],
                self._reveal(row.meta, index.offsets[step].offset),
                self._digest(row, index.offsets[step].offset),
                self.mark(index, step),
            )
            for step, row in self.row_lines(index, steps)
        ]

    def rows(self, index: BranchIndex, first: int, last: int) -> list[Row]:
        return [self._row(index, step, row, True) for step, row in self.row_lines(index, index.between(first, last))]

    def row(self, index: BranchIndex, step: int) -> Row | None:
        """One row, without its payload."""
        if self._newest is not None and self._newest[0] == index.branch.id and self._newest[1].step == step:
            return self._newest[1]
        if step not in index.offsets:
            return None
        return self._row(index, *next(self.row_lines(index, [step])), False)

    def _row(self, index: BranchIndex, step: int, row: RowLine, payload: bool) -> Row:
        offset, whole = index.offsets[step].offset, step not in index.emptied
        return Row(
            step,
            index.ids[step],
            self._reveal(row.meta, offset),
            self._digest(row, offset),
            self.mark(index, step),
            self._reveal(row.root, offset) if whole else b"",
            self._reveal(row.payload, offset) if whole and payload else b"",
        )

    def blob(self, name: bytes) -> bytes | None:
        at = self.blobs.get(name)
        return None if at is None else self._reveal(self.line(at).blobs[name.hex()], at.offset)

    def _reveal(self, shown: msgspec.Raw, offset: int) -> bytes:
        try:
            return readable_json.hide(shown)
        except readable_json.NOT_OURS as error:
            raise self._foreign(offset, error) from error

    def _digest(self, row: RowLine, offset: int) -> bytes:
        try:
            return bytes.fromhex(row.digest)
        except ValueError as error:
            raise self._foreign(offset, error) from error

    def _foreign(self, offset: int, error: Exception) -> Corrupt:
        return Corrupt(self.where(self._number_of(offset)), f"not written by backtrail: {error}")

    # -- damage ----------------------------------------------------------------------------------------------------

    def trust_head(self, thread: str) -> None:
        """Raise if a damaged line may have moved this head after the last line that is known to have set it."""
        if not self.damages:
            return
        name = line_format.as_json(thread)
        for damage in self.damages:
            later = damage.number > self.set_at.get(thread, 0)
            others = (line_format.as_json(other) for other in self.heads if other != thread)
            if later and (name in damage.raw or not any(other in damage.raw for other in others)):
                raise Corrupt(self.where(damage.number), f"it may have moved the head; {_WAY_OUT}")

    def trust_rows(self, index: BranchIndex | None, first: int, last: int) -> None:
        """Raise if steps of this range are missing and a damaged line lies where they would be."""
        if not self.damages:
            return
        for low, high in [(-1, self.end)] if index is None else index.gaps(first, last, self.end):
            for damage in self.damages:
                if low < damage.offset < high:
                    raise Corrupt(self.where(damage.number), f"steps are missing; {_WAY_OUT}")

    # -- writing ---------------------------------------------------------------------------------------------------

    def cut(self) -> int:
        """Cut off what a crash left after the last complete line, and return how many bytes. The caller holds the
        lock."""
        torn = self.size - self.end
        if torn > 0:
            fd = self._descriptor()
            os.ftruncate(fd, self.end)
            os.fsync(fd)
            _log.warning(
                "%s: cut off %d bytes of a line that a crash had torn (after line %d)", self.path, torn, self.number
            )
            self.size = self.end
        return max(torn, 0)

    def append(self, line: CommitLine, *, sync: bool, commit: Commit | None = None) -> None:
        """Write a line (`commit`: the commit it was made from, if any) and, with `sync`, wait until it is on disk. The
        caller holds the lock and has refreshed the log."""
        data = line_format.seal(line)
        fresh = self.end == 0
        header = line_format.seal(line_format.header(self.lineage)) if fresh else b""
        if fresh:
            os.close(open_or_create(self.path, os.O_WRONLY))
        fd = self._descriptor()
        try:
            write_all(fd, header + data)
            if sync:
                os.fsync(fd) if sys.platform == "darwin" else os.fdatasync(fd)  # macOS has no fdatasync
                if fresh:
                    sync_directory(self.path.parent)
        except BaseException:
            os.ftruncate(fd, self.end)
            raise
        start = self.end + len(header)
        self.number += 2 if fresh else 1
        self._apply(line, start, len(data), None if commit is None else line_format.records_of(commit))
        self.end = self.size = start + len(data)
        if commit is not None and len(commit.rows) == 1 and not commit.marks:
            branch, step, id, meta, digest, root, _ = commit.rows[0]
            self._newest = branch, Row(step, id, meta, digest, None, root, b"")

    def compact(self) -> None:
        """Rewrite the file without dropped records; damaged lines go to a file beside it. The caller holds the lock."""
        if self.damages:
            fd = open_or_create(self.path.with_name(self.path.name + ".damaged"), os.O_WRONLY | os.O_APPEND)
            try:
                write_all(fd, b"".join(damage.raw for damage in self.damages))
                os.fsync(fd)
            finally:
                os.close(fd)
        if not self:
            self.path.unlink(missing_ok=True)
            sync_directory(self.path.parent)
        else:
            replace_atomically(self.path, chain([line_format.seal(line_format.header(self.lineage))], kept(self)))
        self._forget()
        self.refresh()
