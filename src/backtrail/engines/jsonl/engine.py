"""The engine contract on a directory of JSONL files: one file for each lineage, one line for each commit.

A mutex keeps the threads of this process apart, a lock file the writers of all processes. A reader needs no lock: the
part of a file that it has read never changes, and an incomplete line does not count.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Literal

from backtrail.engines import conflicts, process_fork
from backtrail.engines.base import Branch, Commit, Drop, Engine, Head, Lease, Properties, Row, Step, Taken
from backtrail.engines.capabilities import StoredLocally
from backtrail.engines.dict_engine import check_rows
from backtrail.engines.jsonl import line_format
from backtrail.engines.jsonl.catalogue import Catalogue, lineage_at
from backtrail.engines.jsonl.file_names import file_name
from backtrail.engines.jsonl.layout import directory_of_a_store
from backtrail.engines.jsonl.leases import Leases
from backtrail.engines.jsonl.log import LineageLog
from backtrail.engines.jsonl.offsets import BranchIndex
from backtrail.engines.lockfile import LockFile
from backtrail.errors import InvalidInput, Unavailable
from backtrail.lru import LRU
from backtrail.owned_files import real_place, remove_abandoned

OPEN_LOGS = 128  #: logs whose offsets are kept in memory, some 300 bytes for each row


class JSONLEngine(Engine, StoredLocally):
    """A store of plain text files in a directory of its own.

        engine = JSONLEngine("sessions/")

    `durability="full"` waits for the disk at each commit; `"normal"` leaves that to the operating system. `salvage`
    moves damaged lines, when they are found, to a `.damaged` file beside the log, and continues with the rest.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        durability: Literal["full", "normal"] = "full",
        create: bool = True,
        salvage: bool = False,
    ) -> None:
        if durability not in ("full", "normal"):
            raise InvalidInput(f'durability must be "full" or "normal", not {durability!r}')
        self.properties = Properties(name="jsonl", blocking=True, durable=True, shared=True)
        self._sync = durability == "full"
        self._salvage = salvage
        text = os.fsdecode(directory)
        if not text or "\0" in text:
            raise InvalidInput(f"not a path: {text!r}")
        self.directory = real_place(text)
        self._mutex = threading.Lock()
        self._open = True
        self._logs: LRU[str, LineageLog] = LRU(OPEN_LOGS, on_evict=LineageLog.close)
        self._catalogue = Catalogue(self.directory, self._log_for_listing)
        self._leases = Leases(self.directory)
        self._lock: LockFile | None = None
        self._held = False
        self._repaired = 0
        with self._translating_errors():
            directory_of_a_store(self.directory, create=create, start=self._catalogue.write_hints)
        process_fork.watch(self)

    @property
    def path(self) -> Path:
        """The directory."""
        return self.directory

    # -- ground rules -----------------------------------------------------------------------------------------------

    @contextmanager
    def _translating_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: OSError) -> Unavailable:
        return Unavailable(f"{self.directory} cannot be used now: {error}")

    @contextmanager
    def _inside(self) -> Iterator[None]:
        with self._mutex:
            if not self._open:
                raise conflicts.closed("JSONL")
            try:
                yield
            except OSError as error:
                raise self._unusable(error) from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._begin()
        try:
            yield
        except OSError as error:
            raise self._unusable(error) from error
        finally:
            self._end()

    def _begin(self) -> None:
        """Lock out other threads, and the writers of other processes, until `_end`."""
        self._mutex.acquire()
        try:
            if not self._open:
                raise conflicts.closed("JSONL")
            self._lock_file().acquire()
        except OSError as error:
            self._mutex.release()
            raise self._unusable(error) from error
        except BaseException:
            self._mutex.release()
            raise
        self._held = True

    def _end(self) -> None:
        self._held = False
        try:
            self._lock_file().release()
        finally:
            self._mutex.release()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock out the writers of other processes inside the block; it may be nested."""
        if self._held:
            yield
            return
        with self._lock_file():
            self._held = True
            try:
                yield
            finally:
                self._held = False

    def _lock_file(self) -> LockFile:
        if self._lock is None:
            if not os.access(self.directory, os.W_OK):
                raise Unavailable(f"{self.directory} is read-only: it may not be written")
            self._lock = LockFile(self.directory / ".lock")
        return self._lock

    # -- logs -------------------------------------------------------------------------------------------------------

    def _log(self, lineage: str) -> LineageLog:
        """A lineage's log, read to its current end."""
        log = self._logs.get(lineage)
        known = log is not None
        if log is None:
            log = LineageLog(self.directory / file_name(lineage), lineage)
            self._logs.put(lineage, log)
        log.refresh()
        if not (log.exists or known or self._held):
            self._logs.pop(lineage)  # a request for a lineage that does not exist must not evict one that does
        mendable = self._held or (not known and os.access(self.directory, os.W_OK))
        if (log.torn and mendable) or (log.damages and self._salvage):
            # Taking the lock waits for a writer in progress: a line that is still torn after that will never be
            # finished.
            with self._locked():
                self._catalogue.changes.announce(log.path.name)
                log.refresh()
                self._repaired += bool(log.cut())
                if self._salvage and log.damages:
                    log.compact()
        return log

    def _log_for_listing(self, lineage: str) -> LineageLog:
        """A log for a listing, which is not kept open."""
        if lineage in self._logs:
            return self._log(lineage)
        log = LineageLog(self.directory / file_name(lineage), lineage)
        log.refresh()
        log.close()
        return log

    def _home(self, thread: str) -> tuple[LineageLog, Head] | None:
        """The log that holds a thread's head, and the head."""
        return self._head_in(thread, thread) or next(
            (found for other in self._catalogue.lineages_of(thread) if (found := self._head_in(thread, other))), None
        )

    def _head_in(self, thread: str, lineage: str) -> tuple[LineageLog, Head] | None:
        log = self._log(lineage)
        log.trust_head(thread)
        head = log.heads.get(thread)
        return None if head is None else (log, head)

    def _branch_index(self, lineage: str, branch: bytes) -> tuple[LineageLog, BranchIndex | None]:
        log = self._log(lineage)
        return log, log.branch_indexes.get(branch)

    # -- writing ----------------------------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> None:
        line = line_format.of_commit(commit)  # before the locks are taken
        self._begin()  # not `_writing`: every append comes through here, and this saves a generator
        try:
            log = self._log(commit.lineage)
            self._check(log, commit)
            if line.empty() and not line.deleted:
                return
            forks: list[str | bytes] = [head.thread for head in line.heads if head.thread != commit.lineage]
            if forks:
                self._catalogue.hint(forks, commit.lineage, sync=self._sync)
            if commit.branches:
                self._catalogue.hint([branch.id for branch in commit.branches], commit.lineage, sync=False)
            self._catalogue.changes.announce(log.path.name)
            log.append(line, sync=self._sync, commit=commit)
        except OSError as error:
            raise self._unusable(error) from error
        finally:
            self._end()

    def _check(self, log: LineageLog, commit: Commit) -> None:
        """Find every reason to refuse before anything is written."""
        fence = commit.fence
        if fence is not None and self._leases.token(fence.name) != fence.token:
            raise conflicts.fence_stale(fence)
        for swap in commit.swaps:
            head = log.heads.get(swap.thread)
            if head is None and swap.expect is None:
                home = self._home(swap.thread)
                head = None if home is None else home[1]
            if (None if head is None else head.key) != swap.expect:
                raise conflicts.moved(swap.thread)
        branch_indexes = log.branch_indexes
        check_rows(
            commit,
            lambda branch: branch in branch_indexes or self._is_elsewhere(branch),
            lambda branch: branch_indexes[branch].offsets if branch in branch_indexes else None,
        )

    def _is_elsewhere(self, branch: bytes) -> bool:
        return any(branch in self._log(lineage).branch_indexes for lineage in self._catalogue.lineages_of(branch))

    async def drop(self, drop: Drop) -> None:
        with self._writing():
            log = self._log(drop.lineage)
            if {(head.thread, head.key) for head in log.heads.values()} != set(drop.expect):
                raise conflicts.swept_meanwhile(drop.lineage)
            if log.end and (drop.rows or drop.bodies or drop.branches or drop.blobs):
                self._catalogue.changes.announce(log.path.name)
                log.append(line_format.of_drop(drop), sync=self._sync)

    # -- reading ----------------------------------------------------------------------------------------------------

    async def head(self, thread: str) -> Head | None:
        with self._inside():
            home = self._home(thread)
            return None if home is None else home[1]

    async def tip(self, thread: str) -> tuple[Head, Row | None] | None:
        with self._inside():
            home = self._home(thread)
            if home is None:
                return None
            log, head = home
            return head, self._row(log, log.branch_indexes.get(head.branch), head.step)

    def _row(self, log: LineageLog, index: BranchIndex | None, step: int) -> Row | None:
        found = None if index is None else log.row(index, step)
        if found is None:
            log.trust_rows(index, step, step)
        return found

    async def heads(self, lineage: str, *, after: str | None = None, limit: int | None = None) -> list[Head]:
        with self._inside():
            log = self._log(lineage)
            for thread in log.heads or ("",):  # without a head, a damaged line may have set one
                log.trust_head(thread)
            names = (thread for thread in log.heads if after is None or thread > after)
            return [log.heads[thread] for thread in sorted(names)[slice(limit)]]

    async def threads(
        self,
        *,
        prefix: str = "",
        after: str | None = None,
        limit: int | None = None,
        kind: str | None = None,
        newest_first: bool = False,
    ) -> list[Head]:
        with self._inside():
            return self._catalogue.index().page(
                prefix=prefix, after=after, limit=limit, kind=kind, newest_first=newest_first
            )

    async def count(self, prefix: str = "") -> int:
        with self._inside():
            return self._catalogue.index().count(prefix)

    async def lineages(self, *, after: str | None = None, limit: int | None = None) -> list[str]:
        with self._inside():
            names = self._catalogue.lineages()
            first = 0 if after is None else bisect_right(names, after)
            return names[first : None if limit is None else first + limit]

    async def branches(self, lineage: str) -> list[Branch]:
        with self._inside():
            return [index.branch for index in self._log(lineage).branch_indexes.values()]

    async def row(self, lineage: str, branch: bytes, step: int) -> Row | None:
        with self._inside():
            log, index = self._branch_index(lineage, branch)
            return self._row(log, index, step)

    async def steps(
        self, lineage: str, branch: bytes, first: int, last: int, *, newest: int | None = None, marked: bool = False
    ) -> list[Step]:
        with self._inside():
            log, index = self._branch_index(lineage, branch)
            return [] if index is None else log.steps(index, index.between(first, last, newest, marked=marked))

    async def payloads(self, lineage: str, branch: bytes, first: int, last: int) -> list[tuple[int, bytes]]:
        with self._inside():
            log, index = self._branch_index(lineage, branch)
            log.trust_rows(index, first, last)
            return [] if index is None else log.payloads(index, first, last)

    async def rows(self, lineage: str, branch: bytes, first: int, last: int) -> list[Row]:
        with self._inside():
            log, index = self._branch_index(lineage, branch)
            return [] if index is None else log.rows(index, first, last)

    async def locate(self, lineage: str, low: bytes, high: bytes, limit: int) -> list[tuple[bytes, int, bytes]]:
        with self._inside():
            found = (
                (name, step, id)
                for name, index in self._log(lineage).branch_indexes.items()
                for step, id in index.ids.items()
                if low <= id <= high
            )
            return list(islice(found, limit))

    async def blobs(self, pool: str, ids: Sequence[bytes]) -> dict[bytes, bytes]:
        with self._inside():
            log = self._log(pool)
            found = ((name, log.blob(name)) for name in ids)
            return {name: data for name, data in found if data is not None}

    async def blob_ids(
        self, pool: str, *, after: bytes | None = None, limit: int | None = None
    ) -> list[tuple[bytes, int]]:
        with self._inside():
            log = self._log(pool)
            names = sorted(name for name in log.blobs if after is None or name > after)[:limit]
            return [(name, len(log.blob(name) or b"")) for name in names]

    # -- leases -----------------------------------------------------------------------------------------------------

    async def lease(self, name: str, owner: str, ttl: float) -> Lease | Taken:
        with self._writing():
            return self._leases.take(name, owner, ttl)

    async def release(self, name: str, owner: str) -> bool:
        with self._writing():
            return self._leases.release(name, owner)

    # -- the store --------------------------------------------------------------------------------------------------

    async def ping(self) -> None:
        with self._inside():
            (self.directory / "backtrail.json").stat()

    async def stats(self) -> dict[str, int]:
        """The usual figures and `repaired`, torn lines that this engine cut off; `damaged`, lines whose checksum
        fails."""
        with self._inside():
            totals = self._catalogue.totals()
            return {
                "threads": self._catalogue.index().count(""),
                "branches": totals.branches,
                "rows": totals.rows,
                "blobs": totals.blobs,
                "bytes": totals.bytes,
                "repaired": self._repaired,
                "damaged": totals.damaged,
            }

    async def stats_between(self, low: str, high: str | None) -> dict[str, int]:
        with self._inside():
            threads, totals = self._catalogue.totals_between(low, high)
            return {
                "threads": threads,
                "branches": totals.branches,
                "rows": totals.rows,
                "blobs": totals.blobs,
                "bytes": totals.bytes,
            }

    async def compact(self) -> None:
        """Rewrite each file that holds dropped records or damaged lines (these go to a `.damaged` file beside it)."""
        with self._writing():
            for path in sorted(self.directory.glob("*.jsonl")):
                lineage = lineage_at(path)
                if lineage is None:
                    continue
                log = self._log(lineage)
                if log.drops or log.damages or not log:
                    log.compact()
            self._catalogue.changes.restart()
            self._catalogue.write_hints()
            self._leases.forget()
            remove_abandoned(self.directory)

    async def close(self) -> None:
        with self._mutex, self._translating_errors():
            if self._open:
                self._open = False
                self._catalogue.save()
                self._shut()

    def _shut(self) -> None:
        self._logs.clear()
        self._catalogue.changes.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # -- process forks: open files are not shared with a child -------------------------------------------------------

    def before_fork(self) -> None:
        self._mutex.acquire()

    def after_fork_in_parent(self) -> None:
        self._mutex.release()

    def after_fork_in_child(self) -> None:
        self._mutex = threading.Lock()
        self._shut()
