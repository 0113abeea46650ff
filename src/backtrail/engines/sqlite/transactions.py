"""Applying a commit, a sweep or a lease to the tables. Each function runs inside the writer's transaction."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from itertools import chain, groupby
from operator import itemgetter
from typing import NamedTuple

from backtrail.engines import conflicts
from backtrail.engines.base import LAST_STEP, RELEASED, Branch, Commit, Drop, Lease, NewRow, Taken
from backtrail.engines.sqlite import head_table, ordinary_save
from backtrail.engines.sqlite import statements as sql
from backtrail.engines.sqlite.saved_tips import SavedTips
from backtrail.errors import InvalidInput

NOWHERE = -1  #: the number of no branch: a range of it is empty
FILLER = 0  #: the branch number of the empty rows that keep a position from being reused

Numbers = dict[tuple[str, bytes], int]  #: (lineage, branch id) -> branch number


class Writing(NamedTuple):
    """A commit, the branch numbers known before, the new ones (to be cached once it is committed), the saved tips."""

    commit: Commit
    known: Mapping[tuple[str, bytes], int]
    learnt: Numbers
    tips: SavedTips


class Leasing(NamedTuple):
    name: str
    owner: str
    ttl: float


def write(cursor: sqlite3.Cursor, writing: Writing) -> None:
    """Apply a commit, or raise the reason for its refusal."""
    commit = writing.commit
    writing.learnt.clear()  # from a run that was rolled back; its numbers may belong to other branches by now
    execute = cursor.execute
    lineage = commit.lineage
    fence = commit.fence
    if fence is not None and execute(sql.FENCE, fence).fetchone() is None:
        raise conflicts.fence_stale(fence)
    for swap in commit.swaps:
        head_table.swap(cursor, lineage, swap)
    for branch in commit.branches:
        _start(cursor, lineage, branch, writing.learnt)
    for row in commit.rows:
        if not 0 <= row.step <= LAST_STEP:
            raise InvalidInput(f"step {row.step} is not between 0 and {LAST_STEP}")
        key = (lineage, row.branch)
        number = writing.known.get(key) or writing.learnt.get(key) or _find(cursor, key, writing.learnt)
        if not _add(cursor, lineage, number, row):
            # Another process has dropped the branch since we cached its number; it may have been written anew with
            # another.
            number = _find(cursor, key, writing.learnt)
            if not _add(cursor, lineage, number, row):
                raise conflicts.branch_gone(lineage, row.branch)
    for mark in commit.marks:
        key = (lineage, mark.branch)
        number = writing.learnt.get(key) or _find(cursor, key, writing.learnt)
        if number == NOWHERE:
            continue  # a sweep deleted the row, and its mark with it
        if mark.data is None:
            execute(sql.DELETE_MARK, (number, mark.step))
        else:
            execute(sql.SET_MARK, (number, mark.step, mark.data))
    if commit.blobs:
        _add_blobs(cursor, lineage, list(commit.blobs.items()))


def write_at_once(cursor: sqlite3.Cursor, writing: Writing) -> bool:
    """Apply an ordinary save as one statement; False if the commit is another, or was refused."""
    values = ordinary_save.values_of(writing.commit, writing.known)
    if values is None or not ordinary_save.save(cursor, values):
        return False
    writing.tips.add(writing.commit)
    return True


def _add_blobs(cursor: sqlite3.Cursor, lineage: str, blobs: list[tuple[bytes, bytes]]) -> None:
    """Insert many blobs with one statement: it takes the GIL once, not once per blob, so it does not contend with a
    thread that makes the next blobs."""
    most = len(blobs) - len(blobs) % sql.AT_ONCE
    for first in range(0, most, sql.AT_ONCE):
        some = blobs[first : first + sql.AT_ONCE]
        cursor.execute(sql.ADD_BLOBS, (lineage, *chain.from_iterable(some)))
    cursor.executemany(sql.ADD_BLOB, ((lineage, name, data) for name, data in blobs[most:]))


def _start(cursor: sqlite3.Cursor, lineage: str, branch: Branch, learnt: Numbers) -> None:
    origin, step = branch.origin or (None, None)
    cursor.execute(sql.NUMBER_BRANCH)
    cursor.execute(sql.ADD_BRANCH, (branch.id, lineage, branch.thread, branch.owner, origin, step, branch.seal))
    if cursor.rowcount != 1 or cursor.lastrowid is None:
        raise conflicts.branch_taken(lineage, branch.id)
    learnt[lineage, branch.id] = cursor.lastrowid


def _add(cursor: sqlite3.Cursor, lineage: str, number: int, row: NewRow) -> bool:
    """Write a row; False if there is no branch of that number."""
    _, step, id, meta, digest, root, payload = row
    last, branch, before = cursor.execute(sql.LAST_ROW).fetchone() or (0, NOWHERE, 0)
    if branch == number and before == step - 1:
        cursor.execute(sql.NEXT_ROW, (last + 1, number, step, id, digest, meta, root, payload))
        if cursor.rowcount == 1:
            return True
    pos = last + 1
    there, branch, before = cursor.execute(sql.PLACE, (number, step)).fetchone() or (0, NOWHERE, 0)
    if branch == number and before == step:
        raise conflicts.step_taken(lineage, row.branch, step)
    gap = branch is None and _is_gap(cursor, number, step, there)
    if gap:
        pos = there
    cursor.execute(sql.ADD_ROW, (pos, step, id, digest, meta, root, payload, number))
    if cursor.rowcount != 1:
        return False
    if gap:
        cursor.execute(sql.ADD_TO_COUNT, ("missing rows", "", -1))
    else:
        cursor.execute(sql.ADD_STRETCH, (number, step, pos))
    return True


def _is_gap(cursor: sqlite3.Cursor, number: int, step: int, pos: int) -> bool:
    """True if an empty position is inside a stretch: then the next row belongs to that stretch, too."""
    behind, branch, after = cursor.execute(sql.ROW_BEHIND, (pos,)).fetchone() or (0, NOWHERE, 0)
    return bool(branch == number and after - step == behind - pos)


def _find(cursor: sqlite3.Cursor, key: tuple[str, bytes], learnt: Numbers) -> int:
    """A branch's number, or NOWHERE."""
    lineage, branch = key
    found = cursor.execute(sql.BRANCH_NUMBER, (branch, lineage)).fetchone()
    if found is None:
        return NOWHERE
    learnt[key] = number = int(found[0])
    return number


