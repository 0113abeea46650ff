"""Trees: one small record per directory, named by its hash, pointing at the records below it.

Two directories with the same hash are the same down to the last bit, so a comparison descends only where hashes
differ and an unchanged directory is never written again. A tree comes from the store and may have been written by
anybody: `decode` refuses every name that could lead out of the root or into version control.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from backtrail.errors import Corrupt, UnsafePath, UnsupportedFormat

FILE, PIECES, LINK, DIR = range(4)
VERSION = 1
MODES = 0o777  # set-user-id, set-group-id and sticky bits are never kept and never made again
MAX_DEPTH = 256
MAX_ENTRIES = 5_000_000  # in one comparison: a small tree can name itself many times over
MAX_LINK = 4096
MAX_NAME = 255
NOWHERE = frozenset({b"", b".", b".."})  # names that are no entry of a directory

#: Where version control keeps its own state. Never read, never written, in any spelling that a file system may fold.
CONTROL = frozenset({b".git", b".hg", b".svn", b".bzr", b".jj", b".sl", b".pijul", b"_darcs"})


class TreeEntry(NamedTuple):
    """One name in a directory."""

    kind: int
    mode: int  #: permission bits; 0 for a link
    size: int  #: bytes of a file
    ref: bytes  #: the blob of a file, the list of pieces of a large one, the tree of a directory; a link's target


Tree = dict[bytes, TreeEntry]
Read = Callable[[Iterable[bytes]], Awaitable[Mapping[bytes, Tree]]]


class _Wire(msgspec.Struct, array_like=True, frozen=True):
    version: int
    names: list[bytes]
    kinds: list[int]  # kind << 12 | mode
    sizes: list[int]
    refs: list[bytes]


class Pieces(msgspec.Struct, array_like=True, frozen=True):
    """The pieces of a large file, in order."""

    version: int
    sizes: list[int]
    refs: list[bytes]  #: a blob each


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Wire)
_decode_pieces = msgspec.msgpack.Decoder(Pieces)

EMPTY = _encode(_Wire(VERSION, [], [], [], []))


def encode(tree: Tree) -> bytes:
    """The one encoding of a tree: by columns, in the order of the names' bytes."""
    names = sorted(tree)
    entries = [tree[name] for name in names]
    return _encode(
        _Wire(
            VERSION,
            names,
            [entry.kind << 12 | entry.mode for entry in entries],
            [entry.size for entry in entries],
            [entry.ref for entry in entries],
        )
    )


def encode_list(refs: Sequence[bytes], before: bytes | None) -> bytes:
    """A tree that only holds on to blobs, under numbers, and to the tree `before` it."""
    names = [b"%08d" % number for number in range(len(refs))]
    kinds, sizes = [FILE << 12] * len(refs), [0] * len(refs)
    if before is not None:
        return _encode(_Wire(VERSION, [*names, b"before"], [*kinds, DIR << 12], [*sizes, 0], [*refs, before]))
    return _encode(_Wire(VERSION, names, kinds, sizes, list(refs)))


def decode(data: bytes, where: str) -> Tree:
    """The tree in `data`; `UnsafePath` if any name in it may not be written to a directory."""
    try:
        wire = _decode.decode(data)
    except msgspec.DecodeError as error:
        raise Corrupt(where, f"not a tree: {error}") from error
    _check_version(wire.version, where)
    if not len(wire.names) == len(wire.kinds) == len(wire.sizes) == len(wire.refs):
        raise Corrupt(where, "its columns differ in length")
    if not _plain(wire.names):
        for name in wire.names:
            check_name(name, where)
    last = b""
    tree: Tree = {}
    for name, kind, size, ref in zip(wire.names, wire.kinds, wire.sizes, wire.refs, strict=True):
        if name <= last:
            raise UnsafePath(f"{where} names {name!r} twice or out of order; nothing was written")
        last = name
        entry = TreeEntry(kind >> 12, kind & MODES, size, ref)
        if not FILE <= entry.kind <= DIR or size < 0:
            raise Corrupt(where, f"entry {name!r} is of no known kind")
        if entry.kind == LINK:
            if not 0 < len(ref) <= MAX_LINK or b"\0" in ref:
                raise UnsafePath(f"{where}: the target of link {name!r} is not a path; nothing was written")
        elif len(ref) != 32:
            raise Corrupt(where, f"entry {name!r} points at no blob")
        tree[name] = entry
    return tree


