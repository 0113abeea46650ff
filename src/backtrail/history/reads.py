"""Reading a thread: its states, its checkpoints, and what changed between two of them. Nothing here writes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backtrail.encode.frame import describe_row
from backtrail.encode.planner import PlannedRow
from backtrail.encode.row_format import ListNode, Root
from backtrail.encode.types import conform
from backtrail.encode.values import Values
from backtrail.engines.base import Head
from backtrail.errors import Corrupt, ThreadNotFound
from backtrail.history import diff as differ
from backtrail.history.ancestry import Ancestry, SeenStep, describe, find, pair_up, parent_of, visible, written
from backtrail.history.handle import Handle, S
from backtrail.history.records import checkpoint, open_note
from backtrail.history.state_reader import StateReader
from backtrail.history.steady import of_thread
from backtrail.history.validation import check_custom, check_limit, check_name, check_names
from backtrail.model import Checkpoint, Diff


class Reading(Handle[S]):
    """The part of a thread that reads."""

    @of_thread
    async def load(self, at: Any = None, as_: Any = None) -> Any:
        """The state at the head, or at `at`: a Checkpoint, an id, a unique prefix of one, or a step number."""
        wanted = as_ or self.type
        values = self.values if as_ is None else Values(self.values.types.with_type(as_))
        head, id, branch, step, data = await self._row(at)
        reader = StateReader(self.context, head.lineage, values)
        state = await reader.value((await reader.root(branch, step, data)).tree)
        if at is None:
            self.writer.seen = id
        return state if wanted is None else conform(state, wanted)

    @of_thread
    async def pick(self, keys: Any, at: Any = None) -> dict[str, Any]:
        """Some top-level keys of the state, as far as it has them; everything else is not read."""
        names = check_names(keys, "keys", "key")
        _, root, reader = await self.root(at)
        children = root.tree.children or {}
        return {name: await reader.value(children[name]) for name in names if name in children}

    @of_thread
    async def tail(self, key: str, count: int, at: Any = None) -> list[Any]:
        """The last `count` items of the list `state[key]`, without reading those before them."""
        limit = check_limit(count, "count") or 0
        _, root, reader = await self.root(at)
        node = (root.tree.children or {}).get(check_name(key, "key"))
        if node is None:
            return []
        if isinstance(node, ListNode):
            return await self.ending(reader, node, max(0, node.count - limit))
        return (await reader.items(node, 0, 2**31))[-limit:] if limit else []

    async def root(self, at: Any = None, deep: bool = True) -> tuple[Head, Root, StateReader]:
        """For views: the head, the root at a place, and a reader for what it points at."""
        head, _, root, reader = await self.look(at, deep)
        return head, root, reader

    @of_thread
    async def look(self, at: Any = None, deep: bool = True) -> tuple[Head, bytes, Root, StateReader]:
        """The same, with the id of the checkpoint at that place."""
        head, id, branch, step, data = await self._row(at)
        reader = StateReader(self.context, head.lineage, self.values)
        tip = self.context.tips.peek(self.id) if at is None and deep else None
        if tip is not None and tip.head == head:  # then its root is in memory already
            return head, id, tip.root, reader
        return head, id, await reader.root(branch, step, data, deep), reader

    async def ending(self, reader: StateReader, listing: ListNode, start: int) -> list[Any]:
        """The items of a list from `start` to its end, from memory where that has them."""
        tails = self.context.tails
        found = tails.items(listing, start, listing.count, self.values)
        if found is None:
            known = tails.known_up_to(listing, start)  # others may have added a little
            more = await reader.items(listing, known, listing.count)
            tails.add_read(listing, known, more)
            if known == start:
                return more
            found = tails.items(listing, start, listing.count, self.values)
        return found if found is not None else await reader.items(listing, start, listing.count)

    def grown(self, key: str, planned: PlannedRow) -> None:
        """A plan by which the list at a top-level key grew has been committed: whoever reads its end shall find it."""
        node = (planned.root.tree.children or {}).get(key)
        if isinstance(node, ListNode):
            self.context.tails.add_written(node, planned.payload, self.values)

    async def _row(self, at: Any) -> tuple[Head, bytes, bytes, int, bytes]:
        """(head, checkpoint id, branch, step, root's bytes) of a place."""
        self.context.check_open()
        if at is None:
            found = await self.context.engine.tip(self.id)
            if found is None:
                raise ThreadNotFound(self.id)
            head, row = found
            id, branch, step = open_note(self.context.frames, head).checkpoint, head.branch, head.step
        else:
            head = await self.standing()
            seen = await find(self.context, head, at)
            id, branch, step = seen.step.id, seen.branch.id, seen.step.step
            row = await self.context.engine.row(head.lineage, branch, step)
        if row is None:
            raise Corrupt(describe_row(branch, step), "the row is missing")
        return head, id, branch, step, row.root

    @of_thread
    async def head(self) -> Checkpoint | None:
        """The checkpoint the thread stands at."""
        self.context.check_open()
        head = await self.context.engine.head(self.id)
        if head is None:
            return None
        open_note(self.context.frames, head)
        return await describe(self.context, head, await find(self.context, head, head.step))

    async def step(self) -> int:
        """The number of the head's step, 0 when there is none."""
        self.context.check_open()
        head = await self.context.engine.head(self.id)
        return head.step if head is not None else 0

    async def exists(self) -> bool:
        """Whether the thread has a checkpoint."""
        self.context.check_open()
        return await self.context.engine.head(self.id) is not None

    @of_thread
    async def get(self, at: Any) -> Checkpoint:
        """The checkpoint that `at` names."""
        head = await self.standing()
        return await describe(self.context, head, await find(self.context, head, at))

    @of_thread
    async def history(
        self, limit: int | None = None, newest_first: bool = False, all: bool = False
    ) -> list[Checkpoint]:
        """The checkpoints on the way to the head, oldest first, what a fork inherited included. `limit` keeps the
        newest. `all`: also what rewinds left behind."""
        most = check_limit(limit)
        self.context.check_open()
        head = await self.context.engine.head(self.id)
        if head is None:
            return []
        open_note(self.context.frames, head)  # nothing relies on a damaged head
        trail = await Ancestry.to(self.context, head, head.branch, head.step)
        seen: list[SeenStep] = []
        extra = 1 if most is not None else 0  # one more, for the oldest one's parent
        async for one in trail.back():
            if one.alive:
                seen.append(one)
                if most is not None and not all and len(seen) == most + extra:
                    break
        checkpoints = list(pair_up(self.context, seen[::-1]))
        if all:
            checkpoints += await self._abandoned(head, trail)
            checkpoints.sort(key=lambda c: (c.step, c.created_at, c.id))
        if most is not None:
            checkpoints = checkpoints[-most:] if most else []
        return checkpoints[::-1] if newest_first else checkpoints

    async def _abandoned(self, head: Head, trail: Ancestry) -> list[Checkpoint]:
        """What this thread wrote that is not on its trail."""
        result: list[Checkpoint] = []
        for branch in await visible(self.context, head):
            parent: bytes | None = None
            for one in await written(self.context, head, branch):
                if (branch.id, one.step.step) in trail:
                    parent = one.step.id
                    continue
                if parent is None:
                    before = await parent_of(self.context, head, branch.id, one.step.step)
                    parent = before.step.id if before is not None else None
                result.append(
                    checkpoint(
                        self.context.values, branch.thread, one.step.id, one.step.step, one.meta, one.remark, parent
                    )
                )
                parent = one.step.id
        return result

    @of_thread
    async def find(
        self, tag: str | None = None, label: str | None = None, custom: Mapping[str, Any] | None = None
    ) -> list[Checkpoint]:
        """Checkpoints with this tag, this label and these custom fields, oldest first, abandoned ones included."""
        fields = check_custom(custom)
        return [
            c
            for c in await self.history(all=True)
            if (tag is None or tag in c.tags)
            and (label is None or c.label == label)
            and all(key in c.custom and c.custom[key] == value for key, value in fields.items())
        ]

    @of_thread
    async def diff(self, a: Any, b: Any = None) -> Diff:
        """What changed from `a` to `b` (the head, if not given). Descends only where the two differ."""
        head = await self.standing()
        one = await find(self.context, head, a)
        other = await find(self.context, head, head.step if b is None else b)
        reader = StateReader(self.context, head.lineage, self.values)
        roots = []
        for seen in (one, other):
            row = await self.context.engine.row(head.lineage, *seen.place)
            if row is None:
                raise Corrupt(describe_row(*seen.place), "the row is missing")
            roots.append(await reader.root(seen.branch.id, seen.step.step, row.root, deep=False))
        changes = await differ.compare(reader, self.values, roots[0].tree, roots[1].tree)
        return Diff(await describe(self.context, head, one), await describe(self.context, head, other), tuple(changes))
