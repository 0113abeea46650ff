"""The records of history and their bytes: metadata of a step, what was said about it later, and a head's note.

Each is a msgpack array whose trailing defaults are left away, so that the common case is small and a later version can
add fields at the end.
"""

from __future__ import annotations

import datetime as dt
import os
import struct
import time
from typing import Any

import msgspec
from blake3 import blake3

from backtrail.encode.frame import Frames, describe_row
from backtrail.encode.values import Values
from backtrail.engines.base import Head, Mark, Row, Step
from backtrail.errors import Corrupt
from backtrail.model import Checkpoint, ThreadInfo

_ENCODER = msgspec.msgpack.Encoder()
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_HEAD_WORDS = struct.Struct("<QQQQQQ")
_ID_FRONT = struct.Struct(">QB")
NO_DIGEST = bytes(16)
_SHORT = 64 * 1024  # bytes that are copied faster than a digest is fed twice


class Meta(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is known of a checkpoint when it is written."""

    created: int  # microseconds since 1970
    parent: bytes | None
    size: int
    written: int
    body: bytes  # digest of root and payload as stored
    label: str | None = None
    tags: tuple[str, ...] = ()
    custom: bytes = b""  # encoded dict
    files: str | None = None


class MarkBody(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What was said about a checkpoint later: it replaces label, tags and custom, or takes the checkpoint away."""

    at: int
    deleted: bool
    label: str | None
    tags: tuple[str, ...]
    custom: bytes
    again: bool = False  # it was taken away because the same save is there twice


class Move(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A rewind that can be undone: the head went from one place to another."""

    to: tuple[bytes, int]
    back: tuple[bytes, int]


class Note(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a head carries besides its position. `pinned`: it was put where it stands, the next save starts a branch."""

    checkpoint: bytes
    pinned: bool = False
    moves: tuple[Move, ...] = ()
    custom: bytes = b""  # for views: a small encoded dict
    retention: bytes = b""  # the thread's own policy, where it has one
    dictionary: bytes = b""  # the name of the dictionary that new payloads are compressed with


_META = msgspec.msgpack.Decoder(Meta)
_REMARK = msgspec.msgpack.Decoder(MarkBody)
_NOTE = msgspec.msgpack.Decoder(Note)


clock = time.time_ns  # the one clock of history


def now_micros() -> int:
    """Microseconds since 1970."""
    return clock() // 1000


def new_id(created: int) -> bytes:
    """A UUIDv7: the time to a quarter of a microsecond, then 62 random bits."""
    milli, micro = divmod(created, 1000)
    tail = os.urandom(8)
    return _ID_FRONT.pack(milli << 16 | 0x7000 | micro << 2, tail[0] & 0x3F | 0x80) + tail[1:]


def uuid_text(data: bytes) -> str:
    """The usual text of 16 bytes."""
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def pack_meta(meta: Meta) -> bytes:
    """Trailing defaults are left away."""
    fields: list[Any] = [meta.created, meta.parent, meta.size, meta.written, meta.body]
    extras = [meta.label, meta.tags, meta.custom, meta.files]
    if any(extras):
        while not extras[-1]:
            extras.pop()
        fields += extras
    return _ENCODER.encode(fields)


def unpack_meta(data: bytes, where: str) -> Meta:
    try:
        return _META.decode(data)
    except (msgspec.DecodeError, ValueError) as error:
        raise Corrupt(where, f"its metadata makes no sense: {error}") from error


def pack_mark_body(remark: MarkBody) -> bytes:
    return _ENCODER.encode(remark)


def unpack_mark_body(data: bytes, where: str) -> MarkBody:
    try:
        return _REMARK.decode(data)
    except (msgspec.DecodeError, ValueError) as error:
        raise Corrupt(where, f"its mark makes no sense: {error}") from error


def seal_mark(frames: Frames, branch: bytes, step: int, remark: MarkBody) -> Mark:
    """A remark as a commit carries it."""
    return Mark(branch, step, frames.wrap(pack_mark_body(remark), f"{describe_row(branch, step)}: mark"))


def removal(frames: Frames, branch: bytes, step: int, now: int) -> Mark:
    """The mark that takes a checkpoint away."""
    return seal_mark(frames, branch, step, MarkBody(now, True, None, (), b""))


def body_digest(root: bytes, payload: bytes) -> bytes:
    if len(payload) < _SHORT:
        return blake3(root + payload).digest(16)
    return blake3(root).update(payload).digest(16)


def chain(previous: bytes, id: bytes, meta: bytes) -> bytes:
    """The digest of a row: over the row before it, its own id and metadata, which holds the digest of its body."""
    return blake3(previous + id + meta).digest(16)


# -- heads -------------------------------------------------------------------------------------------------------------


def seal_note(frames: Frames, head: Head, note: Note) -> bytes:
    """The bytes of a head's note, vouched for together with the whole head: a damaged position is found."""
    more = note.pinned or note.moves or note.custom or note.retention or note.dictionary
    content = _ENCODER.encode(note if more else (note.checkpoint,))
    return frames.vouch(content, _facts(head))


def open_note(frames: Frames, head: Head) -> Note:
    content = frames.vouched(head.note, _facts(head), f"the head of thread {head.thread!r}")
    try:
        return _NOTE.decode(content)
    except (msgspec.DecodeError, ValueError) as error:
        raise Corrupt(f"the head of thread {head.thread!r}", str(error)) from error


def _facts(head: Head) -> bytes:
    """Everything that a head says besides its note."""
    try:
        words = _HEAD_WORDS.pack(head.step, head.version, head.created, head.updated, head.count, head.size)
        text = f"{head.thread}\0{head.lineage}\0{head.kind}\0".encode()
        return b"".join((text, head.owner, head.branch, words))
    except (struct.error, TypeError, ValueError) as error:
        raise Corrupt(f"the head of thread {head.thread!r}", f"a number in it is none: {error}") from error


def touch(frames: Frames, head: Head, now: int, **changes: Any) -> Head:
    """The same head, one version on."""
    note = open_note(frames, head)
    fields = {"version": head.version + 1, "updated": max(now, head.updated + 1), "note": b"", **changes}
    bare = msgspec.structs.replace(head, **fields)
    return msgspec.structs.replace(bare, note=seal_note(frames, bare, note))


# -- for users ---------------------------------------------------------------------------------------------------------


def moment(micros: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=micros)


def read_step(frames: Frames, branch: bytes, step: Step | Row) -> tuple[Meta, MarkBody | None]:
    """Metadata and remark of a step."""
    where = describe_row(branch, step.step)
    if type(step.id) is not bytes or len(step.id) != 16:  # a damaged database may hand out anything
        raise Corrupt(where, "its id is none")
    meta = unpack_meta(frames.unwrap(step.meta, f"{where}: meta"), where)
    if step.mark is None:
        return meta, None
    return meta, unpack_mark_body(frames.unwrap(step.mark, f"{where}: mark"), where)


def checkpoint(
    values: Values, thread: str, id: bytes, step: int, meta: Meta, remark: MarkBody | None, parent: bytes | None
) -> Checkpoint:
    """The checkpoint that a step is to a user."""
    said: Meta | MarkBody = remark if remark is not None else meta
    custom: dict[str, Any] = values.decode(said.custom, f"checkpoint {uuid_text(id)}") if said.custom else {}
    return Checkpoint(
        id=uuid_text(id),
        thread_id=thread,
        parent_id=uuid_text(parent) if parent is not None else None,
        step=step,
        created_at=moment(meta.created),
        label=said.label,
        tags=said.tags,
        custom=custom,
        size=meta.size,
        written=meta.written,
        files=meta.files,
    )


def thread_info(frames: Frames, head: Head) -> ThreadInfo:
    """The line of a listing."""
    return ThreadInfo(
        id=head.thread,
        kind=head.kind,
        head=uuid_text(open_note(frames, head).checkpoint),
        step=head.step,
        count=head.count,
        created_at=moment(head.created),
        updated_at=moment(head.updated),
        size=head.size,
    )
