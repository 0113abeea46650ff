"""Compaction: the lines of a log, without the records that were deleted or replaced."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from backtrail.engines.jsonl import line_format
from backtrail.engines.jsonl.offsets import Offset
from backtrail.owned_files import open_regular

if TYPE_CHECKING:
    from backtrail.engines.jsonl.log import LineageLog

_EMPTIED = msgspec.Raw(b'""')


def kept(log: LineageLog) -> Iterator[bytes]:
    """The lines of a log without deleted and replaced records; the header and damaged lines are left out."""
    with os.fdopen(open_regular(log.path), "rb") as file:
        offset = 0
        for number, raw in enumerate(file, 1):
            at, offset = offset, offset + len(raw)
            if number == 1 or offset > log.end or not line_format.sound(raw):
                continue
            line = line_format.read(raw)
            line.rows = list(_rows(log, line, at, len(raw)))
            line.heads = [head for head in line.heads if log.set_at.get(head.thread) == number]
            line.branches = [
                branch
                for branch in line.branches
                if (index := log.branch_indexes.get(bytes.fromhex(branch.id))) is not None and index.number == number
            ]
            line.marks = [mark for n, mark in enumerate(line.marks) if _counts(log, mark, Offset(at, len(raw), n))]
            line.blobs = {
                name: data
                for name, data in line.blobs.items()
                if log.blobs.get(bytes.fromhex(name)) == (at, len(raw), 0)
            }
            line.deleted, line.drop = [], None
            if not line.empty():
                yield line_format.seal(line)


def _rows(log: LineageLog, line: line_format.CommitLine, offset: int, length: int) -> Iterator[line_format.RowLine]:
    for nth, row in enumerate(line.rows):
        index = log.branch_indexes.get(bytes.fromhex(row.branch))
        if index is not None and index.offsets.get(row.step) == (offset, length, nth):
            emptied = row.step in index.emptied
            yield msgspec.structs.replace(row, root=_EMPTIED, payload=_EMPTIED) if emptied else row


def _counts(log: LineageLog, mark: line_format.MarkLine, at: Offset) -> bool:
    index = log.branch_indexes.get(bytes.fromhex(mark.branch))
    return index is not None and index.marks.get(mark.step) == at
