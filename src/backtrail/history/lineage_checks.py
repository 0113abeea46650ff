"""Checks of one lineage: every digest and chain, every piece and pointer, every head, parent and count.

States are not assembled one by one. Each row is read once and its contents are recorded, then each root is compared
with these records: the work is proportional to the rows, not to rows times states.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from functools import cached_property

import msgspec
from blake3 import blake3

from backtrail.encode.frame import BEFORE, BEHIND, describe_row
from backtrail.encode.payload_format import unpack_payload
from backtrail.encode.row_format import Blob, ListNode, Piece, Root, Slot, leaves, unpack_root
from backtrail.encode.seal import data_key_of
from backtrail.encode.tree_walks import pages_of, unread_pages
from backtrail.engines.base import LAST_STEP, Branch, Head, Position, Row, changes_of
from backtrail.engines.branch_origins import (
    first_step,
    furthest,
    previous_position,
    walk_back,
)
from backtrail.errors import BacktrailError, Corrupt
from backtrail.history.context import Context
from backtrail.history.reachability import ASIDE, GAP
from backtrail.history.records import (
    NO_DIGEST,
    MarkBody,
    Meta,
    Note,
    body_digest,
    chain,
    first_link,
    open_branch,
    open_note,
    read_step,
)
from backtrail.history.state_reader import StateReader
from backtrail.history.zstd_dictionary import is_dictionary, with_dictionaries
from backtrail.model import Damage

_BATCH = 256  # rows read at once


def gap_id(branch: bytes, step: int) -> bytes:
    """The id of the blob that records a gap: a repair removed the rows before this one."""
    return GAP + branch + step.to_bytes(4, "big")


def gap_before(branch: bytes, step: int) -> str:
    """The record of a gap. Sealed frames are bound to this text."""
    return f"gap before {describe_row(branch, step)}"


class CheckedRow(msgspec.Struct):
    """A row that was read, and its faults."""

    branch: Branch
    id: bytes
    packed_meta: bytes  # as stored
    digest: bytes
    swept: bool  # its root and payload were freed
    accepted: tuple[bytes, ...] = ()  # digests that the next row may be chained to
    meta: Meta | None = None
    mark: MarkBody | None = None
    root: Root | None = None
    slots: list[bytes] = []  # digests, comparable to `Slot.check`
    faults: list[str] = []  # its bytes are damaged: no state can be built from them
    chain_faults: list[str] = []  # its bytes are intact, but it is not chained to the row before it
    mark_fault: str | None = None

    @property
    def alive(self) -> bool:
        return self.mark is None or not self.mark.deleted


class StreamRows:
    """The rows that hold the items of one stream. `gaps`: the number of gaps in the items up to each row."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.starts: list[int] = []
        self.stops: list[int] = []
        self.gaps: list[int] = []

    def add(self, step: int, start: int, stop: int) -> None:
        """Row `step` holds items start..stop-1."""
        if self.steps and self.steps[-1] == step:  # several sections in one row
            self.stops[-1] = stop
            return
        broken = 1 if self.stops and self.stops[-1] != start else 0
        self.gaps.append((self.gaps[-1] if self.gaps else 0) + broken)
        self.steps.append(step)
        self.starts.append(start)
        self.stops.append(stop)

    def holds(self, piece: Piece) -> bool:
        """True if all items of a piece exist."""
        low, high = bisect_left(self.steps, piece.first), bisect_left(self.steps, piece.last)
        if high >= len(self.steps) or self.steps[low] != piece.first or self.steps[high] != piece.last:
            return False
        whole = self.gaps[low] == self.gaps[high]
        return whole and self.starts[low] <= piece.start and self.stops[high] >= piece.stop


