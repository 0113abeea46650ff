"""The log of a workspace: a thread of kind "workspace", one checkpoint for each thing that happened to the directory.

Kinds of record: a *snapshot*; a *part*, which holds on to blobs that are written ahead of a large one; *restoring*,
which is the safety snapshot before a restore and the restore's journal in one; and *restored*, which closes it. What
lists need stands in the checkpoint's metadata, what only a restore needs in its state. Trees and file contents are
blobs of the same lineage, so one sweep serves them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec

from backtrail.encode.planner import PlannedRow, Planner
from backtrail.errors import CheckpointNotFound, Corrupt, NoCheckpoint
from backtrail.history.ancestry import HistoryStep
from backtrail.history.context import Context
from backtrail.history.facts import Facts
from backtrail.history.reachability import ASIDE
from backtrail.history.thread import Thread
from backtrail.model import Checkpoint
from backtrail.workspace import trees
from backtrail.workspace.blob_reader import BlobReader, place_of
from backtrail.workspace.model import Skipped, Snapshot
from backtrail.workspace.trees import DIR, FILE, PIECES, Op, Tree, TreeEntry

LEVEL = 1  # of zstd: a higher one costs more than it saves
MAX_TREES = 20_000  # kept in memory
PAGE = 1000  # names of blobs that are read at once
MAX_SHOWN = 100  # problems that the metadata itself lists
KIND = "workspace"
SHOWN = ("snapshot", "restoring")  # kinds of record that hold a state of the directory

RecordKind = Literal["snapshot", "part", "restoring", "restored"]


class RestoreIntent(msgspec.Struct, frozen=True):
    """A restore in progress: enough to finish it, or to take it back."""

    steps: list[tuple[bytes, tuple[int, int, int, bytes] | None, tuple[int, int, int, bytes] | None]]
    target: bytes  #: the tree that is wanted
    snapshot: str  #: the snapshot that is wanted
    undoes: str | None  #: the restore that this one takes back
    move: dict[str, Any] | None  #: the conversation's head, and where it shall go

    @property
    def ops(self) -> list[Op]:
        return [
            Op(path, None if old is None else TreeEntry(*old), None if new is None else TreeEntry(*new))
            for path, old, new in self.steps
        ]


class Record(msgspec.Struct, frozen=True):
    """One entry of the log."""

    id: str
    kind: RecordKind
    tree: bytes
    created_at: datetime
    label: str | None
    files: int
    size: int
    root: str
    of: str | None = None  #: restoring, restored: which snapshot
    safety: str | None = None  #: restored: the record that holds the state before
    undoes: str | None = None  #: restored: the restore that was taken back
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
        self._thread: Thread[Any] = Thread(context, thread, kind=KIND)
        self._frames = context.frames.compressing(LEVEL)
        self._trees: dict[bytes, Tree] = {}
        self.name = thread

    # -- records ----------------------------------------------------------------------------------------------------

    async def tip(self) -> Record | None:
        """The newest record."""
        checkpoint = await self._thread.head()
        return None if checkpoint is None else _record(checkpoint)

    async def records(self) -> list[Record]:
        """All records, oldest first."""
        return [_record(checkpoint) for checkpoint in await self._thread.history(all=True)]

    async def last(self, tip: Record | None) -> Record | None:
        """The newest record that says what the directory was."""
        if tip is None or tip.kind != "part":
            return tip
        return next((record for record in reversed(await self.records()) if record.kind != "part"), None)

    async def find(self, at: Any) -> Record:
        """The snapshot that `at` names: a Snapshot, its id or a unique prefix of it, or a Checkpoint's `files`."""
        if isinstance(at, Snapshot):
            at = at.id
        elif isinstance(at, Checkpoint):
            at = at.files
        if isinstance(at, str):
            at = at.partition("@")[0]
        elif at is None:
            raise NoCheckpoint(f"that checkpoint has no file snapshot of {self.name!r}: save it with files=workspace")
        record = _record(await self._thread.get(at))
        if record.kind not in SHOWN:
            raise CheckpointNotFound(self.name, at, "it is no snapshot; list them with snapshots()")
        return record

    async def state(self, record: Record) -> dict[str, Any]:
        """What only a restore needs: "withheld" paths, and the "journal"."""
        state = await self._thread.load(record.id)
        return dict(state)

    async def journal(self, record: Record) -> RestoreIntent:
        """The journal of a restore in progress."""
        where = f"the journal of restore {record.id}"
        try:
            journal = msgspec.msgpack.decode((await self.state(record))["journal"], type=RestoreIntent)
        except (msgspec.DecodeError, KeyError) as error:
            raise Corrupt(where, str(error)) from error
        for path, _, _ in journal.steps:
            for name in path.split(b"/"):
                trees.check_name(name, where)
        return journal

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
        journal: RestoreIntent | None = None,
        blobs: Mapping[bytes, bytes],
    ) -> Record:
        """Add a record and its (framed) blobs in one commit; `Conflict` if `after` is not the newest any more."""
        state: dict[str, Any] = {"tree": tree, "withheld": sorted(withheld)}
        if journal is not None:
            state["journal"] = msgspec.msgpack.encode(journal)
        custom = {"kind": kind, "tree": tree.hex(), **facts}

        def plan(planner: Planner) -> PlannedRow:
            planned = planner.replace(state)
            return msgspec.structs.replace(planned, framed=dict(blobs))

        said = Facts.check(self._context.values, label, tags, custom, None, None)
        expect = None if after is None else after.id
        return _record(await self._thread.save_plan(plan, said, expect=expect, compare_lists=True))

    # -- blobs ------------------------------------------------------------------------------------------------------

    def name_of(self, content: bytes) -> bytes:
        """The name of a blob."""
        return self._context.frames.blob_id(content)

    def wrap(self, name: bytes, content: bytes) -> bytes:
        """A blob as the engine keeps it. May be called from any thread."""
        return self._frames.wrap(content, place_of(name))

    def wrap_all(self, names: Sequence[bytes], contents: Sequence[bytes]) -> list[bytes]:
        """Blobs as the engine keeps them. May be called from any thread."""
        return self._frames.wrap_all(contents, map(place_of, names))

    async def put(self, blobs: Mapping[bytes, bytes], after: Record | None, root: str) -> Record:
        """Write framed blobs ahead of the snapshot that will point at them. A record of their own holds on to them,
        and to the part before it, so that no sweep can take them meanwhile."""
        before = after.tree if after is not None and after.kind == "part" else None
        data = trees.encode_list(sorted(blobs), before)
        name = self.name_of(data)
        facts = {"files": 0, "bytes": 0, "root": root}
        held = {**blobs, name: self.wrap(name, data)}
        return await self.append("part", name, after=after, facts=facts, blobs=held)

    async def blobs(self, names: Iterable[bytes]) -> dict[bytes, bytes]:
        """Contents by name, each checked against it; `Corrupt` if one is missing."""
        return {name: self.unwrap(name, data) for name, data in (await self.fetch(names)).items()}

    async def fetch(self, names: Iterable[bytes]) -> dict[bytes, bytes]:
        """Blobs as the engine keeps them; `Corrupt` if one is missing."""
        wanted = sorted(set(names))  # the order of an engine's index
        found = await self._context.engine.blobs(self.name, wanted) if wanted else {}
        if len(found) < len(wanted):
            lacking = next(name for name in wanted if name not in found)
            raise Corrupt(f"blob {lacking.hex()}", "it is missing, but a snapshot points at it")
        return found

    def unwrap(self, name: bytes, data: bytes) -> bytes:
        """The content of a blob that was fetched, checked against its name. May be called from any thread."""
        return self._frames.unwrap_blob(data, name, place_of(name))

    async def lost(self) -> set[bytes]:
        """Blobs that a repair has set aside, and that nobody has written again."""
        engine = self._context.engine
        if not await engine.blobs(self.name, [ASIDE]):
            return set()
        lost: set[bytes] = set()
        after = ASIDE
        while after.startswith(ASIDE):
            page = [name for name, _ in await engine.blob_ids(self.name, after=after, limit=PAGE)]
            lost |= {name.removeprefix(ASIDE) for name in page if name.startswith(ASIDE)}
            after = page[-1] if page else b""
        return lost - (await engine.blobs(self.name, sorted(lost))).keys()

    async def trees(self, names: Iterable[bytes]) -> dict[bytes, Tree]:
        """Trees by name, every entry of them checked."""
        wanted = set(names)
        found = {name: tree for name in wanted if (tree := self._trees.get(name)) is not None}
        for name, data in (await self.blobs(wanted - found.keys())).items():
            found[name] = trees.decode(data, f"tree {name.hex()}")
        self.learn(found)
        return found

    def learn(self, found: Mapping[bytes, Tree]) -> None:
        """Keep trees that are in the store in memory. Nobody may change them."""
        if len(self._trees) + len(found) > MAX_TREES:
            self._trees = {}
        self._trees.update(found)

    async def contents(self, entries: Iterable[TreeEntry]) -> dict[bytes, bytes]:
        """The bytes of files, by what their entries point at."""
        files = {entry.ref: entry for entry in entries}
        opened = await self.open(files.values())
        return {ref: opened.whole(entry) for ref, entry in files.items()}

    async def open(self, entries: Iterable[TreeEntry]) -> BlobReader:
        """Fetch the blobs of files."""
        files = {entry.ref: entry for entry in entries}
        found = await self.fetch(files)
        pieces = {
            ref: trees.decode_pieces(self.unwrap(ref, found[ref]), entry.size, place_of(ref))
            for ref, entry in files.items()
            if entry.kind == PIECES
        }
        found |= await self.fetch(name for listed in pieces.values() for name in listed.refs)
        return BlobReader(self._frames, found, pieces)

    async def pieces(self, entries: Iterable[TreeEntry]) -> set[bytes]:
        """The pieces of large files."""
        large = {entry.ref: entry for entry in entries if entry.kind == PIECES}
        lists = await self.blobs(large)
        return {
            name
            for ref, data in lists.items()
            for name in trees.decode_pieces(data, large[ref].size, place_of(ref)).refs
        }


