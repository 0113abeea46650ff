"""Two stores at once, as a store sees it: how a mirror stands, and making two stores equal."""

from __future__ import annotations

from clew.engines.base import Engine
from clew.engines.namespace import NamespaceEngine
from clew.errors import InvalidInput
from clew.history.core import Core
from clew.history.diverged import keep
from clew.replicate import colour
from clew.replicate.mirror import Mirror
from clew.replicate.reconcile import Progress, Report, differing, reconcile
from clew.replicate.status import Status


def mirror_of(core: Core) -> Mirror:
    """The mirror of a store that has a replica."""
    assert isinstance(core.engine, NamespaceEngine)
    inner = core.engine.inner
    if not isinstance(inner, Mirror):
        raise InvalidInput("this store has no replica: open it with replica=…")
    return inner


async def status(core: Core) -> Status:
    """How both sides are, which one is active, and what the other one lacks."""
    core.check_open()
    mirror = mirror_of(core)
    await mirror.ping()
    return mirror.status()


async def catch_up(core: Core) -> Status:
    """Compare both sides and ship what is missing now, instead of in the background."""
    core.check_open()
    return await mirror_of(core).settle()


async def sync(core: Core, other: Core, progress: Progress | None = None) -> Report:
    """Make `other` equal to this store by exchanging only what is missing; this store is right about heads.

    What only the other one has comes over, too. Safe to repeat, to interrupt, and to run beside writers."""
    core.check_open()
    other.check_open()
    report = Report()
    here, there = _inner(core), _inner(other)
    if here is there:
        raise InvalidInput("a store cannot be made equal to itself: give another one")
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
