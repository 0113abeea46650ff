"""The records of history and their bytes: metadata of a step, marks on it, and the note of a head.

Each is a msgpack array without trailing defaults, so that the common case is small and a later version can add fields
at the end.
"""

from __future__ import annotations

import datetime as dt
import struct
import time
from typing import Annotated, Any

import msgspec
from blake3 import blake3

from backtrail.encode.frame import Frames, describe_row
from backtrail.encode.planner import PlannedRow
from backtrail.encode.row_format import pack_root
from backtrail.encode.values import Values
from backtrail.engines.base import LAST_STEP, Branch, Head, Mark, NewRow, Position, Row, Step, next_version
from backtrail.engines.branch_origins import first_step
from backtrail.errors import DECODE_ERRORS, Corrupt
from backtrail.history.checkpoint_ids import uuid_text
from backtrail.history.run_status import base_kind
from backtrail.history.save_arguments import Facts
from backtrail.model import Checkpoint, ThreadInfo

_ENCODER = msgspec.msgpack.Encoder()
_EPOCH, _MICROSECOND = dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.timedelta(microseconds=1)
_HEAD_WORDS = struct.Struct("<QQQQQQ")
NO_DIGEST = bytes(16)  # stands for the row before a thread's first one
LAST_TIME = 253_402_300_799_999_999  # microseconds: the end of the year 9999, the last one that a datetime can have
MOST = 2**53  # bounds every count, size and version: no store of ours comes near it
MAX_FACTS = 4 << 20  # bytes of metadata; what a caller may give takes less
MAX_MOVES = 32  # rewinds and jumps that can be undone
_SHORT = 64 * 1024  # up to this many bytes, joining is faster than updating a digest twice


Time = Annotated[int, msgspec.Meta(ge=0, le=LAST_TIME)]
Number = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
StepNumber = Annotated[int, msgspec.Meta(ge=1, le=LAST_STEP)]