async def follow(context: Context, thread: str, living: Iterable[HistoryStep]) -> set[bytes]:
    """Every blob that a workspace's living records need: what a sweep of its lineage must keep."""
    log = Journal(context, thread)
    customs = [
        context.values.decode(seen.meta.custom, f"a record of {thread!r}") for seen in living if seen.meta.custom
    ]
    keep: set[bytes] = set()
    # A restore in progress needs two trees: the one it started from and the one it goes to.
    level = {bytes.fromhex(custom[key]) for custom in customs for key in ("tree", "target") if key in custom}
    large: dict[bytes, TreeEntry] = {}
    while level:
        keep |= level
        below: set[bytes] = set()
        for tree in (await log.trees(level)).values():
            for entry in tree.values():
                if entry.kind == DIR and entry.ref not in keep:
                    below.add(entry.ref)
                elif entry.kind == PIECES:
                    large[entry.ref] = entry
                if entry.kind in (FILE, PIECES):
                    keep.add(entry.ref)
        level = below
    return keep | await log.pieces(large.values())


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
            root=custom["root"],
            of=custom.get("of"),
            safety=custom.get("safety"),
            undoes=custom.get("undoes"),
            workspace=checkpoint.thread_id,
            flagged=tuple(Skipped(path, reason) for path, reason in custom.get("flagged", ())),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(f"snapshot {checkpoint.id}", f"its metadata is not a workspace's: {error}") from error
