"""Inspection of one lineage: every digest and chain, every piece and pointer, every head, parent and count.

States are not put together one by one: what each row holds is noted once, and then each root is held against these
notes, so the work is in proportion to the rows and not to rows times states.
"""

from __future__ import annotations

from bisect import bisect_left

import msgspec
from blake3 import blake3

from backtrail.encode.assemble import unread_pages
from backtrail.encode.frame import BEFORE, BEHIND, LacksDictionary, describe_row
from backtrail.encode.row_format import Blob, ListNode, Piece, Root, Slot, leaves, unpack_payload, unpack_root
from backtrail.engines.base import LAST_STEP, Branch, Head, Row
from backtrail.errors import BacktrailError, Corrupt
from backtrail.history.context import Context
from backtrail.history.reachability import ASIDE, GAP
from backtrail.history.records import NO_DIGEST, MarkBody, Meta, Note, body_digest, chain, open_note, read_step
from backtrail.history.state_reader import StateReader
from backtrail.history.zstd_dictionary import is_dictionary, learn
from backtrail.model import Damage

Place = tuple[bytes, int]
_TOGETHER = 256


def gap_id(branch: bytes, step: int) -> bytes:
    """The blob that says: a repair took away what was before this row."""
    return GAP + branch + step.to_bytes(4, "big")


class Known(msgspec.Struct):
    """What is known of a row once it was read."""

    branch: Branch
    id: bytes
    packed: bytes  # its metadata as stored
    digest: bytes
    light: bool  # its body was swept
    follows: tuple[bytes, ...] = ()  # digests that the next row may be chained to
    meta: Meta | None = None
    remark: MarkBody | None = None
    root: Root | None = None
    slots: list[bytes] = []  # digests, as `Slot.check` has them
    faults: list[str] = []  # its bytes are damaged: nothing can rely on them
    chain_faults: list[str] = []  # what it holds is sound, but it is not linked to the row before it
    mark_fault: str | None = None

    @property
    def alive(self) -> bool:
        return self.remark is None or not self.remark.deleted


