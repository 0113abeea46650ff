"""The keys of a store on Redis, and the encoding of records in them.

A store is spread over a fixed number of *shards*, each of which is one hash slot: `<prefix>:{<shard>}:`. A plain server
has one shard, a cluster 64 by default. A lineage is kept entirely in the shard that its name hashes to, so a commit is
one script in one slot. A thread's *home* is the shard of its own name; for a fork, which is kept in another lineage,
the home holds a pointer.

Of each shard (after `<prefix>:{<shard>}:`):

    store          hash    format, shards (in shard 0 only)
    counts         hash    branches, tokens, pointers: numbers that only grow; expiring: 1 once a lineage had a ttl
    sizes          hash    threads, branches, rows, blobs and their bytes, as they are now
    held           hash    lineage with a ttl -> its share of the sizes
    due            zset    lineages with a ttl, by the time at which they expire
    lineages       zset    names, by name
    branches       hash    branch id -> lineage
    pointers       hash    thread -> shard:version:lineage, for threads in a lineage of another name
    kinds          set     kinds of thread
    names:<kind>   zset    threads, by name
    ages:<kind>    zset    threads, by time of the last change
    ages-in:<n>:<kind><namespace>   zset   the same for the threads of one namespace; n is the length of the kind
    leases         hash    name -> owner, token, expires
    fences         hash    lease in another shard -> highest token used here
    blocked:<n>:<thread><lineage>   string   version of a pointer that no longer holds; an hour

Of each lineage (with a ttl, they expire together):

    heads:<lineage>      hash   thread -> head
    forks:<lineage>      zset   threads other than the one that the lineage began with, by name
    branches:<lineage>   hash   branch id -> number:record
    tops:<lineage>       hash   branch number -> highest step; number:late -> first step that may be missing in ids;
                                expires -> when, where there is a ttl; bytes -> the lengths of all records
    steps:<lineage>      hash   number:step -> id, digest, meta, root
    payloads:<lineage>   hash   number:step -> payload
    marks:<lineage>      hash   number:step -> mark
    ids:<lineage>        zset   id, branch, step: by id
    late:<lineage>       set    branches with steps that may be missing in ids
    blobs:<lineage>      hash   blob id -> data
    blob-ids:<lineage>   zset   blob ids, by id

The name that a user chose always comes last, so no name can be mistaken for another kind of key.
"""

from __future__ import annotations

import zlib

import msgspec

from backtrail.engines.base import Branch, Head, NewRow, Position
from backtrail.errors import DECODE_ERRORS, Corrupt, InvalidInput

FORMAT = 1
_pack = msgspec.msgpack.encode


class _HeadRest(msgspec.Struct, array_like=True, frozen=True):
    lineage: str
    owner: bytes
    created: int
    updated: int
    count: int
    size: int
    note: bytes


class _BranchRest(msgspec.Struct, array_like=True, frozen=True):
    thread: str
    owner: bytes
    origin: Position | None
    seal: bytes


_head_rest = msgspec.msgpack.Decoder(_HeadRest)
_branch_rest = msgspec.msgpack.Decoder(_BranchRest)


class Shards(msgspec.Struct, frozen=True):
    """The shard that a name hashes to, and the prefix of that shard's keys."""

    prefix: str
    count: int

    def of(self, name: str) -> int:
        """The shard of a lineage, of a thread's home, or of a lease."""
        return zlib.crc32(name.encode()) % self.count if self.count > 1 else 0

    def key(self, shard: int) -> bytes:
        """The prefix of all keys of a shard."""
        return f"{self.prefix}:{{{shard}}}:".encode()


def checked_prefix(prefix: str) -> str:
    """The prefix, if it cannot be confused with the hash tag after it; else `InvalidInput`."""
    if not prefix or any(character in prefix for character in "{}\0"):
        raise InvalidInput(f"prefix {prefix!r} must be a text without braces")
    return prefix


def pack_key(key: tuple[bytes, int, int] | None) -> bytes:
    """A `Head.key` as 32 bytes; empty if there is no thread."""
    return b"" if key is None else key[0] + key[1].to_bytes(8, "big") + key[2].to_bytes(8, "big")


def pack_head(head: Head) -> bytes:
    """The key first, so that a script can compare it, then the kind, so that it can keep the index."""
    kind = head.kind.encode()
    rest = _HeadRest(head.lineage, head.owner, head.created, head.updated, head.count, head.size, head.note)
    return pack_key(head.key) + len(kind).to_bytes(1, "big") + kind + _pack(rest)


def unpack_head(thread: bytes, packed: bytes) -> Head:
    """The head that `pack_head` packed. From bytes that it did not pack, a head at step 0 that no reader accepts: one
    damaged record must not make a listing fail."""
    try:
        return _unpack_head(thread, packed)
    except (*DECODE_ERRORS, IndexError):
        return Head(thread.decode(errors="replace"), "", b"", b"", 0, 0, "", 0, 0, 0, 0, b"")


def _unpack_head(thread: bytes, packed: bytes) -> Head:
    end = 33 + packed[32]
    rest = _head_rest.decode(packed[end:])
    return Head(
        thread=thread.decode(),
        lineage=rest.lineage,
        owner=rest.owner,
        branch=packed[:16],
        step=int.from_bytes(packed[16:24], "big"),
        version=int.from_bytes(packed[24:32], "big"),
        kind=packed[33:end].decode(),
        created=rest.created,
        updated=rest.updated,
        count=rest.count,
        size=rest.size,
        note=rest.note,
    )


def pack_branch(branch: Branch) -> bytes:
    """A branch without its id and lineage, which are the field and the key."""
    return _pack(_BranchRest(branch.thread, branch.owner, branch.origin, branch.seal))


def unpack_branch(lineage: str, name: bytes, numbered: bytes) -> tuple[int, Branch]:
    """The branch's number, which grows in the order of writing, and the branch."""
    number, _, packed = numbered.partition(b":")
    try:
        rest = _branch_rest.decode(packed)
    except DECODE_ERRORS as error:
        raise Corrupt(f"branch {name.hex()}", f"its record makes no sense: {error}") from error
    return int(number), Branch(name, lineage, rest.thread, rest.owner, rest.origin, rest.seal)


def pack_row(row: NewRow) -> bytes:
    """A row without its payload: 16 bytes of id, 16 of digest, the length of the meta, the meta, and the root."""
    return row.id + row.digest + len(row.meta).to_bytes(4, "big") + row.meta + row.root


def unpack_row(packed: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """(id, meta, digest, root), the order of `Row`; the root is empty if it was not read."""
    end = 36 + int.from_bytes(packed[32:36], "big")
    return packed[:16], packed[36:end], packed[16:32], packed[end:]
