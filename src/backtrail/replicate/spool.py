"""The spool: saves that reached neither side, in a small local store, with a journal for repeating them.

Each save is one commit of the spool: its rows, blobs and branches unchanged, the heads that it moved, and one row of
the lineage's *journal*, which tells the heads that it expected. So the spool can be read like any engine, and a side
can absorb it.

A spool has only what was saved into it, on branches that began there. Of a branch that began on a side, it has a
placeholder and the one step of which nobody knows if it reached that side; any other save that continues such a branch
is refused, and planned again. So the spool answers a request only if it has all of the branches that it is about.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from backtrail.engines.base import Branch, Commit, Engine, Head, HeadKey, Mark, NewRow, Row, Swap
from backtrail.engines.conflicts import Refused
from backtrail.engines.reserved_record import record, update
from backtrail.engines.sqlite import SQLiteEngine
from backtrail.errors import Corrupt, InvalidInput
from backtrail.owned_files import make_directories, real_place
from backtrail.replicate import concurrency
from backtrail.replicate.lineage_copy import LineageRecords, clear, heads_of
from backtrail.replicate.role_record import RESERVED
from backtrail.replicate.status import SpoolStatus

FILE = "spool.db"
KEYS = "\U0010ffffkeys"  #: the suffix of a key ring's name, in any namespace
JOURNAL = f"{RESERVED}spool/"  # + lineage: the head that counts the lineage's journal
_RINGS = f"{RESERVED}store/"  # + name: a key ring of the mirrored store
_NOBODY = bytes(16)
NOTHING: Final = object()  #: the answer to a request that the spool cannot answer, or only in part


class SpooledSave(msgspec.Struct, frozen=True, array_like=True):
    """The part of a save that its rows do not tell."""

    expects: tuple[tuple[str, HeadKey | None], ...]  # by thread: the head that it builds on
    marks: tuple[Mark, ...]
    rows: tuple[tuple[bytes, int, bytes], ...]  # branch, step, and the digest of everything in the row


class SpooledLineage(msgspec.Struct, frozen=True):
    """All spooled saves of a lineage."""

    journal: Head
    bases: dict[str, HeadKey | None]  #: by thread: the head that the first of its saves builds on
    marks: list[Mark]  #: on rows that only the sides have, too
    records: LineageRecords  #: without the journal


class KnownRing(msgspec.Struct, frozen=True, array_like=True):
    """The key ring of a store as last seen, or None; a store needs it when it is opened."""

    head: Head | None

    def is_ring(self, ring: Head | None) -> bool:
        """True if this key ring is a copy of the one that was seen, or neither is there."""
        made, here = (None if one is None else one.created for one in (self.head, ring))
        return made == here


_ENTRY = msgspec.msgpack.Decoder(SpooledSave)
_RING = msgspec.msgpack.Decoder(KnownRing)


class Spool:
    """A spool over an engine."""

    def __init__(self, engine: Engine, path: Path | None = None) -> None:
        self.engine = engine
        self.path = path

    @classmethod
    def open(cls, where: str | os.PathLike[str] | Engine, blocking: bool) -> Spool:
        """The spool in a directory, which is created if it does not exist, or over an open engine. If not `blocking`,
        it suspends."""
        if isinstance(where, Engine):
            return cls(concurrency.side(where, blocking))
        path = real_place(where)
        try:
            make_directories(path)
        except OSError as error:
            raise InvalidInput(f"spool={os.fspath(where)!r} cannot be made: {error}") from error
        return cls(concurrency.side(SQLiteEngine(path / FILE), blocking), path)

    # -- saves ---------------------------------------------------------------------------------------------------------

    async def put(self, commit: Commit, *, in_doubt: bool = False) -> None:
        """Store a save. `Refused` if the head of one of its threads is elsewhere in the spool, if another save is
        faster, or if it continues a branch that did not begin here, unless it is `in_doubt`: a side may have it."""
        engine, lineage = self.engine, commit.lineage
        entry = SpooledSave(
            tuple((swap.thread, swap.expect) for swap in commit.swaps),
            tuple(commit.marks),
            tuple((row.branch, row.step, _row_digest(row)) for row in commit.rows),
        )
        body = msgspec.msgpack.encode(entry)
        heads = await heads_of(engine, lineage)
        journal = heads.get(JOURNAL + lineage)
        if journal is None:
            await clear(engine, lineage)  # a process that delivered saves died before it had cleared everything
        new = _counted(journal, lineage, commit.size)
        # Only the sides know where a thread stood before its first save here.
        swaps = [Swap(swap.thread, swap.expect if swap.thread in heads else None, swap.new) for swap in commit.swaps]
        swaps.append(Swap(new.thread, None if journal is None else journal.key, new))
        rows = [*commit.rows, NewRow(new.branch, new.step, _NOBODY, b"", _digest(body), b"", body)]
        begun = {branch.id for branch in commit.branches}
        others = {row.branch for row in commit.rows if in_doubt} - begun
        branches = [*commit.branches, *(Branch(id, lineage, commit.swaps[0].thread, _NOBODY) for id in others)]
        if journal is None:
            branches.append(Branch(new.branch, lineage, "", _NOBODY))
        await engine.commit(Commit(lineage, swaps, rows, branches, commit.marks, commit.blobs))

    async def lineages(self) -> list[str]:
        """The lineages that have spooled saves."""
        return [head.lineage for head in await self.engine.threads(prefix=JOURNAL)]

    async def survey(self) -> SpoolStatus:
        """Count the spooled saves."""
        journals = await self.engine.threads(prefix=JOURNAL)
        records, size = sum(head.count for head in journals), sum(head.size for head in journals)
        since = min((head.created / 1e6 for head in journals), default=None)
        return SpoolStatus(records=records, bytes=size, since=since)

    async def read(self, lineage: str) -> SpooledLineage | None:
        """All saves of a lineage; None if there are none, `Refused` if more are put or all are cleared meanwhile."""
        heads = await heads_of(self.engine, lineage)
        journal = heads.get(JOURNAL + lineage)
        if journal is None:
            return None
        entries = await self.engine.rows(lineage, journal.branch, 1, journal.step)
        records = await LineageRecords.read(self.engine, lineage, heads)
        threads = {thread: head for thread, head in heads.items() if thread != journal.thread}
        branches = {id: branch for id, branch in records.branches.items() if id != journal.branch}
        found = SpooledLineage(journal, {}, [], LineageRecords(threads, branches, records.steps))
        for row in entries:
            if _digest(row.payload) != row.digest:
                raise Corrupt(f"the spool's journal of {lineage!r}, entry {row.step}", "its digest does not fit")
            entry = _ENTRY.decode(row.payload)
            await self._check_rows(lineage, entry)
            for thread, expect in entry.expects:
                found.bases.setdefault(thread, expect)
            found.marks.extend(entry.marks)
        return found

    async def _check_rows(self, lineage: str, entry: SpooledSave) -> None:
        """Raise `Corrupt` if a row is not as it was saved: it must not become the head of a thread that was intact."""
        for branch, step, digest in entry.rows:
            for row in await self.engine.rows(lineage, branch, step, step):
                if _row_digest(row) != digest:
                    raise Corrupt(f"a save of {lineage!r} in the spool, step {step}", "its digest does not fit")

    async def clear(self, lineage: str, journal: Head) -> bool:
        """Delete everything up to `journal`, which has been delivered; False if more was saved meanwhile."""
        heads = await self.engine.heads(lineage)
        if journal not in heads:
            return False
        try:
            await self.engine.commit(Commit(lineage, [Swap(head.thread, head.key, None) for head in heads]))
        except Refused:
            return False
        await clear(self.engine, lineage)
        return True

    # -- questions -----------------------------------------------------------------------------------------------------

    async def answer(self, method: str, *args: Any, **options: Any) -> Any:
        """The answer that an engine with all the data would give, or NOTHING."""
        if method in ("head", "tip", "row"):
            found = await getattr(self.engine, method)(*args)
            rowless = method == "tip" and found is not None and found[1] is None  # it was moved to a row of a side
            return NOTHING if found is None or rowless else found
        if method in ("steps", "payloads", "rows"):
            here = any(one.id == args[1] and one.owner != _NOBODY for one in await self.engine.branches(args[0]))
            return await getattr(self.engine, method)(*args, **options) if here else NOTHING
        if method == "blobs":
            found = await self.engine.blobs(*args)
            return found if len(found) == len(set(args[1])) else NOTHING
        if method in ("heads", "branches", "locate", "blob_ids") and await self._whole(args[0]):
            found = await getattr(self.engine, method)(*args, **options)
            own = _journal(args[0])
            if method == "heads":
                return [head for head in found if head.kind != "spool"]
            if method == "branches":
                return [branch for branch in found if branch.id != own]
            return [one for one in found if one[0] != own] if method == "locate" else found
        return NOTHING

    async def _whole(self, lineage: str) -> bool:
        """True if a lineage began in the spool, so that all of it is here."""
        journal = _journal(lineage)
        branches = [branch for branch in await self.engine.branches(lineage) if branch.id != journal]
        ids = {branch.id for branch in branches if branch.owner != _NOBODY}
        inside = all(branch.id in ids and (not branch.origin or branch.origin[0] in ids) for branch in branches)
        return bool(branches) and inside

    # -- what it belongs to --------------------------------------------------------------------------------------------

    async def remember(self, name: str, ring: Head | None) -> None:
        """Store the key ring of this name, for times when neither side is reachable."""
        note = msgspec.msgpack.encode(KnownRing(ring))

        def changed(known: Head | None) -> Head | None:
            same = known is not None and known.note == note
            return None if same else record(_RINGS + name, _RINGS, "spool", note, known)

        await update(self.engine, _RINGS + name, changed)

    async def rings(self, name: str = "") -> dict[str, KnownRing]:
        """The stored key rings whose names start with `name`."""
        heads = await self.engine.threads(prefix=_RINGS + name)
        return {head.thread.removeprefix(_RINGS): _RING.decode(head.note) for head in heads}

    async def check(self) -> None:
        """Refuse a directory that holds a store of its own."""
        heads = await self.engine.threads(limit=1)
        if heads and not await self.engine.threads(prefix=RESERVED, limit=1):
            raise InvalidInput(f"{self.path or 'the spool'} holds a store of its own: give spool= another directory")


def _counted(journal: Head | None, lineage: str, written: int) -> Head:
    """The head of a journal after one more save."""
    now = time.time_ns() // 1000
    if journal is None:
        return Head(JOURNAL + lineage, lineage, _NOBODY, _journal(lineage), 1, 1, "spool", now, now, 1, written)
    return msgspec.structs.replace(
        journal,
        step=journal.step + 1,
        version=journal.version + 1,
        updated=now,
        count=journal.count + 1,
        size=journal.size + written,
    )


def _journal(lineage: str) -> bytes:
    """The id of the branch that holds a lineage's journal."""
    return hashlib.blake2b(f"{JOURNAL}{lineage}".encode(), digest_size=16).digest()


def _row_digest(row: NewRow | Row) -> bytes:
    return _digest(msgspec.msgpack.encode((row.id, row.meta, row.digest, row.root, row.payload)))


def _digest(entry: bytes) -> bytes:
    return hashlib.blake2b(entry, digest_size=16).digest()


def check_directory(value: Any, sides: Sequence[Path]) -> None:
    """Refuse what cannot be a spool, before anything is created. `sides`: the files and directories of the two
    sides."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value) or "\0" in os.fspath(value):
        raise InvalidInput(f"spool={value!r} is not a directory: give a path")
    path = Path(os.path.realpath(value))
    if path.exists() and not path.is_dir():
        raise InvalidInput(f"spool={value!r} is not a directory")
    for side in sides:
        if side in (path, path / FILE) or side in path.parents:
            raise InvalidInput(
                f"spool={value!r} is a side of the mirror itself, or inside of it: give another directory"
            )
    for folder in (path, *path.parents):
        if (folder / "backtrail.json").exists():
            raise InvalidInput(f"spool={value!r} is inside the store {folder}: give another directory")
