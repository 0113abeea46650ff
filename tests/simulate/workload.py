"""What processes do, and the ledger of what became of it.

Each save carries a text of its own (the name of its operation), so that it can be found wherever it ends up, and found
twice if it was made twice.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import random
import uuid
from collections.abc import Awaitable
from contextvars import ContextVar
from typing import Any

import backtrail
from backtrail.errors import Unavailable

from .plan import Operation
from .trace import Trace

SAVES = ("append", "save", "update")
CALL: ContextVar[Call | None] = ContextVar("call", default=None)


class Call:
    """One operation, as its process saw it."""

    def __init__(self, operation: Operation, process: str, begun: float) -> None:
        self.operation = operation
        self.process = process
        self.begun = begun
        self.ended: float | None = None  #: None: its process died, or it hangs
        self.error: BaseException | None = None
        self.id: str | None = None  #: of the checkpoint that a save made, or may have made
        self.target: str | None = None  #: the checkpoint that it was about
        self.known: list[set[str]] = []  #: if it deleted a thread: the checkpoints that each server had in that only
        self.known_beside: set[str] = set()  #: those of them, on any server, that were also kept beside the thread
        self.generation: int | None = None  #: if it deleted a thread: the one that its tombstone names
        self.applied = False  #: a server carried out one of its commits, whatever the caller was told
        self.arrived_late = False  #: a server carried out one of its requests after its client had given it up
        self.beside: set[str] = set()  #: threads that had been kept beside its own when it ended
        self.marked: set[str] = set()  #: of a prune: the checkpoints that its commits have deleted on a server
        self.pruned: set[str] | None = None  #: of a prune: the checkpoints that it deleted, if nobody else deleted any

    @property
    def acknowledged(self) -> bool:
        return self.ended is not None and self.error is None

    @property
    def kind(self) -> str:
        return self.operation.kind

    @property
    def thread(self) -> str:
        return self.operation.thread

    @property
    def text(self) -> str:
        return self.operation.name

    @property
    def did_nothing(self) -> bool:
        """True if it raised an error that says so, and that is true."""
        return self.error is not None and not isinstance(self.error, Unavailable) and not self.applied

    @property
    def deletes_thread(self) -> bool:
        return bool(self.known)

    def over_before(self, moment: float) -> bool:
        """True if it was over before that moment, whatever became of it."""
        return self.ended is not None and self.ended < moment

    def __str__(self) -> str:
        about = f" {self.operation.to}" if self.kind == "fork" else f" {self.target[-6:]}" if self.target else ""
        return f"{self.text}: {self.process} {self.kind} {self.thread}{about}"


class Ledger:
    """All calls of all processes, in the order in which they began."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.trace = Trace()

    def acknowledged(self, *kinds: str) -> list[Call]:
        return [call for call in self.calls if call.acknowledged and call.kind in kinds]

    def all(self, *kinds: str) -> list[Call]:
        return [call for call in self.calls if call.kind in kinds]

    def pick(self, thread: str, where: float) -> str | None:
        """One of the checkpoints that were acknowledged for a thread."""
        ids = [call.id for call in self.acknowledged(*SAVES) if call.thread == thread and call.id]
        return ids[min(int(where * len(ids)), len(ids) - 1)] if ids else None


async def perform(store: backtrail.aio.AsyncStore, call: Call, ledger: Ledger) -> None:
    """Do what the operation says; the call's fields tell what came of it."""
    operation = call.operation
    thread = store.thread(operation.thread)
    kind = operation.kind
    if kind in SAVES:
        await _save(thread, call)
    elif kind in ("annotate", "rewind", "delete_at"):
        call.target = ledger.pick(operation.thread, operation.pick)
        if call.target is None:
            return
        if kind == "annotate":
            await thread.annotate(call.target, label=call.text)
        elif kind == "rewind":
            await thread.rewind(call.target)
        else:
            await thread.delete(call.target)
    elif kind == "undo":
        call.target = (await thread.undo()).id
    elif kind == "fork":
        call.target = ledger.pick(operation.thread, operation.pick)
        await thread.fork(operation.to, at=call.target)
    elif kind == "delete":
        await thread.delete()
    elif kind == "prune":
        done = await store.prune(backtrail.Retention(keep_last=operation.keep, undo_window=dt.timedelta(0)))
        alone = all(one is call or one.over_before(call.begun) for one in ledger.all("delete", "delete_at", "prune"))
        call.pruned = call.marked if alone and len(call.marked) == done.checkpoints else None
    elif kind == "catch_up":
        await store.catch_up()
    elif kind == "read":
        await thread.load()
        await thread.history(all=True)


async def _save(thread: Any, call: Call) -> None:
    operation = call.operation
    if operation.repeats:
        call.id = str(uuid.UUID(bytes=random.Random(operation.name).randbytes(16), version=4))
    state: Any = None
    if operation.kind == "save":
        try:
            state = await thread.load()
        except backtrail.NotFound:
            state = {"messages": []}
        state["messages"] = [*state.get("messages", []), operation.name]

    def attempt() -> Awaitable[backtrail.Checkpoint]:
        if operation.kind == "append":
            return thread.append("messages", [operation.name], id=call.id)  # type: ignore[no-any-return]
        if operation.kind == "update":
            return thread.update(  # type: ignore[no-any-return]
                {"plan": operation.name}, append=("messages", [operation.name]), id=call.id
            )
        return thread.save(state, id=call.id)  # type: ignore[no-any-return]

    for left in range(operation.repeats, -1, -1):
        try:
            call.id = (await attempt()).id
            return
        except Unavailable as error:
            call.id = call.id or error.id
            if not left or call.id is None:
                raise
        await asyncio.sleep(0.3)
