"""The ordinary save as one statement: a head moves on, and one row is added at the end of its branch.

Nearly all commits are of this shape. As one statement such a commit needs no BEGIN and no COMMIT, and Python's lock,
which the driver releases for each statement, is released once: no other thread of the process runs between the
beginning of a commit and its end. So a process that dies while its threads take turns has lost less.

The statement inserts into a view, and a trigger does the rest. Both are temporary: they belong to the connection of the
writer, and there is nothing of them in the file. If the commit is not as ordinary as it seemed (the head was moved, or
the row's place has to be searched for), the trigger refuses it, and nothing has been changed; `transactions.write` does
it then, or says why it cannot be done.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from backtrail.engines.base import LAST_STEP, Commit

_KEY = ("thread", "lineage", "kind")
_BEFORE = ("branch", "step", "version")
_MOVED = ("owner", "branch", "step", "version", "created", "updated", "count", "size", "note")
_ROW = ("row_step", "id", "digest", "meta", "root", "payload")
_COLUMNS = (*_KEY, *(f"{name}_before" for name in _BEFORE), *_MOVED, "number", *_ROW)

_LAST = "(SELECT pos, branch, step FROM steps ORDER BY pos DESC LIMIT 1)"
_SET = ", ".join(f"{name} = NEW.{name}" for name in _MOVED)
_UNMOVED = " AND ".join(
    [*(f"{name} = NEW.{name}" for name in _KEY), *(f"{name} = NEW.{name}_before" for name in _BEFORE)]
)

# A row continues the stretch of the row that was written last, or begins a stretch if the place after the row before it
# is another branch's. Any other case (a place that a sweep has emptied, a step that is taken) is not an ordinary one,
# nor is a branch that was dropped: it has no stretch. The row is inserted with VALUES: as the result of a SELECT from
# the table that it goes to, SQLite would copy it to a temporary table first.
_SETUP = (
    f"CREATE TEMP VIEW ordinary_save AS SELECT {', '.join(f'NULL AS {name}' for name in _COLUMNS)}",
    f"""
CREATE TEMP TRIGGER save_as_one_statement INSTEAD OF INSERT ON ordinary_save BEGIN
    UPDATE heads SET {_SET} WHERE {_UNMOVED} AND listed < 0;
    SELECT RAISE(ABORT, 'the head has moved, or is sorted') WHERE changes() = 0;
    INSERT INTO stretches SELECT NEW.number, NEW.row_step, last.pos + 1
    FROM {_LAST} last
    WHERE last.branch <> NEW.number AND (
        SELECT r.first < NEW.row_step
            AND (SELECT s.branch FROM steps s WHERE s.pos = r.pos + NEW.row_step - r.first) <> NEW.number
        FROM stretches r WHERE r.branch = NEW.number AND r.first <= NEW.row_step ORDER BY r.first DESC LIMIT 1
    );
    INSERT INTO steps VALUES (
        coalesce(
            (
                SELECT last.pos + 1 FROM {_LAST} last
                WHERE changes() = 1 OR (last.branch = NEW.number AND last.step = NEW.row_step - 1 AND NOT EXISTS (
                    SELECT 1 FROM stretches WHERE branch = NEW.number AND first = NEW.row_step))
            ),
            RAISE(ABORT, 'the place of the row has to be searched for')
        ),
        NEW.number, NEW.row_step, NEW.id, NEW.digest, NEW.meta, NEW.root, NEW.payload
    );
END""",  # noqa: S608 - constants only
)
_SAVE = f"INSERT INTO ordinary_save VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608


def prepare(connection: sqlite3.Connection) -> None:
    """Make a new connection ready, so that its first save does not have to."""
    for statement in _SETUP:
        connection.execute(statement)
    with suppress(sqlite3.ProgrammingError):  # it is prepared, and then lacks its values
        connection.execute(_SAVE)


def values_of(commit: Commit, numbers: Mapping[tuple[str, bytes], int]) -> Sequence[Any] | None:
    """The values of the statement; None if the commit is not an ordinary save, or its branch has no known number."""
    if len(commit.swaps) != 1 or len(commit.rows) != 1:
        return None
    if commit.branches or commit.marks or commit.blobs or commit.fence is not None:
        return None
    (thread, expect, new), row = commit.swaps[0], commit.rows[0]
    number = numbers.get((commit.lineage, row.branch))
    if number is None or expect is None or new is None or (new.thread, new.lineage) != (thread, commit.lineage):
        return None
    if not 0 <= row.step <= LAST_STEP:
        return None
    return (
        *(thread, new.lineage, new.kind, *expect),
        *(new.owner, new.branch, new.step, new.version, new.created, new.updated, new.count, new.size, new.note),
        *(number, row.step, row.id, row.digest, row.meta, row.root, row.payload),
    )


def save(cursor: sqlite3.Cursor, values: Sequence[Any]) -> bool:
    """Run the statement; False if it was refused, and nothing was changed."""
    try:
        cursor.execute(_SAVE, values)
    except sqlite3.IntegrityError:
        return False
    return True
