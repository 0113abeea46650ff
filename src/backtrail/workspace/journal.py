"""The journal of a workspace: a thread of kind "workspace", with one checkpoint for each record.

Kinds of record: a *snapshot*; a *part*, which keeps blobs reachable that are written ahead of a large snapshot;
*restoring*, which is the safety snapshot before a restore and the restore's intent in one; and *restored*, which closes
it. Metadata of the checkpoint has what listings need, its state what only a restore needs. Trees and file contents are
blobs of the same lineage, so one sweep serves them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
from blake3 import blake3

from backtrail.encode.planner import PlannedRow, Planner
from backtrail.encode.seal import SealedFrames
from backtrail.errors import DECODE_ERRORS, CheckpointNotFound, Corrupt, NoCheckpoint
from backtrail.history.ancestry import HistoryStep
from backtrail.history.context import Context
from backtrail.history.reachability import ASIDE
from backtrail.history.save_arguments import Facts
from backtrail.history.thread_core import ThreadCore
from backtrail.lru import LRU
from backtrail.model import Checkpoint
from backtrail.workspace import trees
from backtrail.workspace.blob_reader import BlobReader, blob_label
from backtrail.workspace.model import Skipped, Snapshot
from backtrail.workspace.paths import check_names
from backtrail.workspace.trees import DIR, FILE, PIECES, Op, Tree, TreeEntry

LEVEL = 1  # of zstd: a higher one costs more than it saves
MAX_TREES = 20_000  # cached
PAGE = 1000  # blob ids that are listed at once
MAX_FLAGGED = 100  # flagged files that the metadata of a record lists
KIND = "workspace"
SNAPSHOT_KINDS = ("snapshot", "restoring")  # records that users see as snapshots

RecordKind = Literal["snapshot", "part", "restoring", "restored"]


class RestoreIntent(msgspec.Struct, frozen=True):
    """A restore in progress: enough to finish it, or to roll it back."""

    steps: list[tuple[bytes, tuple[int, int, int, bytes] | None, tuple[int, int, int, bytes] | None]]
    target: bytes  #: the tree to restore
    snapshot: str  #: the snapshot to restore
    undoes: str | None  #: the restore that this one undoes
    move: dict[str, Any] | None  #: the move of a thread's head that goes with it
    token: bytes  #: random: no two intents are alike

    @property
    def encoded(self) -> bytes:
        return msgspec.msgpack.encode(self)

    def digest(self, safety: bytes) -> str:
        """What the registry remembers of an intent, and of the tree of its safety snapshot: both are in the store."""
        return blake3(self.encoded + safety).hexdigest()

    @property
    def ops(self) -> list[Op]:
        return [
            Op(path, None if old is None else TreeEntry(*old), None if new is None else TreeEntry(*new))
            for path, old, new in self.steps
        ]


class Record(msgspec.Struct, frozen=True):
    """One record of the journal."""

    id: str
    kind: RecordKind
    tree: bytes
    created_at: datetime
    label: str | None
    files: int
    size: int
    directory: str  #: the id of the directory that it was made of, see `registry`
    of: str | None = None  #: restoring, restored: the snapshot
    safety: str | None = None  #: restored: the record that holds the state before
    undoes: str | None = None  #: restored: the restore that was undone
    workspace: str = ""
    flagged: tuple[Skipped, ...] = ()

    @property
    def snapshot(self) -> Snapshot:
        reason = "snapshot" if self.kind == "snapshot" else "safety"
        return Snapshot(
            self.id,
            self.created_at,
            self.label,
            self.tree.hex(),
            self.files,
            self.size,
            self.workspace,
            reason,
            self.flagged,
        )


class Journal:
    """Reads and writes one workspace's records and blobs."""

    def __init__(self, context: Context, thread: str) -> None:
        self._context = context
        self._thread: ThreadCore[Any] = ThreadCore(context, thread, kind=KIND)
        self._frames = context.frames.compressing(LEVEL)
        self._sealed = isinstance(context.frames, SealedFrames)
        self._trees: LRU[bytes, Tree] = LRU(MAX_TREES)
        self.name = thread

    # -- records ----------------------------------------------------------------------------------------------------

    async def tip(self) -> Record | None:
        """The newest record."""
        checkpoint = await self._thread.head()
        return None if checkpoint is None else _record(checkpoint)

    async def records(self) -> list[Record]:
        """All records, oldest first."""
        return [_record(checkpoint) for checkpoint in await self._thread.history(all=True)]

    async def snapshots(self) -> list[Snapshot]:
        """All records that users see as snapshots, oldest first. A damaged one is listed as such."""
        found: list[Snapshot] = []
        for checkpoint in await self._thread.history(all=True, salvage=True):
            try:
                if checkpoint.damage is not None:
                    raise Corrupt(f"snapshot {checkpoint.id}", checkpoint.damage)
                record = _record(checkpoint)
            except Corrupt as error:
                id, created = checkpoint.id, checkpoint.created_at
                found.append(Snapshot(id, created, None, "", 0, 0, self.name, "damaged", damage=error.reason))
            else:
                found += [record.snapshot] if record.kind in SNAPSHOT_KINDS else []
        return found

    async def last_state(self, tip: Record | None) -> Record | None:
        """The newest record whose tree is a state of the directory."""
        if tip is None or tip.kind != "part":
            return tip
        return next((record for record in reversed(await self.records()) if record.kind != "part"), None)

    async def find(self, at: Any) -> Record:
        """The snapshot that `at` refers to: a Snapshot, its id or a unique prefix of it, or a Checkpoint's `files`."""
        if isinstance(at, Snapshot):
            at = at.id
        elif isinstance(at, Checkpoint):
            at = at.files
        if isinstance(at, str):
            at = at.partition("@")[0]
        elif at is None:
            raise NoCheckpoint(f"that checkpoint has no file snapshot of {self.name!r}: save it with files=workspace")
        record = _record(await self._thread.get(at))
        if record.kind not in SNAPSHOT_KINDS:
            raise CheckpointNotFound(self.name, at, "it is no snapshot; list them with snapshots()")
        return record

    async def state(self, record: Record) -> dict[str, Any]:
        """The data that only a restore needs: "withheld" paths, and the "journal" (its intent)."""
        state = await self._thread.load(record.id)
        if type(state) is not dict:
            raise Corrupt(f"snapshot {record.id}", "its state is not that of a snapshot")
        return state

    async def withheld(self, record: Record) -> list[bytes]:
        """The paths that a snapshot left out."""
        paths = (await self.state(record)).get("withheld")
        if type(paths) is not list or not all(type(path) is bytes for path in paths):
            raise Corrupt(f"snapshot {record.id}", "its list of paths that were left out makes no sense")
        return paths

    async def intent(self, record: Record) -> RestoreIntent:
        """The intent of a restore in progress."""
        where = f"the journal of restore {record.id}"
        try:
            intent = msgspec.msgpack.decode((await self.state(record))["journal"], type=RestoreIntent)
        except (*DECODE_ERRORS, KeyError, TypeError) as error:
            raise Corrupt(where, str(error)) from error
        for path, _, _ in intent.steps:
            check_names(path.split(b"/"), where)
        return intent

    async def append(
        self,
        kind: RecordKind,
        tree: bytes,
        *,
        after: Record | None,
        label: str | None = None,
        tags: tuple[str, ...] = (),
        facts: Mapping[str, Any],
        withheld: Iterable[bytes] = (),
        intent: RestoreIntent | None = None,
        blobs: Mapping[bytes, bytes],
    ) -> Record:
        """Add a record and its (framed) blobs in one commit; `Conflict` if `after` is no longer the newest record."""
        state: dict[str, Any] = {"tree": tree, "withheld": sorted(withheld)}
        if intent is not None:
            state["journal"] = intent.encoded
        custom = {"kind": kind, "tree": tree.hex(), **facts}

        def plan(planner: Planner) -> PlannedRow:
            planned = planner.replace(state)
            return msgspec.structs.replace(planned, framed=dict(blobs))

        checked = Facts.check(self._context.values, label, tags, custom, None, None)
        expect = None if after is None else after.id
        return _record(await self._thread.save_plan(plan, checked, expect=expect, compare_lists=True))

    # -- blobs ------------------------------------------------------------------------------------------------------

    def blob_id(self, content: bytes) -> bytes:
        """The id of a blob, made from its content."""
        return self._context.frames.blob_id(content)

    def wrap(self, id: bytes, content: bytes) -> bytes:
        """Frame a blob for the engine. May be called from any thread."""
        return self._frames.wrap(content, blob_label(id))

    def wrap_all(self, ids: Sequence[bytes], contents: Sequence[bytes]) -> list[bytes]:
        """Frame blobs for the engine. May be called from any thread."""
        return self._frames.wrap_all(contents, map(blob_label, ids))

    def seal(self, data: bytes) -> bytes:
        """Data that is kept outside the store, encrypted if the store is."""
        return self._frames.wrap(data, f"the index of {self.name}") if self._sealed else data

    def unseal(self, data: bytes) -> bytes:
        """The data that was sealed, or `Corrupt`."""
        return self._frames.unwrap(data, f"the index of {self.name}") if self._sealed else data

    async def append_part(self, blobs: Mapping[bytes, bytes], after: Record | None, directory: str) -> Record:
        """Write framed blobs ahead of the snapshot that will refer to them. A record of their own refers to them, and
        to the part before it, so that no sweep can take them meanwhile."""
        before = after.tree if after is not None and after.kind == "part" else None
        data = trees.encode_list(sorted(blobs), before)
        id = self.blob_id(data)
        facts = {"files": 0, "bytes": 0, "directory": directory}
        return await self.append("part", id, after=after, facts=facts, blobs={**blobs, id: self.wrap(id, data)})

    async def blobs(self, ids: Iterable[bytes]) -> dict[bytes, bytes]:
        """Contents by id, each checked against it; `Corrupt` if one is missing."""
        return {id: self.unwrap(id, frame) for id, frame in (await self.fetch(ids)).items()}

    async def fetch(self, ids: Iterable[bytes]) -> dict[bytes, bytes]:
        """Framed blobs by id; `Corrupt` if one is missing."""
        wanted = sorted(set(ids))  # the order of an engine's index
        found = await self._context.engine.blobs(self.name, wanted) if wanted else {}
        if len(found) < len(wanted):
            missing = next(id for id in wanted if id not in found)
            raise Corrupt(blob_label(missing), "it is missing, but a snapshot points at it")
        return found

    def unwrap(self, id: bytes, frame: bytes) -> bytes:
        """The content of a framed blob, checked against its id. May be called from any thread."""
        return self._frames.unwrap_blob(frame, id, blob_label(id))

    async def lost_blobs(self) -> set[bytes]:
        """Ids of blobs that a repair has set aside, and that have not been written again."""
        engine = self._context.engine
        if not await engine.blobs(self.name, [ASIDE]):
            return set()
        lost: set[bytes] = set()
        after = ASIDE
        while after.startswith(ASIDE):
            page = [id for id, _ in await engine.blob_ids(self.name, after=after, limit=PAGE)]
            lost |= {id.removeprefix(ASIDE) for id in page if id.startswith(ASIDE)}
            after = page[-1] if page else b""
        return lost - (await engine.blobs(self.name, sorted(lost))).keys()

    async def trees(self, ids: Iterable[bytes]) -> dict[bytes, Tree]:
        """Trees by id, every entry of them checked."""
        wanted = set(ids)
        # Several threads may be here at once: `peek` and `put` are safe beside each other, and `put` renews the use.
        found = {id: tree for id in wanted if (tree := self._trees.peek(id)) is not None}
        for id, data in (await self.blobs(wanted - found.keys())).items():
            found[id] = trees.decode(data, f"tree {id.hex()}")
        self.cache_trees(found)
        return found

    def cache_trees(self, found: Mapping[bytes, Tree]) -> None:
        """Cache trees that are in the store. They must not be changed."""
        for id, tree in found.items():
            self._trees.put(id, tree)

    async def contents(self, entries: Iterable[TreeEntry]) -> dict[bytes, bytes]:
        """The contents of files, by the refs of their entries."""
        files = {entry.ref: entry for entry in entries}
        reader = await self.blob_reader(files.values())
        return {ref: reader.read(entry) for ref, entry in files.items()}

    async def blob_reader(self, entries: Iterable[TreeEntry]) -> BlobReader:
        """Fetch the blobs of files, to be read."""
        files = {entry.ref: entry for entry in entries}
        found = await self.fetch(files)
        pieces = {
            ref: trees.decode_pieces(self.unwrap(ref, found[ref]), entry.size, blob_label(ref))
            for ref, entry in files.items()
            if entry.kind == PIECES
        }
        found |= await self.fetch(id for listed in pieces.values() for id in listed.refs)
        return BlobReader(self._frames, found, pieces)

    async def piece_ids(self, entries: Iterable[TreeEntry]) -> set[bytes]:
        """Ids of the pieces of large files."""
        large = {entry.ref: entry for entry in entries if entry.kind == PIECES}
        lists = await self.blobs(large)
        return {
            id for ref, data in lists.items() for id in trees.decode_pieces(data, large[ref].size, blob_label(ref)).refs
        }


