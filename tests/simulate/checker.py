"""The checker: compares both servers at the end with the ledger, by the promises of a mirror to several processes.

A promise that a process cannot rely on is not checked: what was deleted, pruned or annotated at the same time as
something else, by a caller who could not know of it, may come out either way. So each rule says first what excuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

import backtrail
from backtrail.engines.base import Engine
from backtrail.errors import Conflict, LockTimeout, NotFound, Unavailable

from .plan import Plan
from .servers import records
from .workload import SAVES, Call, Ledger

ALLOWED = (Unavailable, Conflict, LockTimeout, NotFound)


class Failure(msgspec.Struct, frozen=True):
    """A promise that was broken: which one, and how."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class Sides:
    """What both servers have at the end, each opened alone."""

    def __init__(self, engines: dict[str, Engine]) -> None:
        self.stores = {name: backtrail.open(engine) for name, engine in engines.items()}
        self.histories: dict[str, list[backtrail.Checkpoint]] = {}
        self.heads: dict[str, str] = {}  #: ids of checkpoints
        self.states: dict[tuple[str, str], Any] = {}
        self.differences: list[Failure] = []
        one, two = map(records, engines.values())
        self._compare(one == two)

    def _compare(self, same: bool) -> None:
        """Compare what both tell; one is enough if they have the `same` records."""
        one, two = self.stores.values()
        here, there = ({info.id: info for info in store.threads()} for store in (one, one if same else two))
        for name in sorted({*here, *there}):
            if here.get(name) != there.get(name):
                self._differ(f"thread {name!r}: {_shown(here.get(name))} and {_shown(there.get(name))}")
        for name in here:
            self.heads[name] = here[name].head
            try:
                self._compare_thread(name, name in there and not same)
            except (backtrail.Corrupt, NotFound) as error:
                self.differences.append(Failure("damage", f"{name!r}: {type(error).__name__}: {error}"))
        for side, store in [*self.stores.items()][: 1 if same else 2]:
            self.differences += [Failure("verify", f"{side}: {problem}") for problem in store.verify().problems]

    def _compare_thread(self, name: str, in_both: bool) -> None:
        one, two = (store.thread(name) for store in self.stores.values())
        here = self.histories[name] = one.history(all=True)
        there = two.history(all=True) if in_both else []
        if in_both and here != there:
            shown = [[(checkpoint.id[-6:], checkpoint.label) for checkpoint in side] for side in (here, there)]
            self._differ(f"history of {name!r}: {shown[0]} and {shown[1]}")
        ids = {checkpoint.id for checkpoint in there}
        for checkpoint in here:
            state = self.states[name, checkpoint.id] = one.load(checkpoint.id)
            if checkpoint.id in ids and state != two.load(checkpoint.id):
                self._differ(f"state of {name!r} at {checkpoint.id}")

    def _differ(self, what: str) -> None:
        self.differences.append(Failure("the sides differ", what))

    def of(self, thread: str) -> list[str]:
        """The thread of this name and what was kept beside it."""
        return [name for name in self.histories if name == thread or name.startswith(f"{thread}#diverged-")]

    def ids(self, name: str) -> set[str]:
        return {checkpoint.id for checkpoint in self.histories[name]}

    def built_on(self, id: str, ledger: Ledger, moment: float) -> bool:
        """True if a save that was not over at that moment continued from this checkpoint."""
        later = {one.id for one in ledger.all(*SAVES) if not one.over_before(moment)}
        return any(one.parent_id == id and one.id in later for history in self.histories.values() for one in history)


def _shown(info: backtrail.ThreadInfo | None) -> str:
    return "none" if info is None else f"{info.head[-6:]} count {info.count} version {info.version}"


def check(plan: Plan, ledger: Ledger, engines: dict[str, Engine]) -> list[Failure]:
    """All promises that are broken, the worst first."""
    sides = Sides(engines)
    return [
        *_errors(plan, ledger),
        *_saves(ledger, sides),
        *_doubles(ledger, sides),
        *_forks(ledger, sides),
        *_deleted_threads(ledger, sides),
        *_deleted_checkpoints(ledger, sides),
        *_annotations(ledger, sides),
        *_heads(plan, ledger, sides),
        *sides.differences,
    ]


def _errors(plan: Plan, ledger: Ledger) -> Iterator[Failure]:
    """A caller sees only errors that it can act on; without a fault, the store is there."""
    for call in ledger.calls:
        error = call.error
        if error is None:
            continue
        if not isinstance(error, ALLOWED) or isinstance(error, backtrail.InvalidInput):
            yield Failure("an error that no caller may see", f"{call}: {type(error).__name__}: {error}")
        elif isinstance(error, Unavailable) and not plan.faults and not ledger.all("reopen"):
            yield Failure("unavailable without a fault", f"{call}: {error}")


