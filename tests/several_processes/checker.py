"""What a mirror promises to several processes, held against the two sides once everything has healed.

Each promise is a function that yields what breaks it. A finding is sure: whatever a partition may excuse is excused,
by when each operation was made, on which side, and who could know of it (`views`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from math import inf
from typing import Any, TypeVar

import msgspec

import backtrail
from several_processes.ledger import Ledger, Operation
from several_processes.views import Views

T = TypeVar("T")
ALLOWED = {
    "Unavailable",
    "Closed",
    "Interrupted",
    "Conflict",
    "LockLost",
    "LockTimeout",
    "NotFound",
    "ThreadNotFound",
    "CheckpointNotFound",
    "NoCheckpoint",
}


class Finding(msgspec.Struct, frozen=True):
    """One broken promise. `words`: what to look for in the story of the round."""

    kind: str
    text: str
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class Found:
    """What one side holds, opened alone."""

    def __init__(self, store: backtrail.Store) -> None:
        self.threads = store.threads()
        self.histories: dict[str, list[backtrail.Checkpoint]] = {}
        self.states: dict[tuple[str, str], Any] = {}
        self.heads: dict[str, str] = {}
        self.problems: list[str] = []
        self.unreadable: set[str] = set()
        for info in self.threads:
            thread = store.thread(info.id)
            self.heads[info.id] = info.head
            history = self._read(info.id, partial(thread.history, all=True), None)
            self.histories[info.id] = history or []
            if history is None:
                self.unreadable.add(info.id)
            for checkpoint in self.histories[info.id]:
                state = self._read(f"{info.id} at {checkpoint.id}", partial(thread.load, checkpoint.id), None)
                if state is not None:
                    self.states[info.id, checkpoint.id] = state
        self.problems += [str(problem) for problem in store.verify().problems]

    def _read(self, what: str, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except backtrail.BacktrailError as error:
            self.problems.append(f"{what}: {type(error).__name__}: {error}")
            return otherwise


class Checker:
    """The promises, asked of one round."""

    def __init__(self, ledger: Ledger, views: Views, one: Found, two: Found) -> None:
        self.ledger, self.views, self.one, self.two = ledger, views, one, two
        self.ids = {name: {checkpoint.id for checkpoint in one.histories[name]} for name in one.histories}
        self.saves = ledger.all("save")
        self.deletes: dict[str, list[Operation]] = defaultdict(list)
        for delete in ledger.all("delete thread"):
            if not delete.refused:
                self.deletes[delete.thread].append(delete)

    def findings(self) -> list[Finding]:
        promises = (
            self.clients_are_well,
            self.errors_are_those_that_callers_expect,
            self.sides_are_equal,
            self.stores_are_sound,
            self.saves_are_there,
            self.nothing_is_doubled,
            self.forks_are_there,
            self.deleted_threads_stay_deleted,
            self.deleted_checkpoints_stay_deleted,
            self.annotations_are_there,
            self.heads_are_where_the_last_move_left_them,
        )
        return [finding for promise in promises for finding in promise()]

    # -- who has what -------------------------------------------------------------------------------------------------

    def family(self, thread: str) -> list[str]:
        """The thread, and what is kept of it under other names."""
        return [name for name in self.ids if name == thread or name.startswith(f"{thread}#diverged-")]

    @cached_property
    def acknowledged(self) -> dict[str, Operation]:
        """The save of each checkpoint, the first that was acknowledged."""
        found: dict[str, Operation] = {}
        for save in self.saves:
            if save.acknowledged and save.id is not None:
                found.setdefault(save.id, save)
        return found

    @cached_property
    def deleted_by_id(self) -> dict[str, list[Operation]]:
        """Deletions of single checkpoints, tried or done."""
        found: dict[str, list[Operation]] = defaultdict(list)
        for delete in self.ledger.all("delete at"):
            if not delete.refused:
                found[delete.target or ""].append(delete)
        return found

    def may_be_deleted(self, save: Operation) -> bool:
        """Somebody may have deleted this save, knowing it."""
        if save.id in self.deleted_by_id:
            return True
        pruned = [each for each in self.ledger.all("prune") if each.end >= save.begin]
        if save.thread.startswith("kept-") and (pruned or self._retained(save.thread)):
            return True
        return self._gone(save)

    def _retained(self, thread: str) -> bool:
        """The thread has a policy of its own, which each save applies."""
        return bool(self.ledger.all("retain", thread=thread))

    # -- the promises -------------------------------------------------------------------------------------------------

    def clients_are_well(self) -> Iterator[Finding]:
        for fault in self.ledger.faults:
            yield Finding("a client ended", fault)
        for told in self.ledger.unsettled:
            yield Finding("does not catch up", told)

    def errors_are_those_that_callers_expect(self) -> Iterator[Finding]:
        for each in self.ledger.operations:
            if each.error is not None and each.error not in ALLOWED:
                yield Finding(f"forbidden error {each.error}", f"{each}\n{each.trace}", (each.thread,))
            elif each.error in ("CheckpointNotFound", "ThreadNotFound", "NotFound") and self._untrue(each):
                yield Finding("NotFound that is not true", str(each), (each.thread, each.target or ""))

    def _untrue(self, each: Operation) -> bool:
        """The side that was asked had that checkpoint, in the same generation, and nobody deleted it."""
        save = self.acknowledged.get(each.target or "")
        thread = each.source or each.thread
        return (
            save is not None
            and save.thread == thread
            and save.where is not None
            and save.where == each.asked
            and save.end < each.begin
            and not self.deletes[thread]
            and not self.deleted_by_id[save.id or ""]
            and not thread.startswith("kept-")
            and "belongs to" not in each.text  # others have merged that side: it is in a thread beside this one
        )

    def sides_are_equal(self) -> Iterator[Finding]:
        for name in sorted(self.one.histories.keys() ^ self.two.histories.keys()):
            where = "primary" if name in self.one.histories else "replica"
            yield Finding("sides differ", f"only the {where} has {name!r}", (name,))
        for here, there in zip(self.one.threads, self.two.threads, strict=False):
            if here.id == there.id and here != there:
                yield Finding("sides differ", f"threads():\n  {here}\n  {there}", (here.id,))
        for name in self.one.histories.keys() & self.two.histories.keys():
            if self.one.histories[name] != self.two.histories[name]:
                yield Finding("sides differ", f"history of {name!r}: {self._difference(name)}", (name,))
        for key in self.one.states.keys() & self.two.states.keys():
            if self.one.states[key] != self.two.states[key]:
                yield Finding("sides differ", f"state of {key}", key)

    def _difference(self, name: str) -> str:
        one = {checkpoint.id: checkpoint for checkpoint in self.one.histories[name]}
        two = {checkpoint.id: checkpoint for checkpoint in self.two.histories[name]}
        told = [f"only the primary has {id}" for id in one.keys() - two.keys()]
        told += [f"only the replica has {id}" for id in two.keys() - one.keys()]
        told += [f"{one[id]} is there {two[id]}" for id in one.keys() & two.keys() if one[id] != two[id]]
        return "; ".join(told) or "another order"

    def stores_are_sound(self) -> Iterator[Finding]:
        for name, side in (("primary", self.one), ("replica", self.two)):
            for problem in side.problems:
                yield Finding("verify", f"{name}: {problem}")

    def saves_are_there(self) -> Iterator[Finding]:
        for id, save in self.acknowledged.items():
            names = [name for name in self.family(save.thread) if id in self.ids[name]]
            if not names:
                unreadable = self.one.unreadable & {*self.family(save.thread)}  # a finding of its own
                if not unreadable and not self.may_be_deleted(save):
                    elsewhere = [name for name in self.ids if id in self.ids[name]]
                    kind = "lost save" if not elsewhere else "save under another name"
                    yield Finding(kind, f"{save} {elsewhere or ''}", (id, f"'{save.thread}'"))
                continue
            for name in names:
                state = self.one.states.get((name, id))
                if state is not None and save.token not in state.get("messages", ()):
                    yield Finding("lost content", f"{name!r} at {id} lacks {save.token}", (id, save.token or ""))

    def nothing_is_doubled(self) -> Iterator[Finding]:
        made: dict[str, set[str]] = defaultdict(set)  # token -> the checkpoints that brought it
        tried = {save.token for save in self.saves}
        for name, history in self.one.histories.items():
            for id, times in Counter(checkpoint.id for checkpoint in history).items():
                if times > 1:
                    yield Finding("doubled id", f"{id} is {times} times in {name!r}", (id,))
            for checkpoint in history:
                messages = self.one.states.get((name, checkpoint.id), {}).get("messages", [])
                for token, times in Counter(messages).items():
                    # A repeated save is recognized by its checkpoint, unless retention has removed that meanwhile.
                    if times > 1 and not self._retained(name):
                        yield Finding(
                            "message twice", f"{token} in {name!r} at {checkpoint.id}", (checkpoint.id, token)
                        )
                    if token not in tried:
                        yield Finding("invented", f"{token} in {name!r} at {checkpoint.id}", (checkpoint.id, token))
                if messages:
                    made[messages[-1]].add(checkpoint.id)
        for token, ids in made.items():
            if len(ids) > 1:
                yield Finding("saved twice", f"{token} is what {sorted(ids)} brought", (token, *ids))

    def forks_are_there(self) -> Iterator[Finding]:
        for fork in self.ledger.all("fork"):
            if not fork.acknowledged or self._gone(fork):
                continue
            found = self.family(fork.thread)
            #: a fork that moved away does not list what it was forked at: that is the other thread's
            moved = self.ledger.all("rewind", "undo", "delete at", thread=fork.thread)
            kept = any(fork.target in self.ids[name] or self._has_state_of(name, fork.target) for name in found)
            if not found or not (kept or moved or fork.target in self.deleted_by_id):
                yield Finding("lost fork", f"{fork}; there is {found}", (fork.thread, fork.target or ""))

    def _has_state_of(self, name: str, id: str | None) -> bool:
        """The thread builds on a save, perhaps on the copy of it that went: then it does not list it."""
        save = self.acknowledged.get(id or "")
        state = self.one.states.get((name, self.one.heads[name]))
        return save is not None and state is not None and save.token in state.get("messages", ())

    def _gone(self, made: Operation) -> bool:
        """Somebody may have deleted the thread of this operation, knowing it."""
        return any(
            delete.end >= made.begin and self.views.could_know(delete, made) for delete in self.deletes[made.thread]
        )

    def deleted_threads_stay_deleted(self) -> Iterator[Finding]:
        """A name that was deleted exists only with a checkpoint that the deletion need not have known."""
        for name in self.ids:
            thread, _, diverged = name.partition("#diverged-")
            deletes = [delete for delete in self.deletes[thread] if delete.acknowledged]
            reason = [id for id in self.ids[name] if not self._surely_deleted(id, thread, deletes, bool(diverged))]
            if deletes and not reason:
                told = "\n  ".join(map(str, deletes))
                yield Finding("deleted thread is back", f"{name!r} has {sorted(self.ids[name])}\n  {told}", (thread,))

    def _surely_deleted(self, id: str, thread: str, deletes: list[Operation], diverged: bool) -> bool:
        save = self.acknowledged.get(id)
        if save is None or save.thread != thread:
            return False  # without an answer, or inherited
        repeats = [each for each in self.saves if each.id == id]
        return any(
            all(delete.surely_knew(each) for each in repeats) and (not diverged or delete.where == save.where)
            for delete in deletes
        )

    def deleted_checkpoints_stay_deleted(self) -> Iterator[Finding]:
        gone = [
            (each.thread, each.target, each.begin, str(each)) for each in self.ledger.all("delete at") if each.end < inf
        ]
        gone += [(thread, id, at, "pruned") for thread, id, at in self.ledger.pruned]
        for thread, id, at, told in gone:
            if any(save.id == id and save.end >= at for save in self.saves):
                continue  # it was saved anew, under the id that its caller had chosen
            for name in self.family(thread):
                if id in self.ids[name] and not self._restored(name, id, at):
                    kind = "pruned" if told == "pruned" else "deleted"
                    yield Finding(f"{kind} checkpoint is back", f"{id} in {name!r}: {told}", (id or "",))

    def _restored(self, name: str, id: str | None, deleted: float) -> bool:
        """A head stands on the checkpoint, or was moved to it or has continued from it since it was deleted, by a
        process that saw another side: a head on a checkpoint restores it, also one that lost and is kept beside its
        thread. There, too, may be a save that was made on both sides, with what was built on the one that lost. If two
        threads of one name made it, one of the two may have been deleted. And if it was the last one of its thread,
        that was deleted without the checkpoints that a fork has."""
        moved = [each for each in self.ledger.all("rewind") if each.target == id and each.end >= deleted]
        later = {each.id for each in self.saves if each.end >= deleted}
        beside = "#diverged-" in name
        built = any(one.parent_id == id and (beside or one.id in later) for one in self.one.histories[name])
        family = self.family(name.partition("#diverged-")[0])
        stands = any(self.one.heads[one] == id for one in family)
        forked = any(id in self.ids[one] for one in self.ids if one not in family)
        twice = sum(each.id == id for each in self.saves) > 1 or any(each.moved for each in self.saves if each.id == id)
        return stands or forked or bool(moved) or built or (twice and len(family) > 1)

    def annotations_are_there(self) -> Iterator[Finding]:
        annotations: dict[str, list[Operation]] = defaultdict(list)
        for annotation in self.ledger.all("annotate"):
            annotations[annotation.target or ""].append(annotation)
        for id, several in annotations.items():
            done = [each for each in several if each.acknowledged]
            #: one that another, which surely knew it, replaced does not count any more
            valid = {each.label for each in several if not any(later.surely_knew(each) for later in done)}
            if not done or id in self.deleted_by_id or all(self._gone(each) for each in done):
                continue
            #: a save that was repeated by another thread of its name may be there twice, and was annotated once
            labels = {one.label for history in self.one.histories.values() for one in history if one.id == id}
            if labels and not labels & valid:
                told = "\n  ".join(map(str, several))
                text = f"{id} has {sorted(map(str, labels))}, not one of {sorted(map(str, valid))}\n  {told}"
                yield Finding("lost annotation", text, (id,))

    def heads_are_where_the_last_move_left_them(self) -> Iterator[Finding]:
        """Of a thread that only one process wrote to, whose every call was answered by a side."""
        moves = ("save", "rewind", "undo", "delete at")
        for name in [name for name in self.ids if name.startswith("own-")]:
            made = self.ledger.all(*moves, thread=name)
            if not made or len({(each.client, each.life) for each in made}) > 1 or made[-1].do == "delete at":
                continue
            ends = [each.end for each in made]
            alone = all(end < later.begin for end, later in zip(ends, made[1:], strict=False))
            generations = [each.where[1] for each in made if each.where]
            sure = alone and len(generations) == len(made) and generations[-1] == max(generations)
            #: a prune of a newer generation changes all heads as they are on its side
            prunes = self.ledger.all("prune") if sure else []
            pruned = [each for each in prunes if each.after is None or each.after[1] > generations[-1]]
            if sure and not pruned and self.one.heads[name] != made[-1].id:
                text = f"{name!r} is at {self.one.heads[name]}, and the last move was\n  {made[-1]}"
                yield Finding("wrong head", text, (name,))
