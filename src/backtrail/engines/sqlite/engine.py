"""The engine contract on SQLite: each method is one statement on the right connection.

Reads go to the writer's own connection when it is idle: its cache is warm after a write, while a reader's cache is
empty after every commit of another connection. When threads compete for it, reads of whole ranges go to the pool of
readers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from backtrail.engines.base import LAST_STEP, Branch, Commit, Drop, Engine, Head, Lease, Properties, Row, Step, Taken
from backtrail.engines.capabilities import SharesCommits, StoredLocally
from backtrail.engines.coroutines import park, sharing
from backtrail.engines.reserved_names import NAMESPACE_END, namespace_of
from backtrail.engines.sqlite import statements as sql
from backtrail.engines.sqlite import transactions
from backtrail.engines.sqlite.connections import ForkSafeConnections
from backtrail.engines.sqlite.database_file import DatabaseFile
from backtrail.engines.sqlite.reader_pool import ReaderPool
from backtrail.engines.sqlite.transactions import NOWHERE, Leasing, Numbers, Writing
from backtrail.engines.sqlite.writer import GroupCommitWriter, SharedWrite
from backtrail.errors import BacktrailError, Corrupt, Unavailable

FEW = 256  #: branches of a lineage whose numbers are remembered when they are listed
REMEMBERED = 4096  #: branch numbers kept in memory, about 1 MB: as many as cached tips
SHORT = 256  #: a range of at most this many steps counts as short
SEARCHED = 4096  #: the newest threads among which those with a prefix are looked for, before all threads with it
LEASES_KEPT = 86_400.0  #: seconds after their expiry


class SQLiteEngine(Engine, SharesCommits, StoredLocally):
    """A store in one SQLite file.

        engine = SQLiteEngine("agents.db")

    `durability="full"`: an acknowledged commit survives a power cut. `"normal"`: it survives the death of the process,
    but a power cut may lose the last ones. `create=False` raises `NotFound` where there is no file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Literal["full", "normal"] = "full",
        create: bool = True,
    ) -> None:
        self.properties = Properties(name="sqlite", blocking=True, durable=True, shared=True)
        self._file = DatabaseFile(path, create=create, durability=durability)
        self._identity = self._file.identity()
        self._writer = GroupCommitWriter(self._file)
        self._readers = ReaderPool(self._file)
        self._connections = ForkSafeConnections(self._writer, self._readers)
        self._numbers: Numbers = {}
        try:
            self._readers.fetch(sql.ANYTHING, ())  # a file that SQLite cannot read is found now, not at the first save
        except BacktrailError:
            self._shut()
            raise

    @property
    def path(self) -> Path:
        """The database file."""
        return self._file.path

    def _fetch(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """Read on the writer's connection if it is idle."""
        found = self._writer.read(statement, values)
        return self._readers.fetch(statement, values) if found is None else found

    def _fetch_much(self, statement: str, values: Sequence[Any]) -> list[Any]:
        """Read a long range: on the writer's connection only if there is no contention for it."""
        found = self._writer.read(statement, values, much=True)
        return self._readers.fetch(statement, values) if found is None else found

    def _number(self, lineage: str, branch: bytes, *, remembered: bool = True) -> int:
        """A branch's number, or NOWHERE."""
        key = (lineage, branch)
        number = self._numbers.get(key) if remembered else None
        if number is None:
            found = self._fetch(sql.BRANCH_NUMBER, (branch, lineage))
            number = found[0][0] if found else NOWHERE
            self._learn({key: number} if found else {})
        return number

    def _learn(self, learnt: Numbers) -> None:
        if len(self._numbers) + len(learnt) > REMEMBERED:
            self._numbers.clear()
        self._numbers.update(learnt)

    def _range(self, statement: str, lineage: str, branch: bytes, first: int, last: int, *more: int) -> list[Any]:
        """Run a statement over steps first..last."""
        if first > last:
            return []
        number = self._number(lineage, branch)
        found = self._span(statement, number, first, last, *more)
        if not found:
            # Rare, so a second lookup is cheap enough: another process may have dropped the branch and written it anew.
            known, number = number, self._number(lineage, branch, remembered=False)
            if number != known:
                found = self._span(statement, number, first, last, *more)
        return found

    def _span(self, statement: str, number: int, first: int, last: int, *more: int) -> list[Any]:
        if last >= LAST_STEP:  # to the branch's end: an open range would continue through rows of other branches
            end = self._fetch_much(sql.LAST_STEP_OF, (number, first))
            last = end[0][0] if end else NOWHERE
        fetch = self._fetch if min((last - first, *more)) < SHORT else self._fetch_much
        return fetch(statement, (number, max(first, 0), last, *more))

    # -- writing ------------------------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> None:
        learnt: Numbers = {}
        writing = Writing(commit, self._numbers, learnt, self._writer.tips)
        if sharing():
            shared = SharedWrite(self._writer, transactions.write, writing, transactions.write_at_once)
            await park(shared)
            if shared.ticket.error is not None:
                raise shared.ticket.error
        else:
            self._writer.write(transactions.write, writing, transactions.write_at_once)
        if learnt:
            self._learn(learnt)

    async def drop(self, drop: Drop) -> None:
        self._writer.write(transactions.sweep, drop)
        for branch in drop.branches:
            self._numbers.pop((drop.lineage, branch), None)

    # -- reading ------------------------------------------------------------------------------------------------

    async def head(self, thread: str) -> Head | None:
        found = self._fetch(sql.HEAD, (thread,))
        return _head(found[0]) if found else None

    async def tip(self, thread: str) -> tuple[Head, Row | None] | None:
        saved = self._writer.saved_tip(thread)
        if saved is not None:
            return saved
        found = self._fetch(sql.TIP, (thread,))
        if not found:
            return None
        *values, row_id, meta, digest, mark, root = found[0]
        head = _head(values)
        if row_id is None:
            return head, None
        return head, Row(*_only_bytes([(head.step, row_id, meta, digest, mark, root, b"")])[0])

    async def heads(self, lineage: str, *, after: str | None = None, limit: int | None = None) -> list[Head]:
        least, most = "" if after is None else after + "\0", -1 if limit is None else limit
        return [_head(values) for values in self._fetch(sql.HEADS, (lineage, least, most))]

    async def threads(
        self,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
        kind: str | None = None,
        newest_first: bool = False,
    ) -> list[Head]:
        below = _past(prefix)
        most = -1 if limit is None else limit
        if newest_first:
            return self._newest(prefix, after, limit, kind)
        least = prefix if after is None else max(prefix, after + "\0")
        if kind is None:
            found = self._readers.fetch(sql.THREADS, (least, below, most))
        else:
            found = self._readers.fetch(sql.THREADS_OF_KIND, (least, below, kind, most))
        return [_head(values) for values in found]

    def _newest(self, prefix: str, after: str | None, limit: int | None, kind: str | None) -> list[Head]:
        bound: tuple[int, str] | tuple[()] = ()
        if after is not None:
            age = self._readers.fetch(sql.AGE, (after,))
            if not age:
                return []
            bound = (age[0][0], after)
        kinds = [kind] if kind is not None else [name for (name,) in self._readers.fetch(sql.KINDS, ())]
        namespace = namespace_of(prefix)
        narrow = bool(prefix) if namespace is None else prefix != namespace + NAMESPACE_END  # more than the order has
        found = self._newest_of(kinds, namespace, bound, SEARCHED if narrow and limit is not None else limit)
        if narrow:
            complete = limit is None or len(found) < SEARCHED
            found = [head for head in found if head.thread.startswith(prefix)]
            if not complete and len(found) < (limit or 0):  # few threads have this prefix: sort those that do
                named = map(_head, self._readers.fetch(sql.THREADS, (prefix, _past(prefix), -1)))
                found = sorted((head for head in named if head.kind in kinds), key=_age, reverse=True)
                found = [head for head in found if not bound or _age(head) < bound]
        return found[:limit]

    def _newest_of(
        self, kinds: Sequence[str], namespace: str | None, bound: tuple[int, str] | tuple[()], limit: int | None
    ) -> list[Head]:
        """The newest of each kind, in the whole store or in a namespace."""
        values: tuple[Any, ...] = (-1 if limit is None else limit, *bound)
        if namespace is None:
            statement = sql.NEWEST_AFTER if bound else sql.NEWEST
        else:
            statement = sql.NEWEST_INSIDE_AFTER if bound else sql.NEWEST_INSIDE
            values = (values[0], *(bound or (0, "")), namespace)
        # By name, because a thread whose kind changes between two of these reads is in both.
        found = {
            columns[0]: _head(columns) for kind in kinds for columns in self._readers.fetch(statement, (kind, *values))
        }
        return sorted(found.values(), key=_age, reverse=True)[:limit]

    async def count(self, prefix: str = "") -> int:
        if prefix:
            return int(self._readers.fetch(sql.COUNT_NAMED, (prefix, _past(prefix)))[0][0])
        return int(self._readers.fetch(sql.COUNT_THREADS, ())[0][0])

    async def lineages(self, *, after: str | None = None, limit: int | None = None) -> list[str]:
        least = "" if after is None else after + "\0"
        names = [name for (name,) in self._readers.fetch(sql.LINEAGES, (least, -1 if limit is None else limit))]
        if not all(type(name) is str for name in names):
            raise Corrupt(f"{self._file.path}: the name of a lineage", "it is not text")
        return names

    async def branches(self, lineage: str) -> list[Branch]:
        numbered = self._fetch(sql.BRANCHES, (lineage,))
        found = [record for _, *record in numbered]
        if not all(map(_is_branch, found)):
            raise Corrupt(f"{self._file.path}: a branch of {lineage!r}", "its record makes no sense")
        if len(found) <= FEW:  # whoever asks for them reads their rows next
            self._learn({(lineage, record[0]): number for number, *record in numbered})
        return [
            Branch(id, where, thread, owner, None if origin is None else (origin, step), seal)
            for id, where, thread, owner, origin, step, seal in found
        ]

    async def row(self, lineage: str, branch: bytes, step: int) -> Row | None:
        found = self._range(sql.ROW, lineage, branch, step, step)
        return Row(*_only_bytes(found)[0]) if found else None

    async def steps(
        self, lineage: str, branch: bytes, first: int, last: int, *, newest: int | None = None, marked: bool = False
    ) -> list[Step]:
        if marked:
            found = self._range(sql.MARKED_STEPS, lineage, branch, first, last)
            found = found if newest is None else found[max(0, len(found) - newest) :]
        elif newest is None:
            found = self._range(sql.STEPS, lineage, branch, first, last)
        else:
            found = self._range(sql.NEWEST_STEPS, lineage, branch, first, last, newest)[::-1]
        return list(map(Step._make, _only_bytes(found)))

    async def payloads(self, lineage: str, branch: bytes, first: int, last: int) -> list[tuple[int, bytes]]:
        return self._range(sql.PAYLOADS, lineage, branch, first, last)

    async def rows(self, lineage: str, branch: bytes, first: int, last: int) -> list[Row]:
        return list(map(Row._make, _only_bytes(self._range(sql.ROWS, lineage, branch, first, last))))

    async def locate(self, lineage: str, low: bytes, high: bytes, limit: int) -> list[tuple[bytes, int, bytes]]:
        return self._fetch_much(sql.LOCATE, (lineage, low, high, limit))

    async def blobs(self, pool: str, ids: Sequence[bytes]) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        if len(ids) == 1:
            for (data,) in self._fetch(sql.BLOB, (pool, ids[0])):
                found[ids[0]] = data
            return found
        for first in range(0, len(ids), sql.AT_ONCE):
            some = ids[first : first + sql.AT_ONCE]
            # One statement for any number: the last id fills the parameters that are left.
            found.update(self._fetch(sql.BLOBS, (pool, *some, *[some[-1]] * (sql.AT_ONCE - len(some)))))
        return found

    async def blob_ids(
        self, pool: str, *, after: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, int]]:
        least = b"" if after is None else after + b"\0"
        return self._readers.fetch(sql.BLOB_IDS, (pool, least, -1 if limit is None else limit))

    # -- leases -------------------------------------------------------------------------------------------------

    async def lease(self, name: str, owner: str, ttl: float) -> Lease | Taken:
        return self._writer.write(transactions.lease, Leasing(name, owner, ttl))

    async def release(self, name: str, owner: str) -> bool:
        return self._writer.write(transactions.release, (name, owner))

    # -- the store ----------------------------------------------------------------------------------------------

    async def ping(self) -> None:
        self._readers.fetch(sql.ANYTHING, ())
        if self._file.identity() != self._identity:
            raise Unavailable(f"{self._file.path} was replaced by another file while it was open: open it again")

    async def stats(self) -> dict[str, int]:
        rows, branches, blobs = self._readers.fetch(sql.COUNTS, ())[0]
        return {
            "threads": await self.count(),
            "branches": branches,
            "rows": rows,
            "blobs": blobs,
            "bytes": self._file.size(),
        }

    async def check(self, *, repair: bool = False) -> list[tuple[str, str]]:
        problems = [
            (f"the number of {what}", f"{kept} are recorded, and {counted} are there")
            for what, kept, counted in self._readers.fetch(sql.COMPARED, ())
            if kept != counted
        ]
        if repair and problems:
            self._writer.write(transactions.recount, None)
        return problems

    async def compact(self) -> None:
        self._writer.write(transactions.forget_leases, LEASES_KEPT)
        self._writer.write(transactions.find_stretches, None)
        self._writer.run_outside_transaction(("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"))

    async def close(self) -> None:
        self._shut()

    def _shut(self) -> None:
        self._writer.close()
        self._readers.close()
        self._file.unregister()


