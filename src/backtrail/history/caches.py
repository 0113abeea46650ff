"""The caches of one open store. All of them are bounded, and correctness never depends on them: they only save work.

* `TipCache`: the tip of a thread as its last save left it or a load read it, for the next save. The engine checks
  every commit against the real head, so a stale tip costs a retry and never a wrong write.
* `IdCache`: the positions of checkpoints by id, for threads whose caller chooses the ids.
* `ListTailCache`: the last items of long lists, for a caller that appends and reads the end.
* `BranchCache`: records of branches, checked when they were read; they never change.
* `RowCache` (in a file of its own): payloads of rows, for a caller that loads the same thread again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from sys import getsizeof
from types import NoneType
from typing import Any

import msgspec

from backtrail.encode.change_detection import KnownLists
from backtrail.encode.payload_format import only_section
from backtrail.encode.piece_table import pieces_between
from backtrail.encode.row_format import ListNode, Root
from backtrail.encode.tree_walks import may_be_wide
from backtrail.encode.values import Values, is_plain
from backtrail.engines.base import Branch, Engine, Head, Position
from backtrail.engines.process_fork import ForkSafe
from backtrail.history.records import Note
from backtrail.history.row_cache import RowCache
from backtrail.lru import LRU

MAX_TIPS = 4096  # threads
MAX_TIP_BYTES = 128 * 1024 * 1024  # encoded bytes of the states whose lists or large dicts are in cached tips
MAX_IDS = 1 << 17  # 200 bytes each; a lineage that has more asks the engine for each of them
MAX_SAME_ID = 1024  # rows of one id that are read: deleted ones, and those of other threads of the lineage
MAX_TAILS = 4096  # streams
MAX_TAIL_ITEMS = 256  # of one stream
MAX_TAIL_BYTES = 1024 * 1024  # of one stream, encoded
MAX_ALL_TAIL_BYTES = 32 * 1024 * 1024
MAX_BRANCHES = 4096


# -- tips --------------------------------------------------------------------------------------------------------------


class KeepLastWindow(msgspec.Struct):
    """The living checkpoints in the history of a thread that is alone in its lineage, oldest first."""

    waiting: deque[tuple[bytes, int, bool]]  # branch, step, protected
    marked: int = 0  # checkpoints removed since the last sweep
    rows: int = 0  # of the lineage, approximately


class Tip(msgspec.Struct):
    """The head of a thread with all that the next save needs. `lists` is None if they have not been compared yet.

    Tips are tracked by the garbage collector: known lists refer to the caller's types and objects, which may refer back
    to the store."""

    head: Head
    note: Note
    digest: bytes
    root: Root
    lists: KnownLists | None
    keep_last: KeepLastWindow | None = None  # set if saves apply retention


class TipCache(ForkSafe):
    """The tips of the threads used last. `take` removes a tip from the cache, so that it has one user at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._tips: LRU[str, Tip] = LRU(MAX_TIPS, MAX_TIP_BYTES)

    @property
    def size(self) -> int:
        """Approximate bytes that the tips keep alive."""
        return self._tips.cost

    def take(self, thread: str) -> Tip | None:
        """The tip of a thread, removed from the cache."""
        with self._lock:
            return self._tips.pop(thread)

    def peek(self, thread: str) -> Tip | None:
        """The tip of a thread, left in the cache. A writer may take it at any time, so its lists must not be used."""
        return self._tips.peek(thread)

    def put(self, tip: Tip) -> None:
        """Add a tip, unless the cache has a newer one."""
        thread = tip.head.thread
        with self._lock:
            other = self._tips.pop(thread)
            if other is not None and other.head.version > tip.head.version and other.head.owner == tip.head.owner:
                tip = other
            self._tips.put(thread, tip, 1024 + (tip.head.size if tip.lists or may_be_wide(tip.root.tree) else 0))

    def __len__(self) -> int:
        return len(self._tips)


