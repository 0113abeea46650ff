"""Which checkpoint has which id, remembered for threads in which ids are looked up again and again.

An engine may have to look through a whole lineage to find an id, or to say that it is not there. A thread whose caller
chooses the ids would pay that with every save. Whoever adds a checkpoint to a thread moves its head, so the ids that
belong to a head do not change while it stands: what was fetched for one head is good for it, and for each head that a
save of this process puts in its place. Where another process has moved it, the engine is asked again.
"""

from __future__ import annotations

from collections import OrderedDict

from backtrail.engines.base import Engine, Head
from backtrail.engines.fork_safety import ForkSafe

MANY = 1 << 17  # ids that are remembered, 200 bytes each; a lineage that has more is asked for each of them
TWINS = 1024  # rows of one id that are looked at: deleted ones, and those of other threads of the lineage
_LOW, _HIGH = bytes(16), b"\xff" * 16

Key = tuple[bytes, int, int]
Place = tuple[bytes, int]


class _Known:
    """The ids of a thread as it stands at `key`, and of the rest of its lineage when they were fetched."""

    __slots__ = ("key", "owner", "places")

    def __init__(self, head: Head) -> None:
        self.key = head.key
        self.owner = head.owner
        self.places: dict[bytes, tuple[Place, ...]] | None = None  # None: asked for once, and not worth fetching yet

    def add(self, id: bytes, place: Place) -> bool:
        """False if it is known: who fetches while a save commits may see its row before the save tells of it."""
        assert self.places is not None
        there = self.places.get(id, ())
        if place in there:
            return False
        self.places[id] = (*there, place)
        return True


class IdCache(ForkSafe):
    """The ids of the threads in which somebody looked one up last."""

    def __init__(self) -> None:
        super().__init__()
        self._threads: OrderedDict[str, _Known] = OrderedDict()
        self._count = 0

    async def places(self, engine: Engine, head: Head, id: bytes) -> tuple[Place, ...]:
        """Where rows of this id are: all of the thread that stands at `head`, and perhaps some of others. Who asks for
        the first time gets the engine's answer; for the second time at the same head, all ids are fetched."""
        with self._lock:
            known = self._threads.get(head.thread)
            if known is not None and known.key == head.key and known.places is not None:
                return known.places.get(id, ())
            worth = known is not None and known.key == head.key
            newer = known is not None and known.owner == head.owner and known.key[2] > head.version
        if not worth:
            if not newer:  # else the caller is behind: its save will be refused, and what is known is good for the next
                self._remember(head.thread, _Known(head))
            return tuple((branch, step) for branch, step, _ in await engine.locate(head.lineage, id, id, TWINS))
        found = await engine.locate(head.lineage, _LOW, _HIGH, MANY)
        fetched = _Known(head)
        fetched.places = {}
        for branch, step, one in found:
            fetched.add(one, (branch, step))
        if len(found) < MANY:
            self._remember(head.thread, fetched)
            return fetched.places.get(id, ())
        return tuple((branch, step) for branch, step, _ in await engine.locate(head.lineage, id, id, TWINS))

    def saved(self, thread: str, before: Key, now: Key, id: bytes, place: Place) -> None:
        """A save of this process has moved a head, and put a checkpoint there."""
        with self._lock:
            known = self._threads.get(thread)
            if known is None or known.key != before:
                return
            known.key = now
            if known.places is not None and known.add(id, place):
                self._count += 1

    def _remember(self, thread: str, known: _Known) -> None:
        with self._lock:
            self._forget(self._threads.pop(thread, None))
            self._threads[thread] = known
            self._count += _weight(known)
            while self._count > MANY and len(self._threads) > 1:
                self._forget(self._threads.popitem(last=False)[1])

    def _forget(self, known: _Known | None) -> None:
        self._count -= _weight(known)


def _weight(known: _Known | None) -> int:
    """Ids, and one for the thread itself."""
    return 0 if known is None else 1 + sum(map(len, (known.places or {}).values()))