class Meta(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The metadata of a checkpoint at the time of its save."""

    created: Time  # microseconds since 1970
    parent: bytes | None
    size: Number
    written: Number
    body: bytes  # digest of root and payload as stored
    label: str | None = None
    tags: tuple[str, ...] = ()
    custom: bytes = b""  # encoded dict
    files: str | None = None


NO_META = Meta(0, None, 0, 0, b"")  # stands for metadata that is damaged


class MarkBody(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A later change of a checkpoint: it replaces label, tags and custom, or deletes the checkpoint. Or, `labelled`, no
    change: a checkpoint that was saved with a label has such a mark, so that labels are found among the marks."""

    at: Time
    deleted: bool
    label: str | None
    tags: tuple[str, ...]
    custom: bytes
    duplicate: bool = False  # deleted because the same save exists twice
    labelled: bool = False
    generation: int = 0  # in which it was deleted


class Move(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A rewind that can be undone: the head went from `back` to `to`."""

    to: tuple[bytes, StepNumber]
    back: tuple[bytes, StepNumber]


class Undone(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What `redo` can do again: an undo went to `to` and left `back`. `moved`: it took back a move; else it took back
    saves, one or several in a row, of which `back` is the newest."""

    to: Position
    back: Position
    moved: bool


class Note(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The part of a head that engines do not read. `pinned`: the head was moved here; the next save starts a branch."""

    checkpoint: bytes  # the id of the one at the head
    pinned: bool = False
    moves: tuple[Move, ...] = ()
    custom: bytes = b""  # for views: a small encoded dict
    retention: bytes = b""  # the thread's own policy, if it has one
    dictionary: bytes = b""  # the name of the dictionary that new payloads are compressed with
    undone: tuple[Undone, ...] = ()  # the last one can be done again first; empty after any other change of the head


_META = msgspec.msgpack.Decoder(Meta)
_MARK = msgspec.msgpack.Decoder(tuple[bytes, int, MarkBody])
_NOTE = msgspec.msgpack.Decoder(Note)


clock = time.time_ns  # the one clock of history


def now_micros() -> int:
    """Microseconds since 1970."""
    return clock() // 1000


def pack_meta(meta: Meta) -> bytes:
    """The bytes of metadata, without trailing defaults."""
    fields: list[Any] = [meta.created, meta.parent, meta.size, meta.written, meta.body]
    extras = [meta.label, meta.tags, meta.custom, meta.files]
    if any(extras):
        while not extras[-1]:
            extras.pop()
        fields += extras
    return _ENCODER.encode(fields)


def unpack_meta(data: bytes, where: str) -> Meta:
    """The metadata that `pack_meta` packed, or `Corrupt`."""
    try:
        return _META.decode(data)
    except (*DECODE_ERRORS, ValueError) as error:
        raise Corrupt(where, f"its metadata makes no sense: {error}") from error


def seal_mark(frames: Frames, branch: bytes, step: int, mark: MarkBody) -> Mark:
    """A mark, sealed for a commit. It names its row, so that it is told from the mark of another one."""
    data = _ENCODER.encode((branch, step, mark))
    return Mark(branch, step, frames.wrap(data, _mark_of(branch, step)))


def _allow_facts(size: int) -> None:
    """A history unpacks the metadata of all its checkpoints, so none may be large."""
    if size > MAX_FACTS:
        raise Corrupt("the metadata of a checkpoint", f"it unpacks to {size:,} bytes")


def open_mark(frames: Frames, branch: bytes, step: int, data: bytes) -> MarkBody:
    """The mark that `seal_mark` sealed for this row, or `Corrupt`."""
    content = frames.unwrap(data, _mark_of(branch, step), _allow_facts)
    try:
        of_branch, of_step, mark = _MARK.decode(content)
    except (*DECODE_ERRORS, ValueError) as error:
        raise Corrupt(describe_row(branch, step), f"its mark makes no sense: {error}") from error
    if (of_branch, of_step) != (branch, step):
        raise Corrupt(describe_row(branch, step), f"its mark is that of {describe_row(of_branch, of_step)}")
    return mark


def _mark_of(branch: bytes, step: int) -> str:
    return f"{describe_row(branch, step)}: mark"


def meta_of(where: str, id: bytes) -> str:
    """The record of a row's metadata. Sealed metadata is bound to the checkpoint's id, which is beside it."""
    return f"{where}: meta of {id.hex()}"


def deletion(frames: Frames, generation: int, branch: bytes, step: int, now: int) -> Mark:
    """The mark that deletes a checkpoint, in this generation of a mirror."""
    return seal_mark(frames, branch, step, MarkBody(now, True, None, (), b"", generation=generation))


def label_marks(frames: Frames, branch: bytes, step: int, meta: Meta) -> list[Mark]:
    """The mark of a row that was saved with a label; none for any other."""
    if meta.label is None:
        return []
    return [seal_mark(frames, branch, step, MarkBody(meta.created, False, None, (), b"", labelled=True))]


def body_digest(root: bytes, payload: bytes) -> bytes:
    """The digest of root and payload as they are stored."""
    if len(payload) < _SHORT:
        return blake3(root + payload).digest(16)
    return blake3(root).update(payload).digest(16)


def chain(previous: bytes, id: bytes, meta: bytes) -> bytes:
    """The digest of a row: over the row before it, its own id and metadata, which holds the digest of its body."""
    return blake3(previous + id + meta).digest(16)


# -- rows --------------------------------------------------------------------------------------------------------------


def seal_row(
    frames: Frames,
    position: Position,
    id: bytes,
    previous: bytes,
    parent: bytes | None,
    now: int,
    planned: PlannedRow,
    facts: Facts,
    dictionary: bytes = b"",
) -> tuple[NewRow, dict[bytes, bytes], Meta]:
    """A planned row as the bytes that an engine gets, chained to the digest `previous`; its blobs; its metadata."""
    branch, step = position
    root_content = pack_root(planned.root, branch)
    wrap, where = frames.wrap, describe_row(branch, step)
    root = wrap(root_content, f"{where}: root")
    payload = wrap(planned.payload, f"{where}: payload", dictionary)
    written = len(root) + len(payload)
    blobs: dict[bytes, bytes] = {}
    if planned.blobs or planned.framed:
        blobs = {name: wrap(data, f"blob {name.hex()}") for name, data in planned.blobs.items()} | planned.framed
        written += sum(map(len, blobs.values()))
    body = body_digest(root, payload)
    size = planned.root.tree.size
    meta = Meta(now, parent, size, written, body, facts.label, facts.tags, facts.custom, facts.files)
    packed = wrap(pack_meta(meta), meta_of(where, id))
    return NewRow(branch, step, id, packed, chain(previous, id, packed), root, payload), blobs, meta


# -- branches ----------------------------------------------------------------------------------------------------------


def start_branch(
    frames: Frames,
    id: bytes,
    lineage: str,
    thread: str,
    owner: bytes,
    origin: Position | None = None,
    digest: bytes = NO_DIGEST,
) -> Branch:
    """The record of a new branch after the row at `origin`, which has this digest."""
    return seal_branch(frames, Branch(id, lineage, thread, owner, origin), digest)


def seal_branch(frames: Frames, branch: Branch, digest: bytes) -> Branch:
    """The record, sealed: its seal holds the digest of the row at its origin, and covers all other fields."""
    return msgspec.structs.replace(branch, seal=frames.bind(digest, _branch_facts(branch)))


def open_branch(frames: Frames, branch: Branch) -> bytes:
    """The digest of the row at a branch's origin; `Corrupt` if the branch is not the one that it was sealed as."""
    where = f"branch {branch.id.hex()}"
    if not 0 < first_step(branch) <= LAST_STEP:
        raise Corrupt(where, "it begins at a step that no row can have")
    digest = frames.open_bound(branch.seal, _branch_facts(branch), where)
    if len(digest) != len(NO_DIGEST):
        raise Corrupt(where, "its seal makes no sense")
    return digest


def first_link(branch: Branch, digest: bytes) -> bytes:
    """What the first row of a branch is chained to: the record of the branch, and the row before it."""
    return blake3(_branch_facts(branch) + digest).digest(16)


def _branch_facts(branch: Branch) -> bytes:
    """The bytes of a branch without its seal. No head has such bytes: a name does not begin with NUL."""
    id, step = branch.origin or (b"", 0)
    text = f"\0branch\0{branch.lineage}\0{branch.thread}\0".encode()
    return b"".join((text, branch.id, branch.owner, id, step.to_bytes(8, "little")))


# -- heads -------------------------------------------------------------------------------------------------------------


def seal_note(frames: Frames, head: Head, note: Note) -> bytes:
    """The bytes of a head's note. Its checksum covers the whole head, so that a damaged position is found."""
    more = note.pinned or note.moves or note.custom or note.retention or note.dictionary or note.undone
    content = _ENCODER.encode(note if more else (note.checkpoint,))
    return frames.bind(content, _facts(head))


def open_note(frames: Frames, head: Head) -> Note:
    """The note of a head; `Corrupt` if the head is not the one that it was sealed with."""
    if not _within_bounds(head):
        raise Corrupt(f"the head of thread {head.thread!r}", "a number in it is out of bounds")
    content = frames.open_bound(head.note, _facts(head), f"the head of thread {head.thread!r}")
    try:
        return _NOTE.decode(content)
    except (*DECODE_ERRORS, ValueError) as error:
        raise Corrupt(f"the head of thread {head.thread!r}", str(error)) from error


def _within_bounds(head: Head) -> bool:
    try:
        return (
            0 < head.step <= LAST_STEP
            and 0 < head.version <= MOST
            and 0 <= head.created <= LAST_TIME
            and 0 <= head.updated <= LAST_TIME
            and 0 <= head.count <= MOST
            and 0 <= head.size <= MOST
        )
    except TypeError:  # a damaged database may return anything
        return False


def _facts(head: Head) -> bytes:
    """The bytes of a head without its note."""
    try:
        words = _HEAD_WORDS.pack(head.step, head.version, head.created, head.updated, head.count, head.size)
        text = f"{head.thread}\0{head.lineage}\0{head.kind}\0".encode()
        return b"".join((text, head.owner, head.branch, words))
    except (struct.error, TypeError, ValueError) as error:
        raise Corrupt(f"the head of thread {head.thread!r}", f"a number in it is invalid: {error}") from error


def with_note(frames: Frames, head: Head, note: Note) -> Head:
    """The head, carrying this note. None is made that a reader would refuse; these are the numbers that grow."""
    if head.step > LAST_STEP or head.version > MOST or head.updated > LAST_TIME:
        raise Corrupt(f"the head of thread {head.thread!r}", "a number in it is out of bounds, or would be after this")
    return msgspec.structs.replace(head, note=seal_note(frames, head, note))


# Each of these takes the generation in which the head is changed: `Context.generation`.


def first_head(frames: Frames, generation: int, branch: Branch, kind: str, now: int, size: int, note: Note) -> Head:
    """The head of a new thread, at the first step of its first branch."""
    version = next_version(0, generation)
    head = Head(branch.thread, branch.lineage, branch.owner, branch.id, 1, version, kind, now, now, 1, size)
    return with_note(frames, head, note)


def next_head(
    frames: Frames,
    generation: int,
    old: Head,
    position: Position,
    kind: str,
    now: int,
    size: int,
    note: Note,
    removed: int = 0,
) -> Head:
    """The head after a save at `position` that removed `removed` checkpoints."""
    branch, step = position
    version, count = next_version(old.version, generation), old.count + 1 - removed
    head = Head(old.thread, old.lineage, old.owner, branch, step, version, kind, old.created, now, count, size)
    return with_note(frames, head, note)


def bump_version(frames: Frames, generation: int, head: Head, now: int, **changes: Any) -> Head:
    """The same head, one version on, with these fields changed."""
    return move_head(frames, generation, head, open_note(frames, head), head.position, now, **changes)


def move_head(
    frames: Frames, generation: int, head: Head, note: Note, position: Position, now: int, **changes: Any
) -> Head:
    """The head at another position, one version on, with this note and these fields changed."""
    (branch, step), version = position, next_version(head.version, generation)
    updated = max(now, head.updated + 1)
    moved = msgspec.structs.replace(head, branch=branch, step=step, version=version, updated=updated, **changes)
    return with_note(frames, moved, note)


# -- for users ---------------------------------------------------------------------------------------------------------


def to_datetime(micros: int) -> dt.datetime:
    """A time from microseconds since 1970."""
    return _EPOCH + _MICROSECOND * micros  # half the time of making a timedelta by name


def read_step(frames: Frames, branch: bytes, step: Step | Row) -> tuple[Meta, MarkBody | None]:
    """The metadata of a step and its mark, if that changes it."""
    where = describe_row(branch, step.step)
    if type(step.id) is not bytes or len(step.id) != 16:  # a damaged database may return anything
        raise Corrupt(where, "its id is not 16 bytes")
    meta = unpack_meta(frames.unwrap(step.meta, meta_of(where, step.id), _allow_facts), where)
    mark = None if step.mark is None else open_mark(frames, branch, step.step, step.mark)
    return meta, None if mark is None or mark.labelled else mark


def checkpoint(
    values: Values, thread: str, id: bytes, step: int, meta: Meta, mark: MarkBody | None, parent: bytes | None
) -> Checkpoint:
    """The checkpoint of a step, for users."""
    facts: Meta | MarkBody = mark if mark is not None else meta
    custom: dict[str, Any] = values.decode(facts.custom, f"checkpoint {uuid_text(id)}") if facts.custom else {}
    return Checkpoint(
        id=uuid_text(id),
        thread_id=thread,
        parent_id=uuid_text(parent) if parent is not None else None,
        step=step,
        created_at=to_datetime(meta.created),
        label=facts.label,
        tags=facts.tags,
        custom=custom,
        size=meta.size,
        written=meta.written,
        files=meta.files,
    )


def thread_info(frames: Frames, head: Head) -> ThreadInfo:
    """A thread, for listings. One whose head is damaged is listed as such."""
    try:
        note = open_note(frames, head)
    except Corrupt as error:
        return damaged_info(head, error)
    return ThreadInfo(
        id=head.thread,
        kind=base_kind(head.kind),
        head=uuid_text(note.checkpoint),
        step=head.step,
        count=head.count,
        created_at=to_datetime(head.created),
        updated_at=to_datetime(head.updated),
        size=head.size,
        version=head.version,
    )


def damaged_info(head: Head, damage: Corrupt) -> ThreadInfo:
    """A damaged thread, for listings: of its head, only what could be true is shown."""

    def number(value: object, most: int) -> int:
        return value if isinstance(value, int) and 0 <= value <= most else 0

    return ThreadInfo(
        id=head.thread,
        kind=base_kind(str(head.kind)),
        head="",
        step=number(head.step, LAST_STEP),
        count=number(head.count, MOST),
        created_at=to_datetime(number(head.created, LAST_TIME)),
        updated_at=to_datetime(number(head.updated, LAST_TIME)),
        size=number(head.size, MOST),
        damage=f"{damage.where}: {damage.reason}",
    )