def _plain(names: list[bytes]) -> bool:
    """Whether `check_name` refuses none of these, found out by a few questions about all of them."""
    joined = b"/".join(names)
    return (
        joined.count(b"/") == max(len(names) - 1, 0)
        and b"\0" not in joined
        and max(map(len, names), default=0) <= MAX_NAME
        and NOWHERE.isdisjoint(names)
        and CONTROL.isdisjoint(joined.lower().split(b"/"))
    )


def check_name(name: bytes, where: str) -> None:
    """Refuse a name that is no plain name of one file."""
    if name in NOWHERE or b"/" in name or b"\0" in name or len(name) > MAX_NAME:
        raise UnsafePath(f"{where} holds the name {name!r}, which could lead out of the root; nothing was written")
    if is_control(name):
        raise UnsafePath(f"{where} holds {name!r}, which belongs to version control; nothing was written")


def is_control(name: bytes) -> bool:
    """Whether a name is version control's own, also as a file system that ignores case would see it."""
    return name.lower() in CONTROL


def encode_pieces(sizes: list[int], refs: list[bytes]) -> bytes:
    """The list of pieces of a large file."""
    return _encode(Pieces(VERSION, sizes, refs))


def decode_pieces(data: bytes, size: int, where: str) -> Pieces:
    """The list in `data`; together its pieces have `size` bytes."""
    try:
        wire = _decode_pieces.decode(data)
    except msgspec.DecodeError as error:
        raise Corrupt(where, f"not a list of pieces: {error}") from error
    _check_version(wire.version, where)
    if len(wire.sizes) != len(wire.refs) or sum(wire.sizes) != size or any(len(ref) != 32 for ref in wire.refs):
        raise Corrupt(where, "its pieces do not make up the file")
    return wire


def _check_version(version: int, where: str) -> None:
    if version != VERSION:
        raise UnsupportedFormat(
            f"{where} is in format {version}, this backtrail reads {VERSION}: use a newer backtrail"
        )


class Op(NamedTuple):
    """One path that differs: what is there, and what should be. A directory's `ref` plays no part in this."""

    path: bytes
    old: TreeEntry | None
    new: TreeEntry | None


async def compare(old: bytes | None, new: bytes | None, read: Read) -> list[Op]:
    """Every path at which the trees `old` and `new` differ, parents before children. None is no directory at all."""
    ops: list[Op] = []
    level: list[tuple[bytes, bytes | None, bytes | None]] = [(b"", old, new)] if old != new else []
    for _ in range(MAX_DEPTH):
        if not level:
            return sorted(ops)
        trees = await read({ref for _, one, other in level for ref in (one, other) if ref is not None})
        below: list[tuple[bytes, bytes | None, bytes | None]] = []
        for prefix, one, other in level:
            before: Tree = {} if one is None else trees[one]
            after: Tree = {} if other is None else trees[other]
            for name in before.keys() | after.keys():
                was, will = before.get(name), after.get(name)
                if was == will:
                    continue
                path = prefix + name
                left = was.ref if was is not None and was.kind == DIR else None
                right = will.ref if will is not None and will.kind == DIR else None
                if left != right:
                    below.append((path + b"/", left, right))
                if left is None or right is None or was.mode != will.mode:  # type: ignore[union-attr]  # both are set
                    ops.append(Op(path, was, will))
        if len(ops) + len(below) > MAX_ENTRIES:
            raise UnsafePath(f"a tree unfolds to more than {MAX_ENTRIES} entries; nothing was written")
        level = below
    raise UnsafePath(f"a tree is nested deeper than {MAX_DEPTH} directories; nothing was written")