# -- ids ---------------------------------------------------------------------------------------------------------------


class _ThreadIds:
    """The ids of the thread whose head is `head`, and of the rest of its lineage when they were fetched."""

    __slots__ = ("absent", "head", "positions")

    def __init__(self, head: Head) -> None:
        self.head = head
        self.absent: bytes | None = None  # an id that was looked up and is not there
        self.positions: dict[bytes, tuple[Position, ...]] | None = None  # None: not fetched yet, after one lookup

    def add(self, id: bytes, position: Position) -> bool:
        """False if it is known: a fetch during a commit may see the row before the save reports it."""
        assert self.positions is not None
        there = self.positions.get(id, ())
        if position in there:
            return False
        self.positions[id] = (*there, position)
        return True


class IdCache(ForkSafe):
    """The ids of the threads in which one was looked up last.

    An engine may have to scan a whole lineage to find an id. Adding a checkpoint to a thread moves its head, so the ids
    that were fetched for a head are valid as long as it is the head, and are carried over to each new head that a save
    of this process makes. If another process has moved the head, the engine is asked again."""

    def __init__(self) -> None:
        super().__init__()
        self._threads: LRU[str, _ThreadIds] = LRU(MAX_IDS, MAX_IDS)

    def complete(self, head: Head) -> bool:
        """True if the ids of all rows are cached for this head, so that `positions` asks nobody."""
        with self._lock:
            known = self._threads.get(head.thread)
            return known is not None and known.head == head and known.positions is not None

    async def positions(self, engine: Engine, head: Head, id: bytes) -> tuple[Position, ...]:
        """The positions of rows of this id: all in the thread whose head is `head`, and perhaps some in other threads.
        The first lookup is passed to the engine; at the second one for the same head, all ids are fetched. An id that
        was not there is not looked up again for the same head."""
        with self._lock:
            known = self._threads.get(head.thread)
            again = known is not None and known.head == head
            if known is not None and again and known.positions is not None:
                return known.positions.get(id, ())
            if known is not None and again and known.absent == id:
                return ()
            newer = known is not None and known.head.owner == head.owner and known.head.version > head.version
        if again:
            rows = await engine.locate(head.lineage, bytes(16), b"\xff" * 16, MAX_IDS)
            if len(rows) < MAX_IDS:
                fetched = _ThreadIds(head)
                fetched.positions = {}
                for branch, step, one in rows:
                    fetched.add(one, (branch, step))
                self._remember(fetched, 1 + len(rows))
                return fetched.positions.get(id, ())
        elif not newer:  # else the caller's head is old: its save is refused, and the next attempt uses the cached ids
            self._remember(_ThreadIds(head), 1)
        found = await engine.locate(head.lineage, id, id, MAX_SAME_ID)
        if not found:
            with self._lock:
                known = self._threads.peek(head.thread)
                if known is not None and known.head == head:
                    known.absent = id
        return tuple((branch, step) for branch, step, _ in found)

    def saved(self, before: Head, now: Head, id: bytes, position: Position) -> None:
        """Record that a save of this process moved a head from `before` to `now`, with a checkpoint at `position`."""
        if now.thread not in self._threads:  # most callers let us choose the ids
            return
        with self._lock:
            known = self._threads.peek(now.thread)
            if known is None or known.head != before:
                return
            known.head = now
            if known.absent == id:
                known.absent = None
            if known.positions is not None and known.add(id, position):
                self._threads.grow(now.thread, 1)

    def forget(self, thread: str) -> None:
        """Forget the ids of a thread."""
        with self._lock:
            self._threads.pop(thread)

    def _remember(self, known: _ThreadIds, cost: int) -> None:
        with self._lock:
            self._threads.put(known.head.thread, known, cost)


# -- the ends of lists -------------------------------------------------------------------------------------------------

Item = dict[str, Any] | bytes  #: a flat dict, or the encoding of anything else

