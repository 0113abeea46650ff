"""The frozen values that users get from a store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, Literal, TypeAlias
from uuid import UUID

import msgspec

from backtrail.errors import InvalidInput
from backtrail.html_table import html_table

MAX_NUMBER = 2**63  #: counts and numbers of messages in the state of a session or a run are below it
MAX_GIVEN = 2**53  #: and those that a caller or a file begins with below this: counting never gets from here to there

Shape = Literal["dict", "list", "text", "bytes", "value"]
Relation = Literal["child", "parent", "sibling"]
Kind = Literal["thread", "session", "run", "workspace"]
Status = Literal["running", "ready", "waiting", "sleeping", "finished", "failed"]  #: of a run

_SHOWN_IN_NOTEBOOK = 100  # changes of a difference


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An immutable saved state of a thread: everything but the state itself."""

    id: str  #: a time-ordered UUID
    thread_id: str  #: the thread that wrote it (for a fork's inherited history, the thread it was forked from)
    parent_id: str | None  #: the checkpoint before it; None for the first
    step: int  #: its number in the history: 1, 2, 3, …
    created_at: dt.datetime  #: in UTC
    label: str | None = None  #: a name of yours; any call takes it for the checkpoint
    tags: tuple[str, ...] = ()
    custom: dict[str, Any] = {}  #: fields of yours; `find` looks for them
    size: int = 0  #: encoded bytes of the whole state
    written: int = 0  #: bytes that saving it wrote
    files: str | None = None  #: id of the file snapshot that belongs to it
    damage: str | None = None  #: why it cannot be read; then only its id and step are sure

    def _repr_html_(self) -> str:
        """For notebooks: a table of what is known of it."""
        rows = [(name, value) for name, value in msgspec.structs.asdict(self).items() if value not in (None, (), {})]
        return html_table(f"step {self.step} of {self.thread_id}", rows)


class ThreadInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One thread of a listing; no state is read for it."""

    id: str
    kind: str  #: "thread", "session", "run" or "workspace"
    head: str  #: id of the checkpoint that the thread is at
    step: int  #: of the head
    count: int  #: checkpoints that the thread itself wrote and still has
    created_at: dt.datetime  #: when it was created; of a fork, when it was made
    updated_at: dt.datetime  #: of its last change
    size: int  #: encoded bytes of the state at the head
    version: int = 0  #: grows by one with every change of the thread: saves, moves of the head, annotations, deletions
    damage: str | None = None  #: why the thread cannot be read; then only its id is sure, and `head` is empty


class Hole(msgspec.Struct, frozen=True):
    """Stands in a salvaged state for a part that is damaged: a value, an item of a list, or a page of a dict. It prints
    as its reason, and cannot be saved."""

    where: str  #: the record that is damaged
    reason: str

    def __str__(self) -> str:
        return f"(damaged: {self.where}: {self.reason})"


At: TypeAlias = Checkpoint | str | int | UUID
"""Names a checkpoint: itself, its id or a unique start of it, a label, `"@"` (the head), `"@~2"` (two before it), or
the number of its step; negative numbers count from the head, which is -1."""

Progress: TypeAlias = Callable[[int, int], object]
"""Called with (done, total) while something long runs."""


class Change(msgspec.Struct, frozen=True):
    """One difference between two states. `path` is like `messages[3].content`; if the state itself changed its record
    type, or stopped being a record, it is `(type)`, and `old` and `new` are the names of the types."""

    path: str
    kind: Literal["added", "removed", "changed"]
    old: Any = None
    new: Any = None


class Diff(msgspec.Struct, frozen=True):
    """The changes from checkpoint `a` to checkpoint `b`. Prints as a list."""

    a: Checkpoint
    b: Checkpoint
    changes: tuple[Change, ...]

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __repr__(self) -> str:
        return f"<backtrail.Diff {self._title()}>"

    def _title(self) -> str:
        """Both checkpoints and the number of changes; with the names of the threads, if these are two."""
        if self.a.thread_id == self.b.thread_id:
            sides = f"step {self.a.step} -> step {self.b.step}"
        else:
            sides = f"{self.a.thread_id!r} step {self.a.step} -> {self.b.thread_id!r} step {self.b.step}"
        return f"{sides}: {counted(len(self.changes), 'change')}"

    def _repr_html_(self) -> str:
        """For notebooks: a table of the changes, the first hundred of them."""
        signs = {"added": "+", "removed": "−", "changed": "~"}
        rows = [
            (
                signs[change.kind],
                change.path,
                "" if change.kind == "added" else short_repr(change.old),
                "" if change.kind == "removed" else short_repr(change.new),
            )
            for change in self.changes[:_SHOWN_IN_NOTEBOOK]
        ]
        return html_table(self._title(), rows, ("", "path", "old", "new"))

    def __str__(self) -> str:
        lines = [self._title()]
        for change in self.changes:
            if change.kind == "added":
                lines.append(f"  + {change.path} = {short_repr(change.new)}")
            elif change.kind == "removed":
                lines.append(f"  - {change.path} = {short_repr(change.old)}")
            else:
                lines.append(f"  ~ {change.path}: {short_repr(change.old)} -> {short_repr(change.new)}")
        return "\n".join(lines)


class Part(msgspec.Struct, frozen=True):
    """One entry of an `Outline`. `known`: `value` is the value; else it was too large to be read for an outline."""

    name: str | int
    kind: Shape
    size: int  #: encoded bytes; 0 if only the whole was measured
    count: int | None = None  #: entries of a dict or a list
    value: Any = None
    known: bool = False
    type: str | None = None


class Outline(msgspec.Struct, frozen=True):
    """One level of a state: the value at a path, and for a dict or a list some of its entries."""

    kind: Shape
    size: int
    count: int | None
    start: int
    parts: tuple[Part, ...]
    value: Any = None  #: for a value that is neither dict nor list
    type: str | None = None  #: the name of a record's type


class Fork(msgspec.Struct, frozen=True):
    """Another thread of the same lineage, and the last checkpoint that both have."""

    thread_id: str
    at: str
    step: int
    relation: Relation


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """A policy that says which checkpoints may be removed: none by default, and never a head."""

    keep_last: int | None = None  #: newest checkpoints to keep per thread
    max_age: dt.timedelta | None = None  #: older checkpoints may be deleted
    ttl: dt.timedelta | None = None  #: a thread that has been idle for that long may be deleted
    keep_labelled: bool = True  #: keep checkpoints with a label
    keep_tags: tuple[str, ...] = ()  #: keep checkpoints with one of these tags
    undo_window: dt.timedelta = dt.timedelta(days=7)  #: abandoned steps stay for that long
    finished_runs: dt.timedelta | None = dt.timedelta(days=30)  #: a run may be deleted so long after it has finished

    def __post_init__(self) -> None:
        if self.keep_last is not None and type(self.keep_last) is not int:
            raise InvalidInput(f"keep_last must be None or an int, not {self.keep_last!r}")
        if self.keep_last is not None and self.keep_last < 1:
            raise InvalidInput(f"keep_last={self.keep_last} would remove everything: use 1 or more, or None")
        for name in ("max_age", "ttl", "undo_window", "finished_runs"):
            value = getattr(self, name)
            if value is None and name != "undo_window":
                continue
            if not isinstance(value, dt.timedelta):
                raise InvalidInput(f"{name} must be a timedelta, not {value!r}")
            if value < dt.timedelta(0):
                raise InvalidInput(f"{name}={value} is negative")
        if self.ttl == dt.timedelta(0):
            raise InvalidInput("ttl=0 would remove everything: use a longer time, or None")
        if type(self.keep_tags) is not tuple or not all(isinstance(tag, str) for tag in self.keep_tags):
            raise InvalidInput(f"keep_tags must be a tuple of str, not {self.keep_tags!r}")


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """How much one load may take. A store that others can write to may hold bytes that unpack to far more than they
    are; a load that would pass a limit is refused with `OverBudget`, before the memory is taken.

        backtrail.open("agents.db", budget=backtrail.Budget(bytes=4 * 2**30))
        backtrail.open("agents.db", budget="bytes=4GiB,seconds=60")
    """

    bytes: int = 2**30  #: of the state, as `Checkpoint.size` tells it; the same again to unpack it
    values: int = 20_000_000  #: dicts, lists and values of other types than text, numbers and bytes
    pieces: int = 1_000_000  #: ranges of rows that long lists are read from
    seconds: float = 300.0  #: of time, looked at between two parts of a load

    def __post_init__(self) -> None:
        for name in ("bytes", "values", "pieces", "seconds"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int if name != "seconds" else int | float):
                raise InvalidInput(f"budget: {name} must be a number, not {value!r:.80}")
            if not 0 < value < 2**63:
                raise InvalidInput(f"budget: {name}={value!r:.80} must be above 0")


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a prune: what it removed, or would remove."""

    threads: int = 0  #: whole threads that had been idle for longer than their ttl
    checkpoints: int = 0  #: checkpoints that left the history
    rows: int = 0  #: rows that were freed: theirs, and what earlier deletions had left
    blobs: int = 0
    bytes: int = 0  #: approximate bytes that were freed
    damaged: tuple[str, ...] = ()  #: lineages, or the blobs of one, that stay because something in them is damaged
    dry_run: bool = False

    def __str__(self) -> str:
        verb = "would be" if self.dry_run else "were"
        return (
            f"{counted(self.threads, 'thread')} and {counted(self.checkpoints, 'checkpoint')} {verb} removed; "
            f"{counted(self.rows, 'row')} and {counted(self.blobs, 'blob')}, {self.bytes:,} bytes, {verb} freed"
            + "".join(f"\n  left as it is: {told}" for told in self.damaged)
        )


