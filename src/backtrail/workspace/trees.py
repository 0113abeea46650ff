"""Trees: one small record per directory, named by its hash, pointing at the records below it.

Two directories with the same hash are the same down to the last bit, so a comparison descends only where hashes differ
and an unchanged directory is never written again. A tree comes from the store and is untrusted: `decode` refuses every
name that is not safe to write.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from backtrail.errors import DECODE_ERRORS, Corrupt, UnsafePath, UnsupportedFormat
from backtrail.workspace.paths import check_names

FILE, PIECES, LINK, DIR = range(4)
VERSION = 1
MODES = 0o777  # set-user-id, set-group-id and sticky bits are neither kept nor restored
MAX_DEPTH = 256
MAX_ENTRIES = 5_000_000  # in one comparison: a small tree can contain another many times over
MAX_LINK = 4096


class TreeEntry(NamedTuple):
    """One item of a directory."""

    kind: int
    mode: int  #: permission bits; 0 for a link
    size: int  #: bytes of a file
    ref: bytes  #: the blob of a file, the list of pieces of a large one, the tree of a directory; a link's target


Tree = dict[bytes, TreeEntry]
ReadTrees = Callable[[Iterable[bytes]], Awaitable[Mapping[bytes, Tree]]]


class _EncodedTree(msgspec.Struct, array_like=True, frozen=True):
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
_decode = msgspec.msgpack.Decoder(_EncodedTree)
_decode_pieces = msgspec.msgpack.Decoder(Pieces)


def encode(tree: Tree) -> bytes:
    """The canonical encoding of a tree: by columns, sorted by name."""
    names = sorted(tree)
    entries = [tree[name] for name in names]
    return _encode(
        _EncodedTree(
            VERSION,
            names,
            [entry.kind << 12 | entry.mode for entry in entries],
            [entry.size for entry in entries],
            [entry.ref for entry in entries],
        )
    )


def encode_list(refs: Sequence[bytes], before: bytes | None) -> bytes:
    """A tree that only keeps blobs reachable, under numbers, and the tree `before` it."""
    names = [b"%08d" % number for number in range(len(refs))]
    kinds, sizes = [FILE << 12] * len(refs), [0] * len(refs)
    if before is not None:
        return _encode(_EncodedTree(VERSION, [*names, b"before"], [*kinds, DIR << 12], [*sizes, 0], [*refs, before]))
    return _encode(_EncodedTree(VERSION, names, kinds, sizes, list(refs)))


def decode(data: bytes, where: str) -> Tree:
    """Decode a tree; `UnsafePath` if any name in it is not safe to write to a directory."""
    try:
        encoded = _decode.decode(data)
    except DECODE_ERRORS as error:
        raise Corrupt(where, f"not a tree: {error}") from error
    _check_version(encoded.version, where)
    if not len(encoded.names) == len(encoded.kinds) == len(encoded.sizes) == len(encoded.refs):
        raise Corrupt(where, "its columns differ in length")
    check_names(encoded.names, where)
    last = b""
    tree: Tree = {}
    for name, kind, size, ref in zip(encoded.names, encoded.kinds, encoded.sizes, encoded.refs, strict=True):
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


def encode_pieces(sizes: list[int], refs: list[bytes]) -> bytes:
    """Encode the list of pieces of a large file."""
    return _encode(Pieces(VERSION, sizes, refs))


def decode_pieces(data: bytes, size: int, where: str) -> Pieces:
    """Decode a list of pieces, which must have `size` bytes together."""
    try:
        pieces = _decode_pieces.decode(data)
    except DECODE_ERRORS as error:
        raise Corrupt(where, f"not a list of pieces: {error}") from error
    _check_version(pieces.version, where)
    if len(pieces.sizes) != len(pieces.refs) or sum(pieces.sizes) != size or any(len(ref) != 32 for ref in pieces.refs):
        raise Corrupt(where, "its pieces do not make up the file")
    return pieces


def _check_version(version: int, where: str) -> None:
    if version != VERSION:
        raise UnsupportedFormat(
            f"{where} is in format {version}, this backtrail reads {VERSION}: use a newer backtrail"
        )


class Op(NamedTuple):
    """One path that differs: the entry that is there, and the one that should be. The `ref` of a directory is not
    compared: items below it have their own ops."""

    path: bytes
    old: TreeEntry | None
    new: TreeEntry | None


async def compare(old: bytes | None, new: bytes | None, read: ReadTrees) -> list[Op]:
    """Every path at which the trees `old` and `new` differ, parents before children. None means no directory."""
    ops: list[Op] = []
    level: list[tuple[bytes, bytes | None, bytes | None]] = [(b"", old, new)] if old != new else []
    for _ in range(MAX_DEPTH):
        if not level:
            return sorted(ops)
        trees = await read({ref for _, *refs in level for ref in refs if ref is not None})
        below: list[tuple[bytes, bytes | None, bytes | None]] = []
        for prefix, old, new in level:
            old_tree: Tree = {} if old is None else trees[old]
            new_tree: Tree = {} if new is None else trees[new]
            for name in old_tree.keys() | new_tree.keys():
                was, will = old_tree.get(name), new_tree.get(name)
                if was == will:
                    continue
                path = prefix + name
                old_dir = was.ref if was is not None and was.kind == DIR else None
                new_dir = will.ref if will is not None and will.kind == DIR else None
                if old_dir != new_dir:
                    below.append((path + b"/", old_dir, new_dir))
                if old_dir is None or new_dir is None or was.mode != will.mode:  # type: ignore[union-attr]  # both set
                    ops.append(Op(path, was, will))
        if len(ops) + len(below) > MAX_ENTRIES:
            raise UnsafePath(f"a tree unfolds to more than {MAX_ENTRIES} entries; nothing was written")
        level = below
    raise UnsafePath(f"a tree is nested deeper than {MAX_DEPTH} directories; nothing was written")
