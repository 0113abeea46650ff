"""One step of a run: a function that is called once, and whose result is saved before it is returned.

Before the call, the recording is asked: a step that is in it is not called, its result is handed out. After the call,
the record goes to the end of `state["steps"]`, which costs one append, whatever the length of the run. Steps that end
at the same time in several threads or tasks share a commit.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from backtrail.encode.planner import ITEM_DEPTH
from backtrail.errors import EncodeError, InvalidInput, StepError, StepUncertain
from backtrail.history.records import now_micros
from backtrail.history.validation import check_name
from backtrail.run.commands import Call, Commands, Pause, StepScope, Write, current_step
from backtrail.run.failures import failure_of, rebuild
from backtrail.run.model import Done, Key, Retry, check_classes
from backtrail.run.recording import STEP, Identity, Record, digest_of_call, record_of

if TYPE_CHECKING:
    from backtrail.run.run_core import RunCore

OnChange = Literal["raise", "rerun"]
Classes = tuple[type[Exception], ...]
MAX_RESULT = 64 << 20  # bytes of one record


class StepOptions(msgspec.Struct, frozen=True):
    """The options of a step, checked."""

    key: Key | None = None
    retry: Retry | None = None
    at_most_once: bool = False
    check: Callable[..., Done | None] | None = None
    on_change: OnChange = "raise"
    raises: Classes = ()

    def __post_init__(self) -> None:
        check_key(self.key)
        if self.retry is not None and not isinstance(self.retry, Retry):
            raise InvalidInput(f"retry must be a backtrail.Retry, not {type(self.retry).__qualname__}")
        if self.on_change not in ("raise", "rerun"):
            raise InvalidInput(f"on_change={self.on_change!r:.40} is unknown: use 'raise' or 'rerun'")
        if self.check is not None and not self.at_most_once:
            raise InvalidInput("check= is asked about steps with at_most_once=True: others are simply done again")
        if self.at_most_once and self.retry is not None and self.retry.times > 1:
            raise InvalidInput("a step with at_most_once=True is never tried twice: leave retry= out")
        check_classes(self.raises, "raises")


def check_key(key: Any) -> None:
    """A key is None, an int or a name."""
    if key is None or (type(key) is int and -(2**63) <= key < 2**63):
        return
    if type(key) is not str:
        raise InvalidInput(f"key must be a str or an int, not {type(key).__qualname__}")
    check_name(key, "key")


def step(
    core: RunCore,
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: StepOptions,
) -> Commands[Any]:
    """Do one step, or hand out what it gave before."""
    if not callable(function):
        raise InvalidInput(f"step {name!r:.80}: {short_type(function)} is not a function")
    core.check_at_work(f"step {check_name(name, 'the name of a step')!r}")
    if not core.begun:
        yield Write(core.begin)
    core.check_not_stopped()
    digest = digest_of_call(core.values, args, kwargs)
    identity = core.claim(STEP, name, options.key, digest, rerun=options.on_change == "rerun")
    try:
        record = core.recording.steps.get(identity)
        if record is not None and record.args == digest:
            if not record.open:
                return _hand_out(core, record, options)
            if record.started and options.at_most_once:
                found = yield from _find_out(core, identity, args, kwargs, options)
                if found is not None:
                    return found.result
        return (yield from _do(core, identity, digest, function, args, kwargs, options))
    finally:
        core.recording.leave(identity)


def _hand_out(core: RunCore, record: Record, options: StepOptions) -> Any:
    if record.error is not None:
        raise core.failing(
            rebuild(core.id, record, (*options.raises, *(options.retry.on if options.retry else ()))),
            record,
            at_most_once=options.at_most_once,
        )
    return core.copy_of(record.result) if record.key is not None else record.result


def _find_out(
    core: RunCore, identity: Identity, args: tuple[Any, ...], kwargs: dict[str, Any], options: StepOptions
) -> Commands[Done | None]:
    """Ask `check` about a step that was started and has no outcome. None: it did not happen."""
    if options.check is None:
        raise StepUncertain(core.id, identity.name, core.step_key(identity))
    began = now_micros()
    scope = StepScope(core.id, partial(core.step_key, identity), current_step.get())
    found = yield Call(options.check, args, kwargs, scope)
    if found is None:
        return None
    if not isinstance(found, Done):
        raise InvalidInput(
            f"check= of step {identity.name!r} gave {short_type(found)}: it gives backtrail.Done(result), or None if "
            "the step did not happen"
        )
    started = core.recording.steps[identity]
    yield from _record(core, record_of(identity, started.args, began, result=found.result))
    return found


def _do(
    core: RunCore,
    identity: Identity,
    digest: bytes,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: StepOptions,
) -> Commands[Any]:
    began, clock = now_micros(), time.monotonic_ns()
    if options.at_most_once:
        yield from _record(core, record_of(identity, digest, began, started=True))
    scope = StepScope(core.id, partial(core.step_key, identity), current_step.get())
    call, attempts = Call(function, args, kwargs, scope), 0
    while True:
        attempts += 1
        try:
            result = yield call
        except Exception as error:
            if isinstance(error, StepError) and error.run_id == core.id:
                raise  # a defect of the program, such as a step inside this step: not an outcome
            retry = options.retry
            if retry is not None and attempts < retry.times and isinstance(error, retry.on):
                yield Pause(retry.pause(attempts))
                core.check_not_stopped()
                continue
            took = (time.monotonic_ns() - clock) // 1000
            record = record_of(identity, digest, began, took=took, attempts=attempts, error=failure_of(error))
            yield from _record(core, record)
            core.failing(error, record, at_most_once=options.at_most_once)
            raise
        took = (time.monotonic_ns() - clock) // 1000
        yield from _record(core, record_of(identity, digest, began, took=took, attempts=attempts, result=result))
        return result


def _record(core: RunCore, record: Record) -> Commands[None]:
    """Save a record. A result that cannot be saved is refused here, and nothing is recorded."""
    item = record.to_state()
    try:
        data = core.values.encode(item, depth=ITEM_DEPTH)
        if len(data) > MAX_RESULT:
            raise EncodeError(
                "it", f"takes {len(data):,} bytes, more than {MAX_RESULT:,}: keep it in a file, or in parts"
            )
    except EncodeError as error:
        if inspect.iscoroutine(record.result):
            record.result.close()
            raise InvalidInput(
                f"step {record.name!r} calls an async function, which a blocking run cannot await: open the store with "
                "backtrail.aio.open()"
            ) from None
        raise EncodeError(
            f"the result of step {record.name!r}", f"cannot be saved, so it was not recorded: {error}"
        ) from error
    # Only a step with a key can be handed out again by this process: not the caller's object, which may change.
    kept = None if record.key is None or record.error is not None else core.values.decode(data).get("result")
    entry = core.enqueue(msgspec.structs.replace(record, result=kept), item, data)
    yield Write(lambda: core.flush(entry))


def short_type(value: Any) -> str:
    """The type of a value, for a message."""
    return f"a {type(value).__qualname__}"
