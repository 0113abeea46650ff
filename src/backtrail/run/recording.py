"""The recording of a run: which of its steps have been done, and which recorded step a call means.

A step is identified by its name and a key, or by its name and its occurrence since the last checkpoint. A program may
start from its top after a crash, or at its last checkpoint (`run.iteration` and `run.messages` are as they were then):
both find their steps. A call without a key means

1. the step of that name and occurrence since the last checkpoint, if it was recorded with the same arguments;
2. else a step of the same name and arguments from before that checkpoint, if this process has not had it yet: the
   program starts from its top;
3. else a new step.

So that the second rule can never hand out the result of another call, a call that repeats name and arguments of a step
from before the last checkpoint is refused while the run is first done: it needs a key.

Pure: nothing is read or written here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import msgspec
from blake3 import blake3

from backtrail.encode.values import Values
from backtrail.errors import EncodeError, StepAmbiguous, StepChanged
from backtrail.history.records import LAST_TIME, to_datetime
from backtrail.run.model import Failure, Key, StepInfo

STEP, ASK, SLEEP = "step", "ask", "sleep"


class Identity(msgspec.Struct, frozen=True, gc=False):
    """Names one step of a run. With a key, segment and occurrence are 0."""

    kind: str
    name: str
    key: Key | None
    segment: int  #: checkpoints that the run had saved before
    occurrence: int  #: of this name in the segment, from 1

    @property
    def call(self) -> tuple[str, str, Key | None]:
        """What tells it from others that are going on at the same time."""
        return self.kind, self.name, self.key


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A recorded step, as an item of `state["steps"]`. Of several with one identity, the last counts."""

    kind: str
    name: str
    key: Key | None = None
    segment: int = 0
    n: int = 1
    args: bytes
    at: int  #: microseconds since 1970: when it was started
    took: int = 0  #: microseconds
    attempts: int = 1
    started: bool = False  #: it was started, and has no outcome yet
    reopened: bool = False  #: its failure ended the run: it is done again when the run is resumed
    error: Failure | None = None
    by: str | None = None
    result: Any = None

    @property
    def identity(self) -> Identity:
        if self.key is None:
            return Identity(self.kind, self.name, None, self.segment, self.n)
        return Identity(self.kind, self.name, self.key, 0, 0)

    @property
    def open(self) -> bool:
        """True if the step has no outcome that can be handed out."""
        return self.started or self.reopened

    def info(self) -> StepInfo:
        """The step, for users."""
        return StepInfo(
            kind=self.kind,
            name=self.name,
            key=self.key,
            occurrence=self.n,
            status="started" if self.started else "failed" if self.error is not None else "done",
            started_at=to_datetime(min(max(0, self.at), LAST_TIME)),
            seconds=self.took / 1_000_000,
            attempts=self.attempts,
            result=self.result,
            error=self.error,
            by=self.by,
        )

    def to_state(self) -> dict[str, Any]:
        """The item of the state; what is not so, or has its default, is left out."""
        item: dict[str, Any] = {"kind": self.kind, "name": self.name, "args": self.args, "at": self.at}
        for name, default in _DEFAULTS:
            value = getattr(self, name)
            if value != default:
                item[name] = value
        if self.error is not None:
            item["error"] = {"type": self.error.type, "message": self.error.message}
        elif not self.open:
            item["result"] = self.result
        return item


_DEFAULTS = (
    *(("key", None), ("segment", 0), ("n", 1), ("took", 0), ("attempts", 1)),
    *(("started", False), ("reopened", False), ("by", None)),
)


def read_records(items: list[Any]) -> list[Record]:
    """The records of items of the state. Raises `ValueError` for anything else."""
    return msgspec.convert(items, list[Record])


def digest_of(values: Values, content: Any) -> bytes:
    """The digest of a value of the state."""
    return blake3(values.encode(content)).digest(16)