_TEXT = frozenset({str})
_IMMUTABLE = frozenset({str, int, float, bool, NoneType, bytes})
_encode = msgspec.msgpack.Encoder().encode
_copy: Callable[[Any], dict[str, Any]] = dict.copy


class _Tail:
    """Items of one stream, from number `start` on."""

    __slots__ = ("bytes", "items", "sizes", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.items: list[Item] = []
        self.sizes: list[int] = []
        self.bytes = 0

    @property
    def stop(self) -> int:
        return self.start + len(self.items)

    def add(self, items: list[Item], size: int) -> int:
        """Add items that encode to `size` bytes together; the oldest make room. Returns by how many bytes it grew."""
        before = self.bytes
        each = size // max(1, len(items)) + 1
        self.items += items
        self.sizes += [each] * len(items)
        self.bytes += each * len(items)
        gone, left = 0, self.bytes
        while left > MAX_TAIL_BYTES or len(self.items) - gone > MAX_TAIL_ITEMS:
            left -= self.sizes[gone]
            gone += 1
        if gone:
            self.start += gone
            self.bytes = left
            del self.items[:gone], self.sizes[:gone]
        return self.bytes - before


class ListTailCache(ForkSafe):
    """The last items of the streams used last. Safe to share between threads.

    An item of a stream never changes, so a cached item stays valid. The pieces of a list are not cached here: they come
    from the root, which is read from the engine every time. A message without nested values is kept as a dict and
    copied for each reader; any other item is kept encoded."""

    def __init__(self) -> None:
        super().__init__()
        self._tails: LRU[tuple[bytes, int], _Tail] = LRU(MAX_TAILS, MAX_ALL_TAIL_BYTES)

    @property
    def size(self) -> int:
        """Encoded bytes of all items together."""
        return self._tails.cost

    def __len__(self) -> int:
        return len(self._tails)

    def items(self, listing: ListNode, start: int, stop: int, values: Values) -> list[Any] | None:
        """Items start..stop-1 of a list, new objects for each caller; None if not all of them are cached."""
        parts = []
        with self._lock:
            for piece, low, high in pieces_between(listing, start, stop):
                tail = self._tails.get((piece.branch, piece.stream))
                if tail is None or low < tail.start or high > tail.stop:
                    return None
                parts.append((tail, low, tail.items[low - tail.start : high - tail.start]))
        # Cached items never change, so the rest is done without the lock: decoding may run the user's code.
        found: list[Any] = []
        for tail, low, part in parts:
            if type(part[-1]) is bytes:  # still encoded; once decoded, all items of most chats are flat
                self._decode(tail, low, part, len(part) - 1, values)
            try:
                found += list(map(_copy, part))
            except TypeError:
                found += [
                    item.copy() if isinstance(item, dict) else self._decode(tail, low, part, at, values)
                    for at, item in enumerate(part)
                ]
        return found

    def _decode(self, tail: _Tail, low: int, part: list[Item], at: int, values: Values) -> Any:
        """The value of an encoded item, in a part of a tail that begins at item `low`. If it is flat, the tail and the
        part keep it decoded from now on."""
        item = part[at]
        value = values.decode(item) if isinstance(item, bytes) else item.copy()
        if _is_flat(value):
            part[at] = value.copy()
            with self._lock:
                number = low + at - tail.start
                if 0 <= number < len(tail.items) and tail.items[number] is item:
                    tail.items[number] = part[at]
        return value

    def known_up_to(self, listing: ListNode, start: int) -> int:
        """The end of the items of a list that are cached from `start` on without a gap; `start` if none are."""
        with self._lock:
            for piece, low, high in pieces_between(listing, start, listing.count):
                tail = self._tails.peek((piece.branch, piece.stream))
                if tail is None or not tail.start <= low < tail.stop:
                    return start
                start += min(high, tail.stop) - low
                if tail.stop < high:
                    return start
        return start

    def add_read(self, listing: ListNode, start: int, items: list[Any]) -> None:
        """Cache the items of a list from `start` to its end, which were just read and now belong to the caller."""
        if len(items) > MAX_TAIL_ITEMS:
            return
        for piece, low, high in pieces_between(listing, start, start + len(items)):
            kept = _kept(items[: high - low])
            items = items[high - low :]
            with self._lock:
                self._extend((piece.branch, piece.stream), low, high, kept)

    def add_written(self, listing: ListNode, data: bytes, values: Values) -> None:
        """Cache the items that a payload, just committed, has added to a list: only if it holds nothing else and the
        items before them are cached. Otherwise the next read caches them."""
        key = listing.tail.branch, listing.tail.stream
        section = only_section(data) if key in self._tails else None  # the ends of most lists are never read
        if section is None or section.stream != key[1]:
            return
        items: list[Item] = [section.data]
        if section.items != 1:
            items = _kept(values.decode_items([section.data], section.items, "the row that was just written"))
        with self._lock:
            tail = self._tails.peek(key)
            if tail is not None and tail.stop == section.start and len(items) == section.items:
                self._tails.grow(key, tail.add(items, len(section.data)))

    def _extend(self, key: tuple[bytes, int], start: int, stop: int, items: list[Item]) -> None:
        """Cache `items`, the last ones of items start..stop-1 of a stream."""
        tail = self._tails.peek(key)
        if tail is not None and tail.start <= start <= stop <= tail.stop:
            return  # another thread was faster
        size = _size(items)
        if tail is None or tail.stop != start or len(items) != stop - start:
            tail = _Tail(stop - len(items))
            self._tails.put(key, tail, tail.add(items, size))
        else:
            self._tails.grow(key, tail.add(items, size))


def _kept(items: list[Any]) -> list[Item]:
    """The items in their cached form, from after the last one that holds a registered type (registered types may change
    while a program runs, stored bytes do not) or half of a surrogate pair in its depth."""
    kept: list[Item] = []
    for item in items:
        if _is_flat(item):
            kept.append(item.copy())
            continue
        try:
            encoded = _encode(item) if is_plain(item) else None
        except UnicodeEncodeError:
            encoded = None
        if encoded is None:
            kept.clear()
        else:
            kept.append(encoded)
    return kept


def _size(items: list[Item]) -> int:
    """The encoded size of items, or about that."""
    try:
        return len(_encode(items))
    except (UnicodeEncodeError, OverflowError):  # half of a surrogate pair, an int of more than 64 bits
        return sum(map(getsizeof, items))


def _is_flat(item: Any) -> bool:
    """True if a shallow copy of the dict is as good as a deep one."""
    return type(item) is dict and _IMMUTABLE.issuperset(map(type, item.values())) and _TEXT.issuperset(map(type, item))


# -- branches ----------------------------------------------------------------------------------------------------------


class BranchCache(ForkSafe):
    """Records of branches by id. They never change, so an entry never becomes stale."""

    def __init__(self) -> None:
        super().__init__()
        self._branches: LRU[bytes, Branch] = LRU(MAX_BRANCHES)

    def get(self, id: bytes) -> Branch | None:
        return self._branches.peek(id)

    def put(self, branch: Branch) -> None:
        with self._lock:
            self._branches.put(branch.id, branch)


# -- all of them -------------------------------------------------------------------------------------------------------


class Caches:
    """The caches of one context."""

    def __init__(self) -> None:
        self.tips = TipCache()
        self.ids = IdCache()
        self.tails = ListTailCache()
        self.branches = BranchCache()
        self.rows = RowCache()

    def add_saved(
        self, before: Head | None, now: Head, id: bytes, position: Position, started: Sequence[Branch]
    ) -> None:
        """Record that a save of this process committed the checkpoint at `position`, and the branches it started."""
        for branch in started:
            self.branches.put(branch)
        if before is not None:
            self.ids.saved(before, now, id, position)
