"""Two stores at once, as a store sees it: how a mirror stands, and making two stores equal."""

from __future__ import annotations

from copy import copy

from backtrail.encode.seal import refuse_sealed
from backtrail.engines.base import Commit, Engine, Head, Swap
from backtrail.engines.namespace import NamespaceEngine
from backtrail.errors import InvalidInput, Unavailable
from backtrail.history.core import Core
from backtrail.history.diverged import keep
from backtrail.history.keyring import RING, share
from backtrail.replicate import colour, control
from backtrail.replicate.mirror import Mirror
from backtrail.replicate.reconcile import differing, reconcile
from backtrail.replicate.report import Diverged, Kept, Progress, Report
from backtrail.replicate.spooled import Spooled
from backtrail.replicate.status import Status


def mirror_of(core: Core) -> Mirror:
    """The mirror of a store that has a replica."""
    inner = _inner(core)
    mirror = inner.mirror if isinstance(inner, Spooled) else inner
    if not isinstance(mirror, Mirror):
        raise InvalidInput("this store has no replica: open it with replica=…")
    return mirror


async def keep_beside(core: Core, active: Engine, found: Diverged) -> Kept:
    """Label a head that lost, on the side where it did; the other one hears of it when they are made equal."""
    assert isinstance(core.engine, NamespaceEngine)
    straight = copy(core)
    straight.engine = core.engine.around(active)
    return await keep(straight, found)


async def check_rings(core: Core) -> None:
    """Refuse two sides that can never hold the same: sealed with different keys, or only one of them sealed.

    A side that is away is not asked; should its ring turn out to be another one, it is not written to."""
    engine = core.engine
    assert isinstance(engine, NamespaceEngine)
    found: list[Head] = []
    bare = False
    mirror = mirror_of(core)
    for name, side in mirror.sides.items():  # each by itself, before the mirror starts to make them equal
        room = engine.around(side)
        try:
            ring = await room.head(RING)
            if ring is not None:
                found.append(ring)
            elif await room.threads(limit=1) and not (await control.read(side))[0].generation:
                bare = True
        except Unavailable as error:
            mirror.away(name, error)
    if found and core.keys is None:
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
    if found and await core.engine.head(RING) is None:
        # A new primary beside a sealed replica: it takes the ring that is there instead of making another.
        await core.engine.commit(Commit(RING, (Swap(RING, None, found[0]),)))


async def status(core: Core) -> Status:
    """How both sides are, which one is active, and what the other one lacks."""
    core.check_open()
    mirror = mirror_of(core)
    try:
        await core.engine.ping()
    except Unavailable as error:
        mirror.failed(error)  # which is what the status tells
    return mirror.status()


async def catch_up(core: Core) -> Status:
    """Compare both sides and ship what is missing now, instead of in the background."""
    core.check_open()
    mirror, inner = mirror_of(core), _inner(core)
    return await (inner.settle() if isinstance(inner, Spooled) else mirror.settle())


async def sync(core: Core, other: Core, progress: Progress | None = None) -> Report:
    """Make `other` equal to this store by exchanging only what is missing; this store is right about heads.

    What only the other one has comes over, too. Safe to repeat, to interrupt, and to run beside writers."""
    core.check_open()
    other.check_open()
    report = Report()
    here, there = _inner(core), _inner(other)
    if here is there:
        raise InvalidInput("a store cannot be made equal to itself: give another one")
    await share(core, other)
    blocking = here.properties.blocking and there.properties.blocking
    here, there = colour.side(here, blocking), colour.side(there, blocking)
    for lineage in await differing(here, there):
        done = Report(report.records, report.bytes)

        def tell(records: int, size: int, done: Report = done) -> None:
            if progress is not None:
                progress(done.records + records, done.bytes + size)

        report.add(await reconcile(here, there, lineage, keep=lambda lost: keep(core, lost), progress=tell))
    return report


def _inner(core: Core) -> Engine:
    engine = core.engine
    return engine.inner if isinstance(engine, NamespaceEngine) else engine
