"""A thread: one conversation or run, with a head and a history. Everything a user can do with one, in one colour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import UNSET

from backtrail.errors import InvalidInput, Unavailable
from backtrail.history.file_refs import tied
from backtrail.history.handle import S
from backtrail.history.moves import Moving
from backtrail.history.reads import Reading
from backtrail.history.retaining import Retaining
from backtrail.history.save import Facts
from backtrail.history.validation import check_name, check_names
from backtrail.model import Checkpoint

OnConflict = Literal["raise", "branch"]


class Thread(Reading[S], Moving[S], Retaining[S]):
    """One thread of a store: reads, moves its head, and saves."""

    async def save(
        self,
        state: Any,
        label: str | None = None,
        tags: Any = (),
        custom: Mapping[str, Any] | None = None,
        files: Any = None,
        expect: Any = UNSET,
        id: Any = None,
        on_conflict: OnConflict = "raise",
        parent: Any = UNSET,
    ) -> Checkpoint:
        """Save the whole state; only what changed since the head is written.

        `expect` is the checkpoint (or id) that must be the head, None for a thread that must not exist yet; without
        it, the last one this handle loaded or saved. If the head is another, that is a `Conflict`; with
        on_conflict="branch" the state is kept on a branch of its own instead, and the head stays where it is.
        `id` is a UUID of the caller's: a save that is repeated under an id that the thread has changes nothing.
        `parent` is the checkpoint to build on wherever the head is: if that is another, a branch begins at `parent`
        and the head goes along.
        """
        facts = Facts.check(self.values, label, tags, custom, None if files is None else await tied(files), id)
        try:
            return await self.writer.save(
                lambda planner: planner.replace(state),
                facts,
                expect=expect,
                whole=True,
                on_conflict=on_conflict,
                parent=parent,
            )
        except Unavailable:
            if self.context.spool is None or not self.context.spool.adrift:
                raise
            # What is there cannot be read to compare with; nor has it to be, since the state is whole.
            return await self.writer.save(
                lambda planner: planner.rewrite_all(state), facts, expect=expect, on_conflict=on_conflict, parent=parent
            )

    async def append(
        self,
        key: str,
        items: Any,
        label: str | None = None,
        tags: Any = (),
        custom: Mapping[str, Any] | None = None,
        files: Any = None,
        expect: Any = UNSET,
        id: Any = None,
    ) -> Checkpoint:
        """Add items at the end of the list `state[key]`. What is in it already is neither read nor compared, and where
        another writer was faster, the items go behind theirs. A thread or a list that is not there is made."""
        facts = Facts.check(self.values, label, tags, custom, None if files is None else await tied(files), id)
        if type(items) not in (list, tuple):
            raise InvalidInput(f"append() takes a list of items, not {type(items).__qualname__}")
        name = check_name(key, "key")
        added = list(items)
        rebase = expect is UNSET
        return await self.writer.save(lambda planner: planner.append(name, added), facts, expect=expect, rebase=rebase)

    async def update(
        self,
        changes: Mapping[str, Any],
        label: str | None = None,
        tags: Any = (),
        custom: Mapping[str, Any] | None = None,
        files: Any = None,
        expect: Any = UNSET,
        id: Any = None,
        on_conflict: OnConflict = "raise",
        parent: Any = UNSET,
        remove: Any = (),
        append: tuple[str, list[Any] | tuple[Any, ...]] | None = None,
    ) -> Checkpoint:
        """Set some top-level keys, take those in `remove` away, and add items at the end of one list with
        `append=(key, items)`, all in one checkpoint; everything else stays what it is, unread."""
        facts = Facts.check(self.values, label, tags, custom, None if files is None else await tied(files), id)
        if not isinstance(changes, Mapping):
            raise InvalidInput(f"update() takes a dict, not {type(changes).__qualname__}")
        changed = dict(changes)
        compares = any(type(value) in (list, dict) for value in changed.values())
        gone = check_names(remove, "remove", "key")
        added = None if append is None else _check_append(append)
        return await self.writer.save(
            lambda planner: planner.change(changed, append=added, drop=gone),
            facts,
            expect=expect,
            whole=compares,
            on_conflict=on_conflict,
            parent=parent,
        )

    async def annotate(self, at: Any, label: Any = UNSET, tags: Any = UNSET, custom: Any = UNSET) -> Checkpoint:
        """Change what is said about a checkpoint; what is not given stays. The checkpoint itself never changes."""
        if custom is not UNSET:
            head = await self.context.engine.head(self.id)
            if head is not None and head.kind == "workspace":
                raise InvalidInput(
                    f"{self.id!r} keeps a directory's snapshots: their custom fields are what they are made of"
                )
        return await super().annotate(at, label, tags, custom)

    async def edit(self, plan: Any, facts: Facts, *, whole: bool = False) -> Checkpoint:
        """For views: any plan, made for whatever the head is when it is committed."""
        return await self.writer.save(plan, facts, whole=whole, rebase=True)


def _check_append(value: Any) -> tuple[str, list[Any]]:
    if type(value) is not tuple or len(value) != 2 or type(value[1]) not in (list, tuple):
        raise InvalidInput(f"append must be a tuple (key, list of items), not {value!r:.80}")
    return check_name(value[0], "key"), list(value[1])