async def reachable_blobs(context: Context, thread: str, living: Iterable[HistoryStep]) -> set[bytes]:
    """Ids of all blobs that a workspace's living records need: a sweep of its lineage must keep them."""
    journal = Journal(context, thread)
    customs = [
        context.values.decode(seen.meta.custom, f"a record of {thread!r}") for seen in living if seen.meta.custom
    ]
    keep: set[bytes] = set()
    # A restore in progress needs the tree it started from, the one it goes to, and the files that were made for it.
    level = {bytes.fromhex(custom[key]) for custom in customs for key in ("tree", "target", "made") if key in custom}
    large: dict[bytes, TreeEntry] = {}
    while level:
        keep |= level
        below: set[bytes] = set()
        for tree in (await journal.trees(level)).values():
            for entry in tree.values():
                if entry.kind == DIR and entry.ref not in keep:
                    below.add(entry.ref)
                elif entry.kind == PIECES:
                    large[entry.ref] = entry
                if entry.kind in (FILE, PIECES):
                    keep.add(entry.ref)
        level = below
    return keep | await journal.piece_ids(large.values())


def _record(checkpoint: Checkpoint) -> Record:
    custom = checkpoint.custom
    try:
        return Record(
            id=checkpoint.id,
            kind=custom["kind"],
            tree=bytes.fromhex(custom["tree"]),
            created_at=checkpoint.created_at,
            label=checkpoint.label,
            files=custom["files"],
            size=custom["bytes"],
            directory=custom["directory"],
            of=custom.get("of"),
            safety=custom.get("safety"),
            undoes=custom.get("undoes"),
            workspace=checkpoint.thread_id,
            flagged=tuple(Skipped(path, reason) for path, reason in custom.get("flagged", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"snapshot {checkpoint.id}", f"its metadata is not a workspace's: {error}") from error
