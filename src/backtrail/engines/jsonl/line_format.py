"""One commit is one line: JSON with named fields, and a checksum at its end.

    {"at":"2026-11-15T21:00:00.000000Z","rows":[{"branch":"…","step":7,…,"payload":{"items":[…],…}}],…,"sum":"0123456789abcdef"}

The checksum covers everything before `,"sum"`. The first line of a file names its lineage. A line is never changed: a
sweep adds a line that names the records it deletes, and compaction removes them.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from blake3 import blake3

from backtrail.engines.base import Branch, Commit, Drop, Head, Mark, NewRow
from backtrail.engines.jsonl import readable_json

FORMAT = 1

_encode = msgspec.json.Encoder().encode
_SUM = b',"sum":"'
_NULL = b"null"
_TAIL = len(_SUM) + 16 + len(b'"}\n')


class Header(msgspec.Struct):
    backtrail: str
    format: int
    lineage: str


class BranchLine(msgspec.Struct, omit_defaults=True, gc=False):
    id: str
    thread: str
    owner: str
    origin: tuple[str, int] | None = None
    seal: str = ""


class RowLine(msgspec.Struct, gc=False):
    branch: str
    step: int
    id: str
    digest: str
    meta: msgspec.Raw
    root: msgspec.Raw
    payload: msgspec.Raw


class HeadLine(msgspec.Struct, gc=False):
    thread: str
    owner: str
    branch: str
    step: int
    version: int
    kind: str
    created: int
    updated: int
    count: int
    size: int
    note: msgspec.Raw


class MarkLine(msgspec.Struct, gc=False):
    branch: str
    step: int
    data: msgspec.Raw  #: null deletes the mark


class DropLine(msgspec.Struct, omit_defaults=True):
    rows: list[tuple[str, int]] = []
    bodies: list[tuple[str, int]] = []
    branches: list[str] = []
    blobs: list[str] = []


class CommitLine(msgspec.Struct, omit_defaults=True, gc=False):
    """Everything that a commit or a sweep wrote. Rows come first, because people look for them."""

    at: str
    rows: list[RowLine] = []
    heads: list[HeadLine] = []
    deleted: list[str] = []  #: threads whose head was deleted
    branches: list[BranchLine] = []
    marks: list[MarkLine] = []
    blobs: dict[str, msgspec.Raw] = {}
    drop: DropLine | None = None

    def empty(self) -> bool:
        return not (self.rows or self.heads or self.branches or self.marks or self.blobs)


class Records(NamedTuple):
    """The parts of a line's records that are kept in memory."""

    rows: Sequence[NewRow | tuple[bytes, int, bytes]]  #: branch, step, id
    heads: Sequence[Head]
    branches: Sequence[Branch]
    marks: Sequence[Mark]  #: the mark's position only, not its data
    blobs: Iterable[bytes]


class Payload(msgspec.Struct):
    """The part of a row that a reader of messages needs."""

    payload: readable_json.Form | str


class _Payloads(msgspec.Struct):
    rows: list[Payload]


_line = msgspec.json.Decoder(CommitLine)
_payloads = msgspec.json.Decoder(_Payloads)
_header = msgspec.json.Decoder(Header)


def seal(record: msgspec.Struct) -> bytes:
    """A record as a line, with its checksum and newline."""
    body = _encode(record)[:-1]
    return body + _SUM + blake3(body).hexdigest(8).encode() + b'"}\n'


def sound(line: bytes) -> bool:
    """True if the checksum of a complete line is right."""
    body, tail = line[:-_TAIL], line[-_TAIL:]
    return tail == _SUM + blake3(body).hexdigest(8).encode() + b'"}\n'


def read(line: bytes) -> CommitLine:
    return _line.decode(line)


def read_payloads(line: bytes) -> list[Payload]:
    """The payloads of the line's rows; everything else is skipped."""
    return _payloads.decode(line).rows


def read_header(line: bytes) -> Header:
    return _header.decode(line)


def header(lineage: str) -> Header:
    return Header("jsonl", FORMAT, lineage)