def sweep(cursor: sqlite3.Cursor, drop: Drop) -> None:
    """Delete what a drop names, if the lineage's heads are the ones it expects."""
    lineage = drop.lineage
    heads = {
        (thread, (branch, step, version)) for thread, branch, step, version in cursor.execute(sql.HEAD_KEYS, (lineage,))
    }
    if heads != set(drop.expect):
        raise conflicts.swept_meanwhile(lineage)
    last, _, _ = cursor.execute(sql.LAST_ROW).fetchone() or (0, 0, 0)
    rows_there, branches_there, blobs_there = cursor.execute(sql.COUNTS).fetchone()
    numbers: Numbers = {}
    for branch in {*drop.branches, *(branch for branch, _ in (*drop.rows, *drop.bodies))}:
        _find(cursor, (lineage, branch), numbers)
    for branch in drop.branches:
        number = numbers.pop((lineage, branch), None)
        if number is not None:
            rows_there -= _drop_branch(cursor, number)
            branches_there -= 1
    rows = [(numbers[lineage, b], step) for b, step in drop.rows if (lineage, b) in numbers]
    bodies = [(numbers[lineage, b], step) for b, step in drop.bodies if (lineage, b) in numbers]
    rows_there -= cursor.executemany(sql.DELETE_ROW, rows).rowcount if rows else 0
    cursor.executemany(sql.DELETE_MARK, rows)
    cursor.executemany(sql.EMPTY_ROW, bodies)
    for number, found in groupby(sorted(rows), itemgetter(0)):
        steps = [step for _, step in found]
        cursor.execute(sql.EMPTY_STRETCHES, (number, steps[0], steps[-1]))
        cursor.execute(sql.DELETE_EMPTY_STRETCHES, (number, steps[0], steps[-1]))
    _keep_place(cursor, last)
    if drop.blobs:
        blobs_there -= cursor.executemany(sql.DELETE_BLOB, ((lineage, name) for name in drop.blobs)).rowcount
    cursor.execute(sql.SET_COUNTS, (rows_there, branches_there, blobs_there))


