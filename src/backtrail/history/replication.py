"""Two stores at once, as a store sees it: how a mirror stands, and making two stores equal."""

from __future__ import annotations

from typing import TypeVar

from backtrail.encode.seal import refuse_sealed
from backtrail.engines.base import Engine, Head
from backtrail.engines.capabilities import capability
from backtrail.engines.conflicts import refusals_as_conflicts
from backtrail.engines.namespace import in_namespace_of, without_namespace
from backtrail.engines.reserved import user_threads
from backtrail.engines.reserved_record import swap
from backtrail.errors import InvalidInput, Unavailable
from backtrail.history.context import Context
from backtrail.history.diverged import keep
from backtrail.history.keyring import RING, share
from backtrail.replicate import concurrency, role_record
from backtrail.replicate.anti_entropy import differing, reconcile
from backtrail.replicate.mirror import Mirror
from backtrail.replicate.report import Diverged, Kept, Progress, Report
from backtrail.replicate.status import Mirrored, Status

M = TypeVar("M")


def _mirror(context: Context, kind: type[M]) -> M:
    """The mirror of a store that has a replica, as a `kind`."""
    mirror = capability(context.engine, kind)
    if mirror is None:
        raise InvalidInput("this store has no replica: open it with replica=…")
    return mirror


async def keep_beside(context: Context, active: Engine, found: Diverged) -> Kept:
    """Label a head that lost, on the side where it did; the other one hears of it when they are made equal."""
    return await keep(context.with_engine(in_namespace_of(context.engine, active)), found)


async def check_rings(context: Context) -> None:
    """Refuse two sides that can never hold the same: sealed with different keys, or only one of them sealed.

    A side that is away is not asked; should its ring turn out to be another one, it is not written to."""
    found: list[Head] = []
    bare = False
    mirror = _mirror(context, Mirror)
    for name, side in mirror.sides.items():  # each by itself, before the mirror starts to make them equal
        room = in_namespace_of(context.engine, side)
        try:
            ring = await room.head(RING)
            if ring is not None:
                found.append(ring)
            elif await user_threads(room, limit=1) and not (await role_record.read(side))[0].generation:
                bare = True
        except Unavailable as error:
            mirror.note_unreachable(name, error)
    if found and context.keys is None:
        raise refuse_sealed()
    if len({ring.created for ring in found}) > 1:
        raise InvalidInput(
            "the replica is sealed with another key ring than the primary, so neither could read what the other holds: "
            "give an empty replica"
        )
    if found and bare:
        raise InvalidInput(
            "one side of the mirror is sealed with a key and the other holds unsealed data: give an empty replica"
        )
    if found and await context.engine.head(RING) is None:
        # A new primary beside a sealed replica: it takes the ring that is there instead of making another.
        await swap(context.engine, None, found[0])  # unless another process did


async def status(context: Context) -> Status:
    """How both sides are, which one is active, and what the other one lacks."""
    context.check_open()
    mirror = _mirror(context, Mirror)
    try:
        await context.engine.ping()
    except Unavailable as error:
        mirror.failed(error)  # which is what the status tells
    return mirror.status()


async def catch_up(context: Context) -> Status:
    """Compare both sides and ship what is missing now, instead of in the background."""
    context.check_open()
    return await _mirror(context, Mirrored).settle()


async def sync(context: Context, other: Context, progress: Progress | None = None) -> Report:
    """Make `other` equal to this store by exchanging only what is missing; this store is right about heads.

    What only the other one has comes over, too. Safe to repeat, to interrupt, and to run beside writers."""
    context.check_open()
    other.check_open()
    report = Report()
    here, there = without_namespace(context.engine), without_namespace(other.engine)
    if here is there:
        raise InvalidInput("a store cannot be made equal to itself: give another one")
    await share(context, other)
    blocking = here.properties.blocking and there.properties.blocking
    here, there = concurrency.side(here, blocking), concurrency.side(there, blocking)
    for lineage in await differing(here, there):
        done = Report(report.records, report.bytes)

        def tell(records: int, size: int, done: Report = done) -> None:
            if progress is not None:
                progress(done.records + records, done.bytes + size)

        with refusals_as_conflicts():
            report.add(await reconcile(here, there, lineage, keep=lambda lost: keep(context, lost), progress=tell))
    return report