_HEAD_TYPES = (str, str, bytes, bytes, int, int, str, int, int, int, int, bytes)


def _head(record: Sequence[Any]) -> Head:
    """The head in a record. If its fields have other types than ours, in a damaged or forged file, it is a head at step
    0, which no reader accepts: one damaged record must not make a listing fail."""
    if tuple(map(type, record)) == _HEAD_TYPES:
        return Head(*record)
    thread, lineage = record[:2]
    if type(thread) is not str or type(lineage) is not str:
        raise Corrupt("a head", "the name of its thread or lineage is not text")
    return Head(thread, lineage, b"", b"", 0, 0, "", 0, 0, 0, 0, b"")


_age = attrgetter("updated", "thread")


def _only_bytes(rows: list[Any]) -> list[Any]:
    """Rows whose id and digest are bytes. SQLite keeps a value of any type in any column: where a damaged or forged
    file has another, it becomes b"", which no row has, so that this row is reported as damaged, and the others not."""
    if all(type(row[1]) is bytes is type(row[3]) for row in rows):
        return rows
    return [
        tuple(b"" if i in (1, 3) and type(cell) is not bytes else cell for i, cell in enumerate(row)) for row in rows
    ]


def _is_branch(record: Sequence[Any]) -> bool:
    """True if a record has the types of a branch: a damaged file may return anything."""
    kinds = tuple(map(type, record))
    return (*kinds[:4], kinds[6]) == (bytes, str, str, bytes, bytes) and kinds[4:6] in (
        (type(None), type(None)),
        (bytes, int),
    )


def _past(prefix: str) -> str | bytes:
    """The least text that is greater than all texts with this prefix; `b""` if there is none."""
    for end in range(len(prefix), 0, -1):
        code = ord(prefix[end - 1])
        if code < sys.maxunicode:
            return prefix[: end - 1] + chr(0xE000 if code == 0xD7FF else code + 1)
    return b""