class Damage(msgspec.Struct, frozen=True):
    """One problem that a verify found. `where` names the record."""

    lineage: str
    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.lineage!r}: {self.where}: {self.reason}"


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a verify: what it checked, the damage it found, and if that was set aside."""

    threads: int = 0
    checkpoints: int = 0
    rows: int = 0
    blobs: int = 0
    orphans: int = 0  #: blobs that no living checkpoint needs: garbage, not damage
    problems: tuple[Damage, ...] = ()
    repaired: bool = False  #: damaged records were set aside, and every thread is at a sound checkpoint

    @property
    def ok(self) -> bool:
        """True if nothing is damaged."""
        return not self.problems

    def __str__(self) -> str:
        looked = (
            f"{counted(self.threads, 'thread')}, {counted(self.checkpoints, 'checkpoint')}, "
            f"{counted(self.rows, 'row')}, {counted(self.blobs, 'blob')}"
        )
        if self.ok:
            return f"{looked}: all sound"
        told = "\n".join(f"  {problem}" for problem in self.problems)
        return f"{looked}: {counted(len(self.problems), 'problem')}{', set aside' if self.repaired else ''}\n{told}"


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a copy; records that the target had already are not counted."""

    threads: int = 0
    rows: int = 0
    blobs: int = 0
    bytes: int = 0


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 thread, 2 threads."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def text_of(value: Any) -> str:
    """`str(value)`, also of a number with more digits than Python is willing to write."""
    return _write(str, value)


def _write(write: Callable[[Any], str], value: Any) -> str:
    try:
        return write(value)
    except ValueError:
        return hex(value) if type(value) is int else f"<{type(value).__qualname__} with a very long number>"


def short_repr(value: Any) -> str:
    """The start of `repr(value)`."""
    text = _write(repr, value)
    return text if len(text) <= 72 else text[:69] + "..."