def _may_be_deleted(ledger: Ledger, save: Call) -> bool:
    """True if somebody deleted the checkpoint of a save, or pruned it, or may have."""
    for call in ledger.calls:
        if call.kind in ("delete", "delete_at") and call.thread == save.thread:
            if any(save.id in known for known in (*call.known, call.known_beside)):
                return True
            if call.kind == "delete_at" and call.target == save.id and not call.did_nothing:
                return True
        if call.kind == "prune" and not call.over_before(save.begun) and not call.did_nothing:
            ended = save.ended if save.ended is not None else save.begun
            if call.pruned is None or save.id in call.pruned or call.begun <= ended:
                return True
    return False


def _saves(ledger: Ledger, sides: Sides) -> Iterator[Failure]:
    """Every acknowledged save is there, with its content."""
    for save in ledger.acknowledged(*SAVES):
        found = [name for name in sides.of(save.thread) if save.id in sides.ids(name)]
        if not found and not _may_be_deleted(ledger, save):
            yield Failure("an acknowledged save is lost", f"{save}, {str(save.id)[-6:]}")
        for name in found:
            state = sides.states.get((name, str(save.id)))
            if state is not None and save.text != state.get("messages", [""])[-1]:
                yield Failure("a save without its content", f"{save} is in {name!r} as {state}")
            if state is not None and save.kind == "update" and state.get("plan") != save.text:
                yield Failure("a save without its content", f"{save} is in {name!r} as {state}")


def _doubles(ledger: Ledger, sides: Sides) -> Iterator[Failure]:
    """Nothing is there twice: no id in a history, no message in a state, no save under two ids."""
    made: dict[str, set[str]] = {}  # by the last message, which is the one that a checkpoint was saved for
    for name, history in sides.histories.items():
        ids = [one.id for one in history]
        if len({*ids}) != len(ids):
            yield Failure("a checkpoint is twice in a history", f"{name!r}: {[id[-6:] for id in ids]}")
        for one in history:
            messages = sides.states.get((name, one.id), {}).get("messages", [])
            if messages:
                made.setdefault(messages[-1], set()).add(one.id)
            for text in {text for text in messages if messages.count(text) > 1}:
                if not _deleted_meanwhile(ledger, text):
                    yield Failure("a message is twice in a state", f"{name!r} at {one.id[-6:]}: {messages}")
    for text, ids_of in made.items():
        if len(ids_of) > 1:
            yield Failure("a save was made twice", f"{text}: {sorted(id[-6:] for id in ids_of)}")


def _deleted_meanwhile(ledger: Ledger, text: str) -> bool:
    """True if a save was still being repeated when somebody deleted the checkpoint that it had made unnoticed: then
    nothing is left by which it could be recognised, and it is made again."""
    save = next(call for call in ledger.calls if call.text == text)
    return any(not one.over_before(save.begun) and not one.did_nothing for one in ledger.all("delete_at", "prune"))


def _forks(ledger: Ledger, sides: Sides) -> Iterator[Failure]:
    """A fork that was acknowledged is there, unless somebody deleted it."""
    for call in ledger.acknowledged("fork"):
        name = call.operation.to
        deletes = [one for one in ledger.all("delete", "delete_at") if one.thread == name]
        if any(not one.over_before(call.begun) and not one.did_nothing for one in deletes):
            continue
        there = any(call.target in sides.ids(one) for one in sides.of(name))
        # It may be before the fork now; or it was made at the copy of a repeated save that went, and has its state.
        there = there or any(one.thread == name for one in ledger.all("undo", "rewind"))
        texts = {one.text for one in ledger.all(*SAVES) if one.id == call.target}
        states = [sides.states.get((one, sides.heads[one]), {}) for one in sides.of(name)]
        there = there or any(texts & {*state.get("messages", ())} for state in states)
        if not sides.of(name):
            yield Failure("an acknowledged fork is lost", str(call))
        elif call.target is not None and not there and not _target_deleted(ledger, call.target):
            yield Failure("a fork without its history", f"{call}: {sides.of(name)}")


def _target_deleted(ledger: Ledger, id: str) -> bool:
    deleted = any(one.target == id and not one.did_nothing for one in ledger.all("delete_at"))
    return deleted or any(not one.did_nothing for one in ledger.all("prune"))


