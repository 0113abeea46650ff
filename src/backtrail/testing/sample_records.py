"""Made-up records for testing engines: short to write, with every part different, so that a mix-up is noticed.

Bytes are opaque to an engine, so these are arbitrary bytes, not real states.
"""

from __future__ import annotations

import hashlib

import msgspec

from backtrail.engines.base import Branch, Commit, Engine, Head, NewRow, Position, Row, Step, Swap


def name16(*parts: object) -> bytes:
    """Sixteen bytes that depend on `parts` only."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()


def branch(thread: str = "t", n: int = 1, *, lineage: str | None = None, origin: Position | None = None) -> Branch:
    """The n-th branch of a thread; the lineage is named like the thread unless given."""
    where = lineage or thread
    seal = b"seal\x00" + name16("seal", where, thread, n)
    return Branch(name16("branch", where, thread, n), where, thread, name16("owner", thread), origin, seal)


def row(of: Branch, step: int, *, payload: bytes | None = None, root: bytes | None = None) -> NewRow:
    """Row `step` of a branch, each part different from every other. Another payload makes it another checkpoint."""
    tag = f"{of.id.hex()[:8]}:{step}".encode()
    return NewRow(
        branch=of.id,
        step=step,
        id=name16("id", of.id, step, payload),
        meta=b"meta\x00" + tag,
        digest=name16("digest", of.id, step, payload),
        root=b"root\xff" + tag if root is None else root,
        payload=b"payload\n" + tag if payload is None else payload,
    )


def head(
    at: Branch, step: int = 1, version: int = 1, *, kind: str = "thread", updated: int = 0, note: bytes = b""
) -> Head:
    """The head of the branch's own thread at a step of it."""
    return Head(
        thread=at.thread,
        lineage=at.lineage,
        owner=at.owner,
        branch=at.id,
        step=step,
        version=version,
        kind=kind,
        created=1_700_000_000_000_000,
        updated=updated or 1_700_000_000_000_000 + version,
        count=step,
        size=100 + step,
        note=note,
    )


def first(at: Branch, steps: int = 1, **options: str | int | bytes) -> Commit:
    """The commit that starts a thread with its first `steps` rows."""
    new = msgspec.structs.replace(head(at, steps), **options)
    return Commit(
        at.lineage, swaps=[Swap(at.thread, None, new)], rows=[row(at, n + 1) for n in range(steps)], branches=[at]
    )


def following(before: Head, at: Branch, steps: int = 1) -> Commit:
    """The commit that appends `steps` rows after the head `before`."""
    new = [row(at, before.step + n + 1) for n in range(steps)]
    after = head(at, before.step + steps, before.version + 1)
    return Commit(at.lineage, swaps=[Swap(at.thread, before.key, after)], rows=new)


def as_row(new: NewRow, mark: bytes | None = None, *, payload: bool = True) -> Row:
    """The row that an engine returns for one that was written."""
    return Row(new.step, new.id, new.meta, new.digest, mark, new.root, new.payload if payload else b"")


def as_step(new: NewRow, mark: bytes | None = None) -> Step:
    """The light half of a row that was written."""
    return Step(new.step, new.id, new.meta, new.digest, mark)


async def everything(engine: Engine, lineage: str) -> object:
    """Everything that an engine returns for a lineage: two results are equal if nothing changed between them."""
    branches = await engine.branches(lineage)
    whole = 1 << 31
    return (
        branches,
        await engine.heads(lineage),
        [await engine.rows(lineage, one.id, 0, whole) for one in branches],
        [await engine.steps(lineage, one.id, 0, whole) for one in branches],
        await engine.blobs(lineage, [name for name, _ in await engine.blob_ids(lineage)]),
        await engine.threads(),
        await engine.lineages(),
    )
