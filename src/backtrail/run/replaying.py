"""Replay: a program is run against the recording of a run. No step is executed, and nothing is written.

The program gets a run whose steps are all handed out. Where it asks for something that was not recorded, or ends
without having asked for everything, it diverges from the recording; the first divergence is the report.
"""

from __future__ import annotations

from typing import Any

import msgspec

from backtrail.encode.values import Values
from backtrail.engines.base import Engine
from backtrail.engines.delegating_engine import Method, WrappingEngine
from backtrail.errors import InvalidInput, StepAmbiguous, StepChanged, ThreadNotFound
from backtrail.history.context import Context
from backtrail.history.save import Plan
from backtrail.history.save_arguments import NO_FACTS, Facts
from backtrail.model import Checkpoint, short_repr
from backtrail.run.failures import failure_of
from backtrail.run.model import Failure, Key
from backtrail.run.recording import Identity, Record, Recording
from backtrail.run.run_core import RunCore


class Divergence(msgspec.Struct, frozen=True):
    """The first difference between a program and a recording. `step` names where, "" at the program's end."""

    step: str
    expected: str
    got: str

    def __str__(self) -> str:
        where = f"at step {self.step!r}" if self.step else "at the end"
        return f"{where}: expected {self.expected}, got {self.got}"


class Replayed(msgspec.Struct, frozen=True):
    """The report of a replay."""

    run_id: str
    steps: int  #: steps that were handed out
    divergence: Divergence | None = None

    @property
    def ok(self) -> bool:
        """True if the program did what was recorded."""
        return self.divergence is None

    def __str__(self) -> str:
        told = "as recorded" if self.divergence is None else str(self.divergence)
        return f"run {self.run_id!r}, {self.steps} steps: {told}"


class Diverged(BaseException):
    """Leaves the program at the first divergence, past every `except Exception` of it."""

    def __init__(self, divergence: Divergence) -> None:
        super().__init__(str(divergence))
        self.divergence = divergence


class EndOfRecording(BaseException):
    """Leaves the program where the recording of a run that has not ended ends."""


_WRITES = (Engine.commit, Engine.drop, Engine.lease, Engine.release, Engine.compact, Engine.close)


class _ReadOnlyEngine(WrappingEngine):
    """The engine of a store while one of its runs is replayed: whatever the program does, nothing is written."""

    def __init__(self, engine: Engine, run_id: str) -> None:
        super().__init__(engine)
        self._run = run_id

    async def _ask(self, method: Method[Any], *args: Any, **options: Any) -> Any:
        if method in _WRITES:
            raise InvalidInput(f"run {self._run!r} is replayed, which writes nothing: do this outside of the replay")
        return await super()._ask(method, *args, **options)


class ReplayCore(RunCore):
    """A run whose steps are all handed out. Its attributes begin as those of a new run."""

    waits = False
    outcomes = (Exception, Diverged, EndOfRecording)  #: what a program may end with

    @classmethod
    async def of(cls, context: Context, run_id: str) -> ReplayCore:
        """The recording of a run."""
        recorded = RunCore(context, run_id)
        if not await recorded.load():
            raise ThreadNotFound(
                recorded.id, f"run {recorded.id!r} does not exist: store.runs(status='all') lists them"
            )
        core = cls(context.with_engine(_ReadOnlyEngine(context.engine, recorded.id)), run_id, recorded.task)
        core.recorded = recorded
        core.recording = Recording(core.id, 0, recorded.recording.steps.values())
        core.input, core.token = recorded.input, b"replay"
        core.loaded = core.saved = core.at_work = True
        core.handed_out = 0
        return core

    recorded: RunCore
    handed_out: int

    def claim(self, kind: str, name: str, key: Key | None, args: bytes, *, rerun: bool = False) -> Identity:
        got = f"{kind} {name!r}" + ("" if key is None else f" with the key {key!r}")
        try:
            identity = self.recording.claim(kind, name, key, args, rerun=rerun)
        except StepChanged:
            raise Diverged(Divergence(name, got, f"{got} with other arguments")) from None
        except StepAmbiguous as error:
            raise Diverged(Divergence(name, "a step that can be told from others", str(error))) from None
        record = self.recording.steps.get(identity)
        if record is None or record.open or record.args != args:
            self.recording.leave(identity)
            left = self.recording.left_over()
            if not left and self.recorded.status != "finished":
                raise EndOfRecording
            changed = record is not None and record.args != args
            raise Diverged(Divergence(name, _told(left[0]) if left else "the end", got + " changed" * changed))
        self.handed_out += 1
        return identity

    async def save(self, plan: Plan, facts: Facts = NO_FACTS, *, compare_lists: bool = False) -> Checkpoint:  # noqa: ARG002 - nothing is saved
        head = await self.thread.head()
        assert head is not None
        return head

    async def _delete(self) -> None:
        self.ended = True  # for the program; the recording stays

    def report(self, result: Any, error: BaseException | None) -> Replayed:
        """The report, from what the program returned or raised."""
        return Replayed(self.id, self.handed_out, self._divergence(result, error))

    def _divergence(self, result: Any, error: BaseException | None) -> Divergence | None:
        if isinstance(error, Diverged):
            return error.divergence
        if isinstance(error, EndOfRecording):
            return None
        recorded = self.recorded
        if error is not None:
            got = failure_of(error)
            same = recorded.error is not None and recorded.error.type == got.type
            return None if same else Divergence("", _ending(recorded), f"the error {got}")
        left = [record for record in self.recording.left_over() if not record.open]
        if left:
            return Divergence(left[0].name, _told(left[0]), "the end of the program")
        given = result if result is not None else self.result
        if recorded.status == "finished" and not _same(self.values, given, recorded.result):
            return Divergence("", f"the result {short_repr(recorded.result)}", f"the result {short_repr(given)}")
        return None if recorded.status != "failed" else Divergence("", _ending(recorded), "no error")


def _told(record: Record) -> str:
    return f"{record.kind} {record.name!r}" + ("" if record.key is None else f" with the key {record.key!r}")


def _ending(recorded: RunCore) -> str:
    failure: Failure | None = recorded.error
    return f"the error {failure}" if failure is not None else f"a run that is {recorded.status}"


def _same(values: Values, one: Any, other: Any) -> bool:
    return values.encode(one) == values.encode(other)
