"""The table of heads: how a commit changes it, and how it is kept in the order of age at little cost.

An index on the time of the last change would move with every save and dirty two more pages each time. So the indexed
column is `listed`, which most saves leave alone: a thread that is in use is *unsorted* and stays so whatever is saved,
and a listing reads all unsorted threads and sorts them itself. At most UNSORTED threads of a kind are: when one more is
saved again, those that have been unsorted the longest are sorted, some at once. A new thread is sorted if there is no
room among the unsorted ones, because it may never be saved again.

So a page of a listing reads a page and at most UNSORTED heads. The numbers of threads change in the same transaction as
the heads that they count.
"""

from __future__ import annotations

import sqlite3

import msgspec

from backtrail.engines import conflicts
from backtrail.engines.base import Head, Swap
from backtrail.engines.sqlite import statements as sql
from backtrail.errors import InvalidInput

UNSORTED = 2048  #: threads of a kind that a listing has to sort itself, at most
SORTED = 64  #: of them that are sorted at once, when there are too many
_FIRST = -(1 << 62)  # `listed` of a thread that became unsorted in 1970


def swap(cursor: sqlite3.Cursor, lineage: str, swap: Swap) -> None:
    """Apply one swap, or raise the reason for its refusal."""
    thread, expect, new = swap
    if new is not None and (new.lineage != lineage or new.thread != thread):
        raise InvalidInput(f"the head of {new.thread!r} in {new.lineage!r} cannot be set by a commit to {lineage!r}")
    if expect is None:
        moved = _add(cursor, thread, new)
    elif new is None:
        moved = _delete(cursor, (thread, *expect))
    else:
        values = (
            *(new.owner, new.branch, new.step, new.version),
            *(new.created, new.updated, new.count, new.size, new.note),
        )
        key = (thread, *expect, lineage)
        cursor.execute(sql.MOVE_HEAD, (*values, *key, new.kind))
        moved = cursor.rowcount == 1 or _unsort(cursor, new, values, key)
    if not moved:
        raise conflicts.moved(thread)


def _add(cursor: sqlite3.Cursor, thread: str, new: Head | None) -> bool:
    if new is None:
        return cursor.execute(sql.HEAD, (thread,)).fetchone() is None
    room = _unsorted(cursor, new.kind) < UNSORTED
    cursor.execute(sql.ADD_HEAD, (*msgspec.structs.astuple(new), _unsorted_at(new) if room else max(new.updated, 0)))
    if cursor.rowcount != 1:
        return False
    _count(cursor, new.kind, 1, int(room))
    return True


def _delete(cursor: sqlite3.Cursor, key: tuple[str, bytes, int, int]) -> bool:
    found = cursor.execute(sql.LISTED, key).fetchone()
    if found is None:
        return False
    kind, listed = found
    cursor.execute(sql.DELETE_HEAD, key[:1])
    _count(cursor, kind, -1, -(listed < 0))
    return True


def _unsort(cursor: sqlite3.Cursor, new: Head, values: tuple[object, ...], key: tuple[object, ...]) -> bool:
    """Move a head that is sorted, or whose kind changes. False if it is not there."""
    found = cursor.execute(sql.LISTED, key[:4]).fetchone()
    if found is None:
        return False
    kind, listed = found
    cursor.execute(sql.MOVE_AND_UNSORT, (*values, new.kind, _unsorted_at(new), *key))
    if cursor.rowcount != 1:
        return False
    if kind != new.kind:
        _count(cursor, kind, -1, -(listed < 0))
    _count(cursor, new.kind, int(kind != new.kind), 1)
    if _unsorted(cursor, new.kind) > UNSORTED:
        cursor.execute(sql.SORT_OLDEST, (new.kind, SORTED))
        _count(cursor, new.kind, 0, -cursor.rowcount)
    return True


def _count(cursor: sqlite3.Cursor, kind: str, threads: int, unsorted: int) -> None:
    for what, n in (("threads", threads), ("unsorted", unsorted)):
        if n:
            cursor.execute(sql.ADD_TO_COUNT, (what, kind, n))


def _unsorted(cursor: sqlite3.Cursor, kind: str) -> int:
    found = cursor.execute(sql.UNSORTED, (kind,)).fetchone()
    return 0 if found is None else int(found[0])


def _unsorted_at(new: Head) -> int:
    return _FIRST + max(new.updated, 0)