def _drop_branch(cursor: sqlite3.Cursor, number: int) -> int:
    """Delete a branch and everything in it; the number of its rows."""
    rows = 0
    end = cursor.execute(sql.LAST_STEP_OF, (number, 0)).fetchone()
    if end is not None:
        rows = cursor.execute(sql.DELETE_ROWS, (number, 0, end[0])).rowcount
        cursor.execute(sql.DELETE_STRETCHES, (number,))
    cursor.execute(sql.DELETE_MARKS, (number,))
    cursor.execute(sql.DELETE_BRANCH, (number,))
    return rows


def _keep_place(cursor: sqlite3.Cursor, last: int) -> None:
    """Make sure that no position up to `last`, the highest one before the sweep, is used again."""
    cursor.execute(sql.DELETE_KEEPERS, (last,))
    cursor.execute(sql.FORGET_KEEPERS, (last,))
    now = cursor.execute(sql.LAST_ROW).fetchone()
    if last and (now is None or now[0] < last):
        cursor.execute(sql.ADD_KEEPER, (last,))
        cursor.execute(sql.ADD_STRETCH, (FILLER, last, last))


def lease(cursor: sqlite3.Cursor, wanted: Leasing) -> Lease | Taken:
    """Take or renew a lease."""
    now = _now()
    expires = now + round(wanted.ttl * 1_000_000)
    held = cursor.execute(sql.LEASE, (wanted.name,)).fetchone()
    if held is not None:
        token, owner, until = held
        if owner != wanted.owner and until > now:
            return Taken(owner, until)
        if owner == wanted.owner and until != RELEASED:
            cursor.execute(sql.RENEW_LEASE, (expires, wanted.name))
            return Lease(wanted.name, owner, token, expires)
    cursor.execute(sql.TAKE_LEASE, (wanted.name, wanted.owner, expires))
    return Lease(wanted.name, wanted.owner, cursor.lastrowid or 0, expires)


def release(cursor: sqlite3.Cursor, name_and_owner: tuple[str, str]) -> bool:
    """Release a lease, if that owner holds it. The row stays: its token is still the newest."""
    cursor.execute(sql.RELEASE_LEASE, (*name_and_owner, _now()))
    return cursor.rowcount == 1


def find_stretches(cursor: sqlite3.Cursor, _: None) -> None:
    """Rebuild the table of stretches from the rows, as short as possible."""
    cursor.execute(sql.FORGET_STRETCHES)
    cursor.execute(sql.FIND_STRETCHES)


def recount(cursor: sqlite3.Cursor, _: None) -> None:
    """Count everything again that is kept as a number, and put threads that are out of order in their place."""
    cursor.execute(sql.SORT_MISPLACED)
    cursor.execute(sql.SET_COUNTS, cursor.execute(sql.COUNTED).fetchone())
    cursor.execute(sql.FORGET_COUNTS_OF_HEADS)
    cursor.execute(sql.COUNT_HEADS)


def forget_leases(cursor: sqlite3.Cursor, older_than: float) -> None:
    """Delete leases that expired that many seconds ago. Tokens keep growing: none is ever used twice."""
    cursor.execute(sql.FORGET_LEASES, (_now() - round(older_than * 1_000_000),))


def _now() -> int:
    return time.time_ns() // 1000