def digest_of_call(values: Values, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """The digest of the arguments of a call. An argument that cannot be saved (a client, a function) counts by the name
    of its class."""
    if not args and not kwargs:
        return _NO_ARGUMENTS
    try:
        return digest_of(values, [list(args), dict(sorted(kwargs.items()))])
    except EncodeError:
        parts = [_part(values, value) for value in args]
        named = [[name, _part(values, kwargs[name])] for name in sorted(kwargs)]
        return digest_of(values, [parts, named])


_NO_ARGUMENTS = blake3(msgspec.msgpack.encode([[], {}])).digest(16)


def _part(values: Values, value: Any) -> list[Any]:
    try:
        return [values.encode(value)]
    except EncodeError:
        return ["", f"{type(value).__module__}.{type(value).__qualname__}"]


def record_of(identity: Identity, args: bytes, at: int, **outcome: Any) -> Record:
    """The record of a step that was started at this time."""
    return Record(
        kind=identity.kind,
        name=identity.name,
        key=identity.key,
        segment=identity.segment,
        n=identity.occurrence or 1,
        args=args,
        at=at,
        **outcome,
    )


_Calls = dict[tuple[str, str, bytes], list[Identity]]


class Recording:
    """The recorded steps of one run, and those that this process has had. Safe to use from several threads."""

    def __init__(self, run_id: str, segment: int = 0, records: Iterable[Record] = ()) -> None:
        self.run_id = run_id
        self.segment = segment
        self.count = 0  #: items of `state["steps"]`
        self.steps: dict[Identity, Record] = {}
        self._parted = segment > 0  # by checkpoints: then some steps are from before the last one
        self._calls: _Calls | None = None  # see `_known_calls`
        self._had: set[Identity] = set()
        self._counts: dict[tuple[str, str], int] = {}  # occurrences in this segment
        self._going: set[tuple[str, str, Key | None]] = set()
        self._guard = threading.Lock()
        for record in records:
            if record.key is None and not record.reopened:  # written out: a long run has ten thousand of them
                self.count += 1
                self.steps[Identity(record.kind, record.name, None, record.segment, record.n)] = record
                self._parted = self._parted or record.segment > 0
            else:
                self.add(record)

    def add(self, record: Record) -> None:
        """Add a record that the state has."""
        with self._guard:
            identity = record.identity
            known = self.steps.get(identity)
            self.count += 1
            if record.reopened and known is not None:
                record = msgspec.structs.replace(known, reopened=True)
            self.steps[identity] = record
            self._parted = self._parted or record.segment > 0
            if self._calls is not None and (known is None or known.args != record.args):
                self._add_call(self._calls, identity, record)

    def _known_calls(self) -> _Calls:
        """The steps without a key, by name and arguments. Only a run with checkpoints needs them."""
        if self._calls is None:
            self._calls = {}
            for identity, record in self.steps.items():
                self._add_call(self._calls, identity, record)
        return self._calls

    @staticmethod
    def _add_call(calls: _Calls, identity: Identity, record: Record) -> None:
        if record.key is None:
            calls.setdefault((record.kind, record.name, record.args), []).append(identity)

    def next_segment(self) -> None:
        """A checkpoint was saved: occurrences are counted anew."""
        with self._guard:
            self.segment += 1
            self._parted = True
            self._counts.clear()

    def claim(self, kind: str, name: str, key: Key | None, args: bytes, *, rerun: bool = False) -> Identity:
        """The identity of the step that a call means; the caller gives it back with `leave`.

        `StepAmbiguous` if that cannot be said, `StepChanged` if the step was recorded with other arguments, unless it
        is to be done again (`rerun`)."""
        with self._guard:
            going = (kind, name, key)
            if going in self._going:
                raise self._ambiguous(kind, name, "is going on in another thread or task")
            identity = self._find(kind, name, key, args)
            record = self.steps.get(identity)
            if record is not None and record.args != args and not rerun:
                raise StepChanged(self.run_id, name, "arguments" if kind == STEP else "content")
            if key is None and identity.segment == self.segment:
                self._counts[kind, name] = identity.occurrence
            self._had.add(identity)
            self._going.add(going)
            return identity

    def leave(self, identity: Identity) -> None:
        """The call is over."""
        with self._guard:
            self._going.discard(identity.call)

    def _find(self, kind: str, name: str, key: Key | None, args: bytes) -> Identity:
        if key is not None:
            return Identity(kind, name, key, 0, 0)
        here = Identity(kind, name, None, self.segment, self._counts.get((kind, name), 0) + 1)
        record = self.steps.get(here)
        if (record is not None and record.args == args) or not self._parted:
            return here
        before = [one for one in self._known_calls().get((kind, name, args), ()) if one.segment != self.segment]
        for one in before:
            if one not in self._had and self.steps[one].args == args:
                return one
        if before and record is None:
            raise self._ambiguous(kind, name, "was done before the last checkpoint with the same arguments")
        return here

    def _ambiguous(self, kind: str, name: str, why: str) -> StepAmbiguous:
        advice = "give each a key=, such as key=run.iteration" if kind == STEP else "give each a name of its own"
        return StepAmbiguous(
            self.run_id, name, f"{kind} {name!r} of run {self.run_id!r} {why}, so it cannot be told from it: {advice}"
        )

    def left_over(self) -> list[Record]:
        """The records that no call has asked for, in their order."""
        return [record for identity, record in self.steps.items() if identity not in self._had]