def _deleted_threads(ledger: Ledger, sides: Sides) -> Iterator[Failure]:
    """Of a deleted thread, only such checkpoints are there as the deleting side did not know, or a fork has as well."""
    for call in ledger.acknowledged("delete", "delete_at"):
        if not call.deletes_thread:
            continue
        known = set.union(*call.known)
        saves = [one for one in ledger.all(*SAVES) if one.thread == call.thread]
        others = {one.id for one in saves} - known
        # A fork under the same name has checkpoints of the thread that it was made from.
        own = {one.id for one in saves} & set.intersection(*call.known)
        # A save that had not returned may have been made once more since; so may one by a request that arrived late,
        # as it may in a store without a mirror.
        again = {one.id for one in saves if not one.over_before(call.begun) or one.arrived_late}
        # The save that kept the thread may have been deleted by somebody since: that does not delete the others.
        removed = [
            one for one in ledger.all("delete_at", "prune") if one is not call and not one.over_before(call.begun)
        ]
        excused = any(one.kind == "prune" or one.target in others for one in removed if not one.did_nothing)
        for name in sides.of(call.thread):
            back = sides.ids(name) & own - again
            # A save that was made once more brings back what it builds on. And those that a fork has as well, or a head
            # that was kept beside its thread before the deletion was known, cannot be deleted for one of the two.
            if not back or excused or sides.ids(name) & again & own:
                continue
            trace = ledger.trace
            elsewhere = {id for id in back if trace.had_fork(id) or trace.in_two_lineages(id)}
            back = {id for id in back - elsewhere if not trace.made_again_after(id, call)}
            if back:
                yield Failure("a deleted thread is back", f"{call}: {name!r} has {[id[-6:] for id in sorted(back)]}")


def _deleted_checkpoints(ledger: Ledger, sides: Sides) -> Iterator[Failure]:
    """A checkpoint that was deleted or pruned stays deleted; unless its save was still being repeated, or had been in a
    newer generation, or by another thread of that name; or another thread has it, as a fork has the checkpoints that it
    was made from; or a head stood on it when the sides were merged, which restores it."""
    for call in ledger.acknowledged("delete_at", "prune"):
        if call.deletes_thread:
            continue  # it was the last one: what holds for the thread holds for it
        gone = {call.target} if call.kind == "delete_at" else call.pruned or set()
        for save in ledger.all(*SAVES):
            if save.id is None or save.id not in gone or not save.over_before(call.begun):
                continue
            if any(sides.heads[name] == save.id for name in sides.of(save.thread)):
                continue  # a head that stands on it, because of a move on the other side, restores it
            if sides.built_on(save.id, ledger, call.begun):
                continue  # … and may have moved on since
            names = sides.of(save.thread)
            back = [name for name in names if name not in call.beside and save.id in sides.ids(name)]
            if not back or ledger.trace.made_again_after(save.id, call) or ledger.trace.in_two_threads(save.id):
                continue
            if not ledger.trace.stood_at(save.id, [save.thread, *names], call.ended or call.begun):
                yield Failure("a deleted checkpoint is back", f"{call}: {save.id[-6:]} ({save}) is in {back}")


def _annotations(ledger: Ledger, sides: Sides) -> Iterator[Failure]:
    """A checkpoint has the label that it was given last, or one of those that were given at the same time, or on
    another side by somebody who did not know of this one; unless the thread was deleted since, and the label with it: a
    fork may still have the same save."""
    for call in ledger.acknowledged("annotate"):
        deletes = [one for one in ledger.all("delete", "delete_at") if one.thread == call.thread and one.deletes_thread]
        if call.target is None or any(not one.over_before(call.begun) and not one.did_nothing for one in deletes):
            continue
        later = [
            one
            for one in ledger.all("annotate")
            if one.target == call.target and not one.over_before(call.begun) and not one.did_nothing
        ]
        labels = {one.text for one in later}
        found = {
            checkpoint.label
            for name in sides.of(call.thread)
            for checkpoint in sides.histories[name]
            if checkpoint.id == call.target
        }
        if found and not found & labels and not _target_deleted(ledger, call.target):
            others = [one for one in ledger.all("annotate") if one.target == call.target and one.text in found]
            if any(not one.did_nothing and not ledger.trace.replaced(one) for one in others):
                continue
            yield Failure("an acknowledged annotation is lost", f"{call}: it has {found}, not one of {sorted(labels)}")


def _heads(plan: Plan, ledger: Ledger, sides: Sides) -> Iterator[Failure]:
    """Without faults, a thread is where the last call that was alone with it has put it."""
    if plan.faults:
        return
    for thread, history in sides.histories.items():
        calls = [one for one in ledger.calls if thread in (one.thread, one.operation.to if one.kind == "fork" else "")]
        if not calls or any(one.ended is None for one in calls):
            continue
        last = max(calls, key=lambda one: one.begun)
        if last.thread != thread:
            continue
        alone = all(one.over_before(last.begun) for one in calls if one is not last)
        put = last.id if last.kind in SAVES else last.target if last.kind == "rewind" else None
        if alone and last.acknowledged and put is not None and history:
            head = sides.heads[thread]
            if head != put:
                yield Failure("a head is elsewhere", f"{last}: {thread!r} is at {head[-6:]}, not at {put[-6:]}")
