"""A thread: one conversation or run, with a head and a history. Everything a user can do with one, in one colour."""

from __future__ import annotations

import os
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec

from clew.encode.nodes import Inline, Listing, Root
from clew.encode.types import conform
from clew.encode.values import Values
from clew.engines.base import Branch, Commit, Drop, Head, Mark, Swap
from clew.errors import CheckpointNotFound, Conflict, Corrupt, InvalidInput, NoCheckpoint, ThreadNotFound
from clew.history import diff as differ
from clew.history.core import Core
from clew.history.names import check_custom, check_label, check_limit, check_name, check_tags
from clew.history.read import Reader
from clew.history.records import Move, Note, Remark, checkpoint, open_note, pack_remark, seal_note, uuid_text
from clew.history.trail import Seen, Trail, describe, find, look, pair_up, parent_of, visible
from clew.history.write import MAX_MOVES, UNSET, Facts, Writer, read_tip, touch
from clew.model import Checkpoint, Diff

S = TypeVar("S")
LAST_STEP = 2**32 - 1
_ATTEMPTS = 64
OnConflict = Literal["raise", "branch"]


class Thread(Generic[S]):
    """One thread of a store. Cheap to make; nothing is read before it is used."""

    def __init__(self, core: Core, id: str, type: type[S] | None = None, kind: str = "thread") -> None:
        self.core = core
        self.id = check_name(id, "thread id")
        self.type = type
        self.kind = kind
        self.values = core.values if type is None else Values(core.values.types.with_type(type))
        self.writer = Writer(core, self.id, kind, self.values)

    # -- saving -------------------------------------------------------------------------------------------------------

    async def save(
        self,
        state: Any,
        label: str | None = None,
        tags: Any = (),
        custom: dict[str, Any] | None = None,
        files: str | None = None,
        expect: Any = UNSET,
        id: Any = None,
        on_conflict: OnConflict = "raise",
        parent: Any = UNSET,
    ) -> Checkpoint:
        """Save the whole state; only what changed since the head is written.

        `expect` is the checkpoint (or id) that must be the head, None for a thread that must not exist yet; without
        it, the last one this handle loaded or saved. Saving an `id` again that is the head already changes nothing.
        `parent` is the checkpoint to build on wherever the head is: if that is another, a branch begins at `parent`
        and the head goes along.
        """
        facts = Facts.check(self.values, label, tags, custom, files, id)
        return await self.writer.save(
            lambda planner: planner.whole(state),
            facts,
            expect=expect,
            whole=True,
            on_conflict=on_conflict,
            parent=parent,
        )

    async def append(
        self,
        key: str,
        items: Any,
        label: str | None = None,
        tags: Any = (),
        custom: dict[str, Any] | None = None,
        files: str | None = None,
        expect: Any = UNSET,
        id: Any = None,
    ) -> Checkpoint:
        """Add items at the end of the list `state[key]`. What is in it already is neither read nor compared."""
        facts = Facts.check(self.values, label, tags, custom, files, id)
        if type(items) not in (list, tuple):
            raise InvalidInput(f"append() takes a list of items, not {type(items).__qualname__}")
        name = check_name(key, "key")
        added = list(items)
        rebase = expect is UNSET
        return await self.writer.save(lambda planner: planner.append(name, added), facts, expect=expect, rebase=rebase)

    async def update(
        self,
        changes: dict[str, Any],
        label: str | None = None,
        tags: Any = (),
        custom: dict[str, Any] | None = None,
        files: str | None = None,
        expect: Any = UNSET,
        id: Any = None,
        on_conflict: OnConflict = "raise",
        parent: Any = UNSET,
        remove: Any = (),
        append: tuple[str, list[Any]] | None = None,
    ) -> Checkpoint:
        """Set some top-level keys, take those in `remove` away, and add items at the end of one list with
        `append=(key, items)`, all in one checkpoint; everything else stays what it is, unread."""
        facts = Facts.check(self.values, label, tags, custom, files, id)
        if type(changes) is not dict:
            raise InvalidInput(f"update() takes a dict, not {type(changes).__qualname__}")
        compares = any(type(value) in (list, dict) for value in changes.values())
        gone = check_tags(remove)  # names, each once
        return await self.writer.save(
            lambda planner: planner.change(changes, append=append, drop=gone),
            facts,
            expect=expect,
            whole=compares,
            on_conflict=on_conflict,
            parent=parent,
        )

    async def edit(self, plan: Any, facts: Facts, *, whole: bool = False) -> Checkpoint:
        """For views: any plan, made for whatever the head is when it is committed."""
        return await self.writer.save(plan, facts, whole=whole, rebase=True)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def load(self, at: Any = None, as_: Any = None) -> Any:
        """The state at the head, or at `at`: a Checkpoint, an id, a unique prefix of one, or a step number."""
        wanted = as_ or self.type
        values = self.values if as_ is None else Values(self.values.types.with_type(as_))
        for last_try in (False, True):
            head, id, branch, step, data = await self._row(at)
            reader = Reader(self.core, head.lineage, values)
            try:
                state = await reader.value((await reader.root(branch, step, data)).tree)
                break
            except Corrupt:
                # A sweep may have folded and freed what this root points at while it was read; then the head moved.
                if last_try or await self.core.engine.head(self.id) == head:
                    raise
        if at is None:
            self.writer.seen = id
        return state if wanted is None else conform(state, wanted)

    async def tail(self, key: str, count: int, at: Any = None) -> list[Any]:
        """The last `count` items of the list `state[key]`, without reading those before them."""
        limit = check_limit(count, "count") or 0
        head, _, branch, step, data = await self._row(at)
        reader = Reader(self.core, head.lineage, self.values)
        root = await reader.root(branch, step, data)
        node = (root.tree.children or {}).get(check_name(key, "key"))
        if node is None:
            return []
        total = node.count if isinstance(node, Listing) else limit
        if isinstance(node, Inline):
            return (await reader.items(node, 0, 2**31))[-limit:] if limit else []
        return await reader.items(node, max(0, total - limit), total)

    async def root(self, at: Any = None) -> tuple[Head, Root, Reader]:
        """For views: the head, the root at a place, and a reader for what it points at."""
        head, _, branch, step, data = await self._row(at)
        reader = Reader(self.core, head.lineage, self.values)
        return head, await reader.root(branch, step, data), reader

    async def _row(self, at: Any) -> tuple[Head, bytes, bytes, int, bytes]:
        """(head, checkpoint id, branch, step, root's bytes) of a place."""
        self.core.check_open()
        if at is None:
            found = await self.core.engine.tip(self.id)
            if found is None:
                raise ThreadNotFound(self.id)
            head, row = found
            id, branch, step = open_note(self.core.frames, head).checkpoint, head.branch, head.step
        else:
            head = await self._head()
            seen = await find(self.core, head, at)
            id, branch, step = seen.step.id, seen.branch.id, seen.step.step
            row = await self.core.engine.row(head.lineage, branch, step)
        if row is None:
            raise Corrupt(f"step {step} of branch {branch.hex()}", "the row is missing")
        return head, id, branch, step, row.root

    async def head(self) -> Checkpoint | None:
        """The checkpoint the thread stands at."""
        self.core.check_open()
        head = await self.core.engine.head(self.id)
        if head is None:
            return None
        return await describe(self.core, head, await find(self.core, head, head.step))

    async def step(self) -> int:
        """The number of the head's step, 0 when there is none."""
        self.core.check_open()
        head = await self.core.engine.head(self.id)
        return head.step if head is not None else 0

    async def exists(self) -> bool:
        """Whether the thread has a checkpoint."""
        self.core.check_open()
        return await self.core.engine.head(self.id) is not None

    async def get(self, at: Any) -> Checkpoint:
        """The checkpoint that `at` names."""
        head = await self._head()
        return await describe(self.core, head, await find(self.core, head, at))

    async def history(
        self, limit: int | None = None, newest_first: bool = False, all: bool = False
    ) -> list[Checkpoint]:
        """The checkpoints on the way to the head, oldest first, what a fork inherited included. `limit` keeps the
        newest. `all`: also what rewinds left behind."""
        most = check_limit(limit)
        head = await self._head(missing_ok=True)
        if head is None:
            return []
        trail = await Trail.to(self.core, head, head.branch, head.step)
        seen: list[Seen] = []
        extra = 1 if most is not None else 0  # one more, for the oldest one's parent
        async for one in trail.back():
            if one.alive:
                seen.append(one)
                if most is not None and not all and len(seen) == most + extra:
                    break
        checkpoints = list(pair_up(self.core, seen[::-1]))
        if all:
            checkpoints += await self._abandoned(head, trail)
            checkpoints.sort(key=lambda c: (c.step, c.created_at, c.id))
        if most is not None:
            checkpoints = checkpoints[-most:] if most else []
        return checkpoints[::-1] if newest_first else checkpoints

    async def _abandoned(self, head: Head, trail: Trail) -> list[Checkpoint]:
        """What this thread wrote that is not on its trail."""
        result: list[Checkpoint] = []
        for branch in await visible(self.core, head):
            parent: bytes | None = None
            for one in await self._written(head, branch):
                if (branch.id, one.step.step) in trail:
                    parent = one.step.id
                    continue
                if parent is None:
                    before = await parent_of(self.core, head, branch.id, one.step.step)
                    parent = before.step.id if before is not None else None
                result.append(
                    checkpoint(
                        self.core.values, branch.thread, one.step.id, one.step.step, one.meta, one.remark, parent
                    )
                )
                parent = one.step.id
        return result

    async def _written(self, head: Head, branch: Branch) -> list[Seen]:
        """The living checkpoints of a branch, oldest first."""
        steps = await self.core.engine.steps(head.lineage, branch.id, 1, LAST_STEP)
        return [seen for seen in (look(self.core, head, branch, step) for step in steps) if seen.alive]

    async def find(
        self, tag: str | None = None, label: str | None = None, custom: dict[str, Any] | None = None
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

    async def diff(self, a: Any, b: Any = None) -> Diff:
        """What changed from `a` to `b` (the head, if not given). Descends only where the two differ."""
        head = await self._head()
        one = await find(self.core, head, a)
        other = await find(self.core, head, head.step if b is None else b)
        reader = Reader(self.core, head.lineage, self.values)
        roots = []
        for seen in (one, other):
            row = await self.core.engine.row(head.lineage, seen.branch.id, seen.step.step)
            if row is None:
                raise Corrupt(f"step {seen.step.step} of branch {seen.branch.id.hex()}", "the row is missing")
            roots.append(await reader.root(seen.branch.id, seen.step.step, row.root))
        changes = await differ.compare(reader, self.values, roots[0].tree, roots[1].tree)
        return Diff(await describe(self.core, head, one), await describe(self.core, head, other), tuple(changes))

    # -- moving the head --------------------------------------------------------------------------------------------

    async def fork(self, to: str | None = None, at: Any = None) -> str:
        """Make a new thread that stands where this one does, or at `at`. Writes one record; returns the new name."""
        if to is not None:
            if not await self._fork(check_name(to, "thread id"), at):
                raise Conflict(to, None, None, f"thread {to!r} exists already: fork to another name")
            return to
        self.core.check_open()
        taken = {h.thread for h in await self.core.engine.threads(prefix=f"{self.id}#fork-")}
        number = 1
        while True:
            name = check_name(f"{self.id}#fork-{number}", "thread id")
            if name not in taken and await self._fork(name, at):
                return name
            number += 1

    async def _fork(self, name: str, at: Any) -> bool:
        """False if a thread of that name exists."""
        for _ in range(_ATTEMPTS):
            head = await self._head()
            seen = await find(self.core, head, head.step if at is None else at)
            if await self.core.engine.head(name) is not None:
                return False
            now = self.core.now()
            owner, size = os.urandom(16), seen.meta.size
            bare = Head(name, head.lineage, owner, seen.branch.id, seen.step.step, 1, head.kind, now, now, 0, size)
            known = open_note(self.core.frames, head)
            note = Note(seen.step.id, True, retention=known.retention, dictionary=known.dictionary)
            forked = msgspec.structs.replace(bare, note=seal_note(self.core.frames, bare, note))
            # The parent's head is swapped for itself: a prune that ran since the look above must not go unnoticed.
            stay = Swap(self.id, head.key, touch(self.core.frames, head, head.updated))
            try:
                await self.core.engine.commit(Commit(head.lineage, (Swap(name, None, forked), stay)))
            except Conflict:
                continue
            return True
        raise Conflict(self.id, None, None, f"thread {self.id!r} kept moving: fork it when its writers rest")

    async def rewind(self, at: Any, prune: bool = False) -> Checkpoint:
        """Move the head back (or anywhere else) to `at`. What is left behind stays reachable, and `undo` goes back;
        with `prune`, what came after `at` on the way to the old head is deleted instead."""
        for _ in range(_ATTEMPTS):
            head = await self._head()
            seen = await find(self.core, head, at)
            note = open_note(self.core.frames, head)
            target, here = (seen.branch.id, seen.step.step), (head.branch, head.step)
            if target == here:
                self.writer.seen = seen.step.id
                return await describe(self.core, head, seen)
            moves = note.moves if prune else (*note.moves, Move(target, here))[-MAX_MOVES:]
            doomed = await self._after(head, target) if prune else []
            if await self._move(head, seen, moves, doomed):
                return await describe(self.core, head, seen)
        raise Conflict(self.id, None, None, f"thread {self.id!r} kept moving: rewind it when its writers rest")

    async def standing(self) -> Head:
        """For views: the head as the engine keeps it."""
        return cast("Head", await self._head())

    async def rewind_from(self, head: Head, at: Any) -> bool:
        """For views: rewind, but only from exactly this head; False if another writer was faster."""
        seen = await find(self.core, head, at)
        target, here = (seen.branch.id, seen.step.step), (head.branch, head.step)
        return await self._move(
            head, seen, (*open_note(self.core.frames, head).moves, Move(target, here))[-MAX_MOVES:], []
        )

    async def undo(self) -> Checkpoint:
        """Take back the last move of the head: a rewind, or a save."""
        for _ in range(_ATTEMPTS):
            head = await self._head()
            note = open_note(self.core.frames, head)
            moves = note.moves
            if moves and moves[-1].to == (head.branch, head.step):
                branch = await self.core.branch(head.lineage, moves[-1].back[0])
                place, moves = moves[-1].back, moves[:-1]
                trail = await Trail.to(self.core, head, *place) if branch is not None else None
                seen = await trail.living() if trail is not None else None
            else:
                seen = await parent_of(self.core, head, head.branch, head.step)
            if seen is None:
                raise NoCheckpoint(f"thread {self.id!r} has nothing before step {head.step} to go back to")
            if await self._move(head, seen, moves, []):
                return await describe(self.core, head, seen)
        raise Conflict(self.id, None, None, f"thread {self.id!r} kept moving: undo when its writers rest")

    async def _after(self, head: Head, target: tuple[bytes, int]) -> list[Seen]:
        """The living checkpoints between a place and the head, if the place is on the trail."""
        trail = await Trail.to(self.core, head, head.branch, head.step)
        if target not in trail:
            raise InvalidInput("prune=True needs a checkpoint on the way to the head")
        return [one async for one in trail.back(target[1] + 1) if one.alive and one.branch.owner == head.owner]

    async def _move(self, head: Head, seen: Seen, moves: tuple[Move, ...], doomed: list[Seen]) -> bool:
        """Put the head at a place; False if another writer was faster."""
        known = open_note(self.core.frames, head)
        note = msgspec.structs.replace(known, checkpoint=seen.step.id, pinned=True, moves=moves)
        bare = msgspec.structs.replace(
            head,
            branch=seen.branch.id,
            step=seen.step.step,
            version=head.version + 1,
            updated=max(self.core.now(), head.updated + 1),
            size=seen.meta.size,
            count=head.count - len(doomed),
            note=b"",
        )
        moved = msgspec.structs.replace(bare, note=seal_note(self.core.frames, bare, note))
        marks = [self._mark(one, deleted=True) for one in doomed]
        self.core.tips.take(self.id)
        try:
            await self.core.engine.commit(
                Commit(head.lineage, (Swap(self.id, head.key, moved),), marks=marks, fence=self.writer.fence)
            )
        except Conflict:
            if self.writer.fence is not None and await self.core.engine.head(self.id) == head:
                raise
            return False
        self.writer.seen = seen.step.id
        return True

    # -- saying things about checkpoints, and taking them away --------------------------------------------------------

    def _mark(self, seen: Seen, *, deleted: bool, label: Any = UNSET, tags: Any = UNSET, custom: Any = UNSET) -> Mark:
        said: Any = seen.remark or seen.meta
        remark = Remark(
            self.core.now(),
            deleted,
            said.label if label is UNSET else check_label(label),
            said.tags if tags is UNSET else check_tags(tags),
            said.custom if custom is UNSET else self._pack_custom(custom),
        )
        where = f"step {seen.step.step} of branch {seen.branch.id.hex()}: mark"
        return Mark(seen.branch.id, seen.step.step, self.core.frames.wrap(pack_remark(remark), where))

    def _pack_custom(self, custom: Any) -> bytes:
        fields = check_custom(custom)
        return self.values.encode(fields, "custom") if fields else b""

    async def annotate(self, at: Any, label: Any = UNSET, tags: Any = UNSET, custom: Any = UNSET) -> Checkpoint:
        """Change what is said about a checkpoint; what is not given stays. The checkpoint itself never changes."""
        for _ in range(_ATTEMPTS):
            head = await self._head()
            seen = await find(self.core, head, at)
            gone = seen.remark is not None and seen.remark.deleted  # its writer deleted it; this thread stands on it
            mark = self._mark(seen, deleted=gone, label=label, tags=tags, custom=custom)
            if await self._commit_marks(head, touch(self.core.frames, head, self.core.now()), [mark]):
                return await describe(self.core, head, await find(self.core, head, uuid_text(seen.step.id)))
        raise Conflict(self.id, None, None, f"thread {self.id!r} kept moving: annotate when its writers rest")

    async def delete(self, at: Any = None) -> None:
        """Delete the thread, or one checkpoint of it. Checkpoints that followed it, and forks, stay loadable."""
        if at is None:
            return await self._delete_thread()
        for _ in range(_ATTEMPTS):
            head = await self._head()
            seen = await find(self.core, head, at)
            if seen.branch.owner != head.owner:
                raise CheckpointNotFound(self.id, at, f"it belongs to thread {seen.branch.thread!r}: delete it there")
            if (seen.branch.id, seen.step.step) == (head.branch, head.step):
                before = await parent_of(self.core, head, head.branch, head.step)
                if before is None:
                    return await self._delete_thread()
                moves = tuple(m for m in open_note(self.core.frames, head).moves if m.to != (head.branch, head.step))
                if await self._move(head, before, moves, [seen]):
                    return None
            elif await self._commit_marks(
                head,
                touch(self.core.frames, head, self.core.now(), count=head.count - 1),
                [self._mark(seen, deleted=True)],
            ):
                return None
        raise Conflict(self.id, None, None, f"thread {self.id!r} kept moving: delete when its writers rest")

    async def _commit_marks(self, head: Head, touched: Head, marks: list[Mark]) -> bool:
        self.core.tips.take(self.id)
        try:
            await self.core.engine.commit(
                Commit(head.lineage, (Swap(self.id, head.key, touched),), marks=marks, fence=self.writer.fence)
            )
        except Conflict:
            if self.writer.fence is not None and await self.core.engine.head(self.id) == head:
                raise
            return False
        return True

    async def _delete_thread(self) -> None:
        for _ in range(_ATTEMPTS):
            head = await self._head()
            self.core.tips.take(self.id)
            try:
                await self.core.engine.commit(
                    Commit(head.lineage, (Swap(self.id, head.key, None),), fence=self.writer.fence)
                )
            except Conflict:
                if self.writer.fence is not None and await self.core.engine.head(self.id) == head:
                    raise
                continue
            self.writer.seen = None
            await clear_lineage(self.core, head.lineage)
            return
        raise Conflict(self.id, None, None, f"thread {self.id!r} kept moving: delete it when its writers rest")

    async def _head(self, missing_ok: bool = False) -> Any:
        self.core.check_open()
        head = await self.core.engine.head(self.id)
        if head is None and not missing_ok:
            raise ThreadNotFound(self.id)
        return head

    async def refresh(self) -> None:
        """For views: forget what this process remembers of the thread."""
        self.core.tips.take(self.id)
        self.writer.seen = None

    async def warm(self) -> None:
        """For views: read the tip, so that the next append is one round trip."""
        tip = await read_tip(self.core, self.id, self.values)
        if tip is not None:
            self.core.tips.put(tip)


async def clear_lineage(core: Core, lineage: str) -> None:
    """Free everything of a lineage in which no thread is left; a thread that appears meanwhile keeps it all."""
    if await core.engine.heads(lineage):
        return
    branches = [branch.id for branch in await core.engine.branches(lineage)]
    blobs = [id for id, _ in await core.engine.blob_ids(lineage)]
    try:
        await core.engine.drop(Drop(lineage, (), branches=branches, blobs=blobs))
    except Conflict:
        return  # somebody made a thread of that name just now: what it does not use is for the next sweep