class Stream:
    """Which rows hold which items of one stream. `breaks` counts the places where items are missing in between."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.starts: list[int] = []
        self.stops: list[int] = []
        self.breaks: list[int] = []

    def add(self, step: int, start: int, stop: int) -> None:
        if self.steps and self.steps[-1] == step:  # several sections in one row
            self.stops[-1] = stop
            return
        broken = 1 if self.stops and self.stops[-1] != start else 0
        self.breaks.append((self.breaks[-1] if self.breaks else 0) + broken)
        self.steps.append(step)
        self.starts.append(start)
        self.stops.append(stop)

    def holds(self, piece: Piece) -> bool:
        low, high = bisect_left(self.steps, piece.first), bisect_left(self.steps, piece.last)
        if high >= len(self.steps) or self.steps[low] != piece.first or self.steps[high] != piece.last:
            return False
        whole = self.breaks[low] == self.breaks[high]
        return whole and self.starts[low] <= piece.start and self.stops[high] >= piece.stop


class Inspection:
    """Looks at one lineage. Problems are collected, never raised."""

    def __init__(self, context: Context, lineage: str) -> None:
        self._context = context
        self.lineage = lineage
        self.problems: list[Damage] = []
        self.heads: list[Head] = []
        self.notes: dict[str, Note] = {}
        self.branches: dict[bytes, Branch] = {}
        self.rows: dict[Place, Known] = {}
        self.pool: dict[bytes, int] = {}
        self.bad_blobs: set[bytes] = set()
        self.adrift: set[bytes] = set()  # branches that hang on one that is missing
        self.needed: set[bytes] = set()
        self.living: dict[Place, Known] = {}
        self.unsound: dict[Place, str] = {}  # living checkpoints whose state cannot be put together
        self._index: dict[bytes, list[Place]] = {}
        self._streams: dict[tuple[bytes, int], Stream] = {}
        self._reader = StateReader(context, lineage)

    def _tell(self, where: str, reason: str) -> None:
        self.problems.append(Damage(self.lineage, where, reason))

    async def run(self) -> None:
        """Look at everything."""
        engine = self._context.engine
        try:
            self.heads = await engine.heads(self.lineage)
            self.branches = {branch.id: branch for branch in await engine.branches(self.lineage)}
            self.pool = dict(await engine.blob_ids(self.lineage))
            await self._blobs()
            for branch in self.branches.values():
                await self._rows_of(branch)
        except BacktrailError as error:  # the engine itself cannot give the bytes back
            self._tell(f"lineage {self.lineage!r}", str(error))
            return
        self._chains()
        for head in self.heads:
            self._head(head)
        self._see()
        for at, known in self.living.items():
            await self._state(at, known)
        self._counts()

    # -- what is there ------------------------------------------------------------------------------------------------

    async def _blobs(self) -> None:
        ids = list(self.pool)
        for start in range(0, len(ids), 16):
            found = await self._context.engine.blobs(self.lineage, ids[start : start + 16])
            for id in ids[start : start + 16]:
                fault = self._blob_fault(id, found.get(id))
                if fault is not None:
                    self.bad_blobs.add(id)
                    self._tell(f"blob {id.hex()}", fault)

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

    async def _rows_of(self, branch: Branch) -> None:
        steps = [step.step for step in await self._context.engine.steps(self.lineage, branch.id, 1, LAST_STEP)]
        for start in range(0, len(steps), _TOGETHER):
            part = steps[start : start + _TOGETHER]
            for row in await self._context.engine.rows(self.lineage, branch.id, part[0], part[-1]):
                self.rows[branch.id, row.step] = await self._row(branch, row)

    async def _row(self, branch: Branch, row: Row) -> Known:
        known = Known(
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
        try:
            _, known.remark = read_step(frames, branch.id, row)
        except BacktrailError as error:
            known.mark_fault = f"its mark: {_reason(error)}"
        if known.light:
            return known
        if body_digest(row.root, row.payload) != known.meta.body:
            known.faults.append("its root or payload is not the one that was written")
            return known
        try:
            known.root = unpack_root(frames.unwrap(row.root, f"{where}: root"), branch.id, where)
            data = await self._payload(row, where)
            sections, slots = unpack_payload(BEFORE + data + BEHIND, where)
        except BacktrailError as error:
            known.faults.append(_reason(error))
            return known
        for section in sections:
            stream = self._streams.setdefault((branch.id, section.stream), Stream())
            stream.add(row.step, section.start, section.start + section.items)
        known.slots = [blake3(slot).digest(16) for slot in slots]
        return known

    async def _payload(self, row: Row, where: str) -> bytes:
        while True:
            try:
                return self._context.frames.unwrap(row.payload, f"{where}: payload")
            except LacksDictionary as lacking:
                await learn(self._context, self.lineage, lacking.name)

    # -- how it hangs together ----------------------------------------------------------------------------------------

    def before(self, branch: Branch, step: int) -> Place | None:
        """The place that a row is chained to; None for the first of all."""
        if branch.origin is not None and step == branch.origin[1] + 1:
            return branch.origin
        return (branch.id, step - 1) if step > 1 else None

    def _chains(self) -> None:
        for branch in self.branches.values():
            if branch.origin is not None and not self._hangs(branch):
                self._tell(f"branch {branch.id.hex()}", "a branch that it hangs on is missing")
                self.adrift.add(branch.id)
        for (branch_id, step), known in self.rows.items():
            if branch_id in self.adrift:
                known.faults.append("its branch hangs on one that is missing")
                continue
            self._chain(branch_id, step, known)
            for fault in (*known.faults, *known.chain_faults, *([known.mark_fault] if known.mark_fault else [])):
                self._tell(describe_row(branch_id, step), fault)

    def _hangs(self, branch: Branch) -> bool:
        """Whether all branches that it hangs on are there, and do not go round in a circle."""
        following: Branch | None = branch
        for _ in range(len(self.branches) + 1):
            if following is None:
                return False
            if following.origin is None:
                return True
            following = self.branches.get(following.origin[0])
        return False

    def _chain(self, branch_id: bytes, step: int, known: Known) -> None:
        at = self.before(known.branch, step)
        previous = self.rows.get(at) if at is not None else None
        known.follows = (known.digest,)
        if known.meta is None or (at is not None and previous is None and known.light):
            return  # told already; or the row before was swept, and this one is what remains of the chain
        if gap_id(branch_id, step) in self.pool:
            known.follows = ()
            return  # an earlier repair knows of it
        if at is not None and previous is None:
            self._tell(describe_row(*at), f"it is missing, but {describe_row(branch_id, step)} follows it")
            return
        unknown = previous is not None and not previous.follows
        if not unknown and known.meta.parent != (previous.id if previous is not None else None):
            known.chain_faults.append("its parent is not the checkpoint before it")
        # A row whose own digest is wrong must not make all that follow it look wrong: either chain will do for them.
        digests = [chain(digest, known.id, known.packed) for digest in (previous.follows if previous else (NO_DIGEST,))]
        if digests and known.digest not in digests:
            known.follows = (known.digest, *digests)
            known.chain_faults.append("its digest does not follow from the row before it")

    def _head(self, head: Head) -> None:
        where = f"the head of thread {head.thread!r}"
        try:
            note = self.notes[head.thread] = open_note(self._context.frames, head)
        except BacktrailError as error:
            self._tell(where, _reason(error))
            return
        row = self.rows.get((head.branch, head.step))
        if row is None:
            self._tell(where, f"it stands on {describe_row(head.branch, head.step)}, which is missing")
        elif note.checkpoint != row.id:
            self._tell(where, "the checkpoint it names is not the one it stands on")
        elif row.meta is not None and row.meta.size != head.size:
            self._tell(where, f"it tells a size of {head.size}, the checkpoint one of {row.meta.size}")

    def trail(self, at: Place) -> list[Place]:
        """The places of a trail that are there, newest first; stops where a branch is missing."""
        found: list[Place] = []
        following: Place | None = at
        for _ in range(len(self.branches) + 1):
            if following is None or following[0] not in self.branches:
                break
            branch, last = following
            steps = sorted((step for b, step in self._by_branch(branch) if step <= last), reverse=True)
            found += [(branch, step) for step in steps]
            following = self.branches[branch].origin
        return found

    def _by_branch(self, branch: bytes) -> list[Place]:
        if not self._index:
            for at in self.rows:
                self._index.setdefault(at[0], []).append(at)
        return self._index.get(branch, [])

    def _see(self) -> None:
        owners = {head.owner for head in self.heads}
        for head in self.heads:
            for at in self.trail((head.branch, head.step)):
                if self.rows[at].alive or at == (head.branch, head.step):
                    self.living[at] = self.rows[at]
        # A head that is damaged may name a wrong owner: then the thread's name tells which branches it wrote.
        damaged = {head.thread for head in self.heads if head.thread not in self.notes}
        for at, known in self.rows.items():
            if (known.branch.owner in owners or known.branch.thread in damaged) and known.alive:
                self.living[at] = known

    async def _state(self, at: Place, known: Known) -> None:
        """Hold a root against what the rows and the pool have."""
        fault = await self._state_fault(known)
        if fault is not None:
            self.unsound[at] = fault
            if not known.faults:
                self._tell(describe_row(*at), fault)

    async def _state_fault(self, known: Known) -> str | None:
        if known.faults or known.root is None:
            return known.faults[0] if known.faults else "its body is missing"
        tree = known.root.tree
        try:
            while pages := list(unread_pages(tree)):
                for page in pages:
                    row = self.rows.get((page.branch, page.step))
                    if row is None or row.faults or page.index >= len(row.slots):
                        return f"it needs {describe_row(page.branch, page.step)}, which is missing or damaged"
                await self._reader.fetch((page.branch, page.step, page.step) for page in pages)
                tree = self._reader.assembler.tree(tree)
        except BacktrailError as error:
            return _reason(error)
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

    def _counts(self) -> None:
        for head in self.heads:
            stands = (head.branch, head.step)
            own = sum(
                1
                for at, known in self.living.items()
                if known.branch.owner == head.owner and (known.alive or at == stands)
            )
            if head.thread in self.notes and own != head.count:
                where = f"the head of thread {head.thread!r}"
                self._tell(where, f"it counts {head.count} checkpoint(s), there are {own}")


def _reason(error: BacktrailError) -> str:
    return error.reason if isinstance(error, Corrupt) else str(error)