class LineageCheck:
    """Checks one lineage. Problems are collected, never raised."""

    def __init__(self, context: Context, lineage: str) -> None:
        self._context = context
        self.lineage = lineage
        self.problems: list[Damage] = []
        self.heads: list[Head] = []
        self.notes: dict[str, Note] = {}
        self.branches: dict[bytes, Branch] = {}
        self.rows: dict[Position, CheckedRow] = {}
        self.pool: dict[bytes, int] = {}
        self.bad_blobs: set[bytes] = set()
        self.bad_gaps: list[bytes] = []
        self.detached: set[bytes] = set()  # branches that are damaged, or hang on one that is missing or damaged
        self.needed: set[bytes] = set()
        self.living: dict[Position, CheckedRow] = {}
        self.unsound: dict[Position, str] = {}  # living checkpoints whose state cannot be assembled
        self._origins: dict[bytes, bytes] = {}  # the digest of the row at each branch's origin, by the branch's seal
        self._gaps: set[Position] = set()  # rows that follow a gap, which an earlier repair recorded
        self._steps: dict[bytes, list[int]] = {}  # of each branch, ascending
        self._streams: dict[tuple[bytes, int], StreamRows] = {}

    @cached_property
    def _reader(self) -> StateReader:
        return StateReader(self._context, self.lineage)  # most lineages need none: their roots have no pages

    def _report(self, where: str, reason: str) -> None:
        self.problems.append(Damage(self.lineage, where, reason))

    async def run(self) -> None:
        """Check everything."""
        engine = self._context.engine
        try:
            self.heads = await engine.heads(self.lineage)
            self.branches = {branch.id: branch for branch in await engine.branches(self.lineage)}
            self.pool = dict(await engine.blob_ids(self.lineage))
            await self._check_blobs()
            await self._check_gaps()
            for branch in self.branches.values():
                await self._read_rows(branch)
        except BacktrailError as error:  # the engine itself cannot return the bytes
            self._report(f"lineage {self.lineage!r}", str(error))
            return
        self._check_branches()
        self._check_chains()
        self._check_origins()
        for head in self.heads:
            self._check_head(head)
        self._find_living()
        for at, known in self.living.items():
            await self._check_state(at, known)
        self._check_counts()

    # -- each record by itself -----------------------------------------------------------------------------------------

    async def _check_blobs(self) -> None:
        ids = list(self.pool)
        for start in range(0, len(ids), 16):
            found = await self._context.engine.blobs(self.lineage, ids[start : start + 16])
            for id in ids[start : start + 16]:
                fault = self._blob_fault(id, found.get(id))
                if fault is not None:
                    self.bad_blobs.add(id)
                    self._report(f"blob {id.hex()}", fault)

    async def _check_gaps(self) -> None:
        """A gap excuses a break in the chain, so it must be one that a repair recorded."""
        ids = [id for id in self.pool if id.startswith(GAP)]
        for id, data in (await self._context.engine.blobs(self.lineage, ids)).items() if ids else ():
            branch, step = id[len(GAP) : -4], int.from_bytes(id[-4:], "big")
            try:
                self._context.frames.unwrap(data, gap_before(branch, step))
            except BacktrailError as error:
                self.bad_gaps.append(id)
                self._report(gap_before(branch, step), _reason(error))
            else:
                self._gaps.add((branch, step))

    def _blob_fault(self, id: bytes, data: bytes | None) -> str | None:
        if id.startswith((ASIDE, GAP)):
            return None
        if data is None:
            return "it is listed, but cannot be read"
        frames = self._context.frames
        try:
            if is_dictionary(id):
                name = id[-8:]
                content = frames.unwrap(data, f"dictionary {name.hex()}")
                return None if frames.blob_id(content)[:8] == name else "its content does not match its name"
            content = frames.unwrap(data, f"blob {id.hex()}")
            return None if frames.is_named(content, id) else "its content does not match its name"
        except BacktrailError as error:
            return _reason(error)

    async def _read_rows(self, branch: Branch) -> None:
        for first, last in [(1, LAST_STEP)] if self._is_short() else await self._batches(branch):
            for row in await self._context.engine.rows(self.lineage, branch.id, first, last):
                self.rows[branch.id, row.step] = await self._read_row(branch, row)

    def _is_short(self) -> bool:
        """True if all rows can be read at once: a thread that was only ever saved to has as many as its head tells."""
        if len(self.heads) != 1 or len(self.branches) != 1:
            return False
        (head,) = self.heads
        return changes_of(head.version) == head.step == head.count <= _BATCH

    async def _batches(self, branch: Branch) -> list[tuple[int, int]]:
        steps = [step.step for step in await self._context.engine.steps(self.lineage, branch.id, 1, LAST_STEP)]
        return [(steps[start], steps[start : start + _BATCH][-1]) for start in range(0, len(steps), _BATCH)]

    async def _read_row(self, branch: Branch, row: Row) -> CheckedRow:
        known = CheckedRow(
            branch, row.id, row.meta, row.digest, not row.root and not row.payload, slots=[], faults=[], chain_faults=[]
        )
        where = describe_row(branch.id, row.step)
        frames = self._context.frames
        if not all(type(part) is bytes for part in (row.id, row.digest, row.meta, row.root, row.payload)):
            known.faults.append("a part of it is not bytes")
            return known
        try:
            known.meta, _ = read_step(frames, branch.id, row._replace(mark=None))
        except BacktrailError as error:
            known.faults.append(_reason(error))
            return known
        if row.mark is not None:
            try:
                _, known.mark = read_step(frames, branch.id, row)
            except BacktrailError as error:
                known.mark_fault = f"its mark: {_reason(error)}"
        elif known.meta.label is not None:
            known.mark_fault = "its mark is missing, without which its label is not found"
        if known.swept:
            return known
        if body_digest(row.root, row.payload) != known.meta.body:
            known.faults.append("its root or payload is not the one that was written")
            return known
        try:
            known.root = unpack_root(frames.unwrap(row.root, f"{where}: root"), branch.id, where)
            data = await with_dictionaries(
                self._context, self.lineage, lambda: frames.unwrap(row.payload, f"{where}: payload")
            )
            sections, slots = unpack_payload(BEFORE + data + BEHIND, where)
        except BacktrailError as error:
            known.faults.append(_reason(error))
            return known
        for section in sections:
            stream = self._streams.setdefault((branch.id, section.stream), StreamRows())
            stream.add(row.step, section.start, section.start + section.items)
        known.slots = [blake3(slot).digest(16) for slot in slots]
        return known

    # -- the records together -----------------------------------------------------------------------------------------

    def _check_branches(self) -> None:
        """Check each record, then that each leads back to a first row. What is damaged leads nowhere."""
        for branch in self.branches.values():
            try:
                self._origins[branch.id] = open_branch(self._context.frames, branch)
            except BacktrailError as error:
                self._report(f"branch {branch.id.hex()}", _reason(error))
                self.detached.add(branch.id)
        sound = (branch for id, branch in self.branches.items() if id not in self.detached)
        attached: dict[bytes, int] = {}  # the first step of each
        for branch in sorted(sound, key=first_step):  # a branch begins later than the one that it hangs on
            if branch.origin is None or attached.get(branch.origin[0], LAST_STEP) <= branch.origin[1]:
                attached[branch.id] = first_step(branch)
            else:
                self._report(f"branch {branch.id.hex()}", "a branch that it hangs on is missing or damaged")
                self.detached.add(branch.id)
        for id in self.detached:
            del self.branches[id]

    def _check_chains(self) -> None:
        for (branch_id, step), known in self.rows.items():
            if branch_id in self.detached:
                known.faults.append("its branch, or one that it hangs on, is missing or damaged")
                continue
            self._check_chain(branch_id, step, known)
            for fault in (*known.faults, *known.chain_faults, *([known.mark_fault] if known.mark_fault else [])):
                self._report(describe_row(branch_id, step), fault)

    def _check_origins(self) -> None:
        for branch in self.branches.values():
            row = None if branch.origin is None else self.rows.get(branch.origin)
            if row is not None and row.accepted and self._origins[branch.id] not in row.accepted:
                self._report(f"branch {branch.id.hex()}", "it was begun after another row than the one at its origin")

    def _check_chain(self, branch_id: bytes, step: int, known: CheckedRow) -> None:
        at = previous_position(known.branch, step)
        previous = self.rows.get(at) if at is not None else None
        known.accepted = (known.digest,)
        if step < first_step(known.branch):
            known.faults.append("its branch begins at a later step")
            return
        if known.meta is None or (at is not None and previous is None and known.swept):
            return  # reported already; or the row before was swept, and the chain begins here now
        if (branch_id, step) in self._gaps:
            known.accepted = ()
            return  # an earlier repair recorded it
        if at is not None and previous is None:
            self._report(describe_row(*at), f"it is missing, but {describe_row(branch_id, step)} follows it")
            return
        unknown = previous is not None and not previous.accepted
        if not unknown and known.meta.parent != (previous.id if previous is not None else None):
            known.chain_faults.append("its parent is not the checkpoint before it")
        # Who saves after a row has its data key: an older one after it means a forger who knows a retired key.
        if previous is not None and data_key_of(known.packed_meta) < data_key_of(previous.packed_meta):
            known.chain_faults.append("its data key was retired before the row before it was written")
        # A row with a wrong digest must not make all later rows look wrong: they may be chained to either digest.
        links = previous.accepted if previous else (NO_DIGEST,)
        if step == first_step(known.branch):
            links = tuple(first_link(known.branch, digest) for digest in links)
        digests = [chain(link, known.id, known.packed_meta) for link in links]
        if digests and known.digest not in digests:
            known.accepted = (known.digest, *digests)
            known.chain_faults.append("its digest does not follow from the row before it")

    def _check_head(self, head: Head) -> None:
        where = f"the head of thread {head.thread!r}"
        try:
            note = self.notes[head.thread] = open_note(self._context.frames, head)
        except BacktrailError as error:
            self._report(where, _reason(error))
            return
        row = self.rows.get(head.position)
        if row is None:
            self._report(where, f"it stands on {describe_row(head.branch, head.step)}, which is missing")
        elif note.checkpoint != row.id:
            self._report(where, "the checkpoint it names is not the one it stands on")
        elif row.meta is not None and row.meta.size != head.size:
            self._report(where, f"it tells a size of {head.size}, the checkpoint one of {row.meta.size}")

    def positions_to(self, head: Head) -> list[Position]:
        """The existing positions in the ancestry of a head, newest first; stops at a missing branch."""
        if not self._steps:
            for branch, step in sorted(self.rows):
                self._steps.setdefault(branch, []).append(step)
        return [
            (segment.branch.id, step)
            for segment in walk_back(head.position, self.branches.get)
            for step in reversed(self._steps.get(segment.branch.id, []))
            if step <= segment.last
        ]

    def _find_living(self) -> None:
        owners = {head.owner for head in self.heads}
        positions = {head.position for head in self.heads}
        reach = furthest((head.position for head in self.heads), self.branches.get)
        # A damaged head may name a wrong owner: then the thread's branches are found by its name.
        damaged = {head.thread for head in self.heads if head.thread not in self.notes}
        for at, known in self.rows.items():
            seen = known.branch.owner in owners or known.branch.thread in damaged or at[1] <= reach.get(at[0], 0)
            if (known.alive and seen) or at in positions:
                self.living[at] = known

    async def _check_state(self, at: Position, known: CheckedRow) -> None:
        """Compare a root with the contents of the rows and the pool."""
        fault = await self._state_fault(known)
        if fault is not None:
            self.unsound[at] = fault
            if not known.faults:
                self._report(describe_row(*at), fault)

    async def _state_fault(self, known: CheckedRow) -> str | None:
        if known.faults or known.root is None:
            return known.faults[0] if known.faults else "its body is missing"
        tree = known.root.tree
        if next(unread_pages(tree), None) is not None:
            try:
                self._reader.begin("a state")
                tree = await self._reader.with_pages(tree)
            except BacktrailError as error:
                return f"a page of it cannot be read: {_reason(error)}"
        for page in pages_of(tree):
            row = self.rows.get((page.branch, page.step))
            if row is None or row.faults or page.index >= len(row.slots):
                return f"it needs {describe_row(page.branch, page.step)}, which is missing or damaged"
        for node in leaves(tree):
            fault = self._node_fault(node)
            if fault is not None:
                return fault
        return None

    def _node_fault(self, node: object) -> str | None:
        if isinstance(node, Blob):
            self.needed.add(node.id)
            if node.id not in self.pool or node.id in self.bad_blobs:
                return f"it needs blob {node.id.hex()}, which is missing or damaged"
        elif isinstance(node, Slot):
            row = self.rows.get((node.branch, node.step))
            if row is None or node.index >= len(row.slots) or row.slots[node.index] != node.check:
                return f"it needs a value of {describe_row(node.branch, node.step)}, which is missing or damaged"
        elif isinstance(node, ListNode):
            for piece in node.pieces:
                stream = self._streams.get((piece.branch, piece.stream))
                if stream is None or not stream.holds(piece):
                    where = f"steps {piece.first} to {piece.last} of branch {piece.branch.hex()}"
                    return f"it needs items of {where}, which are missing or damaged"
            if sum(piece.stop - piece.start for piece in node.pieces) != node.count:
                return "a list in it has another length than its pieces"
        return None

    def _check_counts(self) -> None:
        written: defaultdict[bytes, int] = defaultdict(int)
        for known in self.living.values():
            if known.alive:
                written[known.branch.owner] += 1
        for head in self.heads:
            at_head = self.living.get(head.position)
            deleted = at_head is not None and not at_head.alive and at_head.branch.owner == head.owner
            own = written[head.owner] + deleted
            if head.thread in self.notes and own != head.count:
                where = f"the head of thread {head.thread!r}"
                self._report(where, f"it counts {head.count} checkpoint(s), there are {own}")


def _reason(error: BacktrailError) -> str:
    return error.reason if isinstance(error, Corrupt) else str(error)