def of_commit(commit: Commit) -> CommitLine:
    heads = [_head(swap.new) for swap in commit.swaps if swap.new is not None]
    line = CommitLine(_now(), [_row(row) for row in commit.rows], heads)
    if len(heads) < len(commit.swaps):
        line.deleted = [swap.thread for swap in commit.swaps if swap.new is None]
    if commit.branches:
        line.branches = [_branch(branch) for branch in commit.branches]
    if commit.marks:
        line.marks = [_mark(mark) for mark in commit.marks]
    if commit.blobs:
        line.blobs = {name.hex(): readable_json.show(data) for name, data in commit.blobs.items()}
    return line


def records_of(commit: Commit) -> Records:
    """The records of a commit's line, without decoding that line."""
    heads = [swap.new for swap in commit.swaps if swap.new is not None]
    return Records(commit.rows, heads, commit.branches, commit.marks, commit.blobs)


def records_in(line: CommitLine, lineage: str, where: str) -> Records:
    """The records of a line; ValueError if they are invalid."""
    return Records(
        [(bytes.fromhex(row.branch), row.step, bytes.fromhex(row.id)) for row in line.rows],
        [head_of(head, lineage, where) for head in line.heads],
        [branch_of(branch, lineage) for branch in line.branches],
        [
            Mark(bytes.fromhex(mark.branch), mark.step, None if bytes(mark.data) == _NULL else b"")
            for mark in line.marks
        ],
        [bytes.fromhex(name) for name in line.blobs],
    )


def of_drop(drop: Drop) -> CommitLine:
    return CommitLine(
        at=_now(),
        drop=DropLine(
            rows=[(branch.hex(), step) for branch, step in drop.rows],
            bodies=[(branch.hex(), step) for branch, step in drop.bodies],
            branches=[branch.hex() for branch in drop.branches],
            blobs=[name.hex() for name in drop.blobs],
        ),
    )


def head_of(line: HeadLine, lineage: str, where: str) -> Head:
    return Head(
        thread=line.thread,
        lineage=lineage,
        owner=bytes.fromhex(line.owner),
        branch=bytes.fromhex(line.branch),
        step=line.step,
        version=line.version,
        kind=line.kind,
        created=line.created,
        updated=line.updated,
        count=line.count,
        size=line.size,
        note=readable_json.revealed(line.note, where),
    )


def branch_of(line: BranchLine, lineage: str) -> Branch:
    origin = None if line.origin is None else (bytes.fromhex(line.origin[0]), line.origin[1])
    id, owner, seal = map(bytes.fromhex, (line.id, line.owner, line.seal))
    return Branch(id, lineage, line.thread, owner, origin, seal)


def _row(row: NewRow) -> RowLine:
    return RowLine(
        row.branch.hex(),
        row.step,
        row.id.hex(),
        row.digest.hex(),
        readable_json.show_meta(row.meta),
        readable_json.show_root(row.root),
        readable_json.show(row.payload),
    )


def _head(head: Head) -> HeadLine:
    return HeadLine(
        head.thread,
        head.owner.hex(),
        head.branch.hex(),
        head.step,
        head.version,
        head.kind,
        head.created,
        head.updated,
        head.count,
        head.size,
        readable_json.veil(head.note),
    )


def _branch(branch: Branch) -> BranchLine:
    origin = None if branch.origin is None else (branch.origin[0].hex(), branch.origin[1])
    return BranchLine(branch.id.hex(), branch.thread, branch.owner.hex(), origin, branch.seal.hex())


def _mark(mark: Mark) -> MarkLine:
    return MarkLine(
        mark.branch.hex(), mark.step, msgspec.Raw(_NULL) if mark.data is None else readable_json.show(mark.data)
    )


def _now() -> str:
    seconds, nanos = divmod(time.time_ns(), 1_000_000_000)
    return f"{_second(seconds)}.{nanos // 1000:06d}Z"


@functools.lru_cache(maxsize=1)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def as_json(value: Any) -> bytes:
    """Compact JSON, for the small files beside the logs."""
    return _encode(value)
