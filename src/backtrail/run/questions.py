"""Questions of a run to a person: asked by the run, answered by anybody, from any process.

A question is a step whose result somebody else gives. It is saved under its name in `state["asked"]`, with a digest of
everything that was shown; the run's status says that it waits. An answer takes the question away and puts the record of
the step in its place, in one commit that is refused if another answer was faster.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from backtrail.encode.planner import PlannedRow, Planner
from backtrail.errors import (
    AlreadyAnswered,
    Conflict,
    EncodeError,
    InvalidAnswer,
    QuestionChanged,
    QuestionExpired,
    QuestionNotFound,
    StepChanged,
    ThreadNotFound,
)
from backtrail.history.records import now_micros, to_datetime
from backtrail.history.retry import attempts
from backtrail.history.run_status import STATUS
from backtrail.history.save_arguments import Facts
from backtrail.history.validation import check_name, check_seconds
from backtrail.run.commands import Commands, Pause, Write
from backtrail.run.listing import ASKED, DUE, STEPS, Question
from backtrail.run.model import Failure
from backtrail.run.recording import ASK, SLEEP, Identity, Record, digest_of, record_of
from backtrail.run.run_commits import ANSWERED
from backtrail.run.run_core import RunCore
from backtrail.run.schema import fault, schema_of, to_type
from backtrail.run.times import check_time, to_micros

if TYPE_CHECKING:
    from backtrail.history.context import Context

EXPIRED = "QuestionExpired"
_FIRST_POLL, _LAST_POLL = 0.02, 1.0  # seconds between two looks for an answer, while the caller waits in place


def ask(core: RunCore, name: str, question: Any, about: Any, form: Any, expires: Any, wait: float) -> Commands[Any]:
    """Ask a question, or hand out its answer. `Suspended` if there is none after `wait` seconds."""
    core.check_at_work(f"question {check_name(name, 'the name of a question')!r}")
    schema, limit = schema_of(form), check_time(expires, "expires")
    seconds = check_seconds(wait, "wait")
    try:
        digest = digest_of(core.values, [question, about, schema])
    except EncodeError as error:
        raise EncodeError(f"question {name!r}", f"cannot be saved, so it was not asked: {error}") from error
    if not core.begun:
        yield Write(core.begin)
    core.check_not_stopped()
    identity = core.claim(ASK, name, None, digest)
    asked = (digest, identity.segment, identity.occurrence)
    try:
        until, pause = time.monotonic() + seconds, _FIRST_POLL
        while (record := core.recording.steps.get(identity)) is None:
            entry = core.asked.get(name)
            now = now_micros()
            if entry is None or (entry.digest, entry.segment, entry.n) != asked:
                entry = Question(
                    question=question,
                    about=about,
                    schema=schema,
                    digest=digest,
                    segment=identity.segment,
                    n=identity.occurrence,
                    at=now,
                    expires=to_micros(limit, "expires", now),
                )
                yield Write(partial(core.wait_for, (name, entry)))
            elif entry.expires is not None and now >= entry.expires:
                yield from _expire(core, name, identity, entry)
            elif (left := until - time.monotonic()) > 0:
                yield Pause(min(pause, left))
                core.check_not_stopped()
                pause = min(2 * pause, _LAST_POLL)
                yield Write(core.absorb)
            else:
                raise core.suspended()
        if record.args != digest:  # an answer to an earlier version of the question came while this one was asked
            raise StepChanged(core.id, name, "content")
        if record.error is not None:
            raise QuestionExpired(core.id, name, to_datetime(record.at + record.took))
        return to_type(form, record.result)
    finally:
        core.recording.leave(identity)


def _expire(core: RunCore, name: str, identity: Identity, entry: Question) -> Commands[None]:
    """Record that nobody answered in time: from now on no answer is taken."""
    assert entry.expires is not None
    record = record_of(
        identity, entry.digest, entry.at, took=max(0, entry.expires - entry.at), error=Failure(EXPIRED, "")
    )
    yield Write(partial(core.wait_for, None, name, record))


def sleep(core: RunCore, name: str, until: Any, wait: float) -> Commands[None]:
    """Sleep for some seconds, or until a time. `Suspended` if it has not come after `wait` seconds."""
    core.check_at_work(f"sleep {check_name(name, 'the name of a sleep')!r}")
    span, seconds = check_time(until, "the time of a sleep"), check_seconds(wait, "wait")
    digest = digest_of(core.values, span)
    if not core.begun:
        yield Write(core.begin)
    core.check_not_stopped()
    identity = core.claim(SLEEP, name, None, digest)
    try:
        record, now = core.recording.steps.get(identity), now_micros()
        wakes = record.result if record is not None else to_micros(span, "seconds", now)
        if type(wakes) is not int:
            raise core.unreadable(f"the record of sleep {name!r} has no time")
        if record is None:
            core.wakes[identity] = wakes
            made = record_of(identity, digest, now, took=max(0, wakes - now), result=wakes)
            yield Write(partial(core.wait_for, None, None, made))
        end = time.monotonic() + seconds
        while core.waits and (left := wakes - now_micros()) > 0:
            core.wakes[identity] = wakes
            here = end - time.monotonic()
            if here <= 0:
                raise core.suspended_until(wakes)
            yield Pause(min(left / 1_000_000, here, _LAST_POLL))
            core.check_not_stopped()
        core.wakes.pop(identity, None)
    finally:
        core.recording.leave(identity)


# -- answers -----------------------------------------------------------------------------------------------------------


async def answer(
    context: Context, run_id: str, name: str, value: Any, by: str | None = None, digest: str | None = None
) -> None:
    """Answer a question of a run. The first answer counts; each reason for a refusal has its own error."""
    check_name(name, "the name of a question")
    if by is not None:
        check_name(by, "by")
    for _ in attempts():
        core = RunCore(context, run_id)
        try:
            await core.load_questions()
        except ThreadNotFound:
            message = f"run {core.id!r} does not exist: store.pending() lists what waits"
            raise ThreadNotFound(core.id, message) from None
        entry = core.asked.get(name)
        if entry is None:
            await core.load()
            raise _no_question(core, name)
        _check_answer(core, name, entry, value, digest)
        try:
            await _save_answer(core, name, entry, value, by)
        except Conflict:
            continue  # something was written since: look again
        return
    raise Conflict(run_id, message=f"run {run_id!r} kept moving: answer its question when its writers rest")


def _no_question(core: RunCore, name: str) -> Exception:
    """The error for a question that is not open: was it answered, did it expire, or was it never asked?"""
    known = [record for record in core.recording.steps.values() if record.kind == ASK and record.name == name]
    if not known:
        return QuestionNotFound(core.id, name)
    last = known[-1]
    if last.error is not None:
        return QuestionExpired(core.id, name, to_datetime(last.at + last.took))
    return AlreadyAnswered(core.id, name, last.by)


def _check_answer(core: RunCore, name: str, entry: Question, value: Any, digest: str | None) -> None:
    if digest is not None and digest != entry.digest.hex():
        raise QuestionChanged(core.id, name, entry.digest.hex())
    if entry.expires is not None and now_micros() >= entry.expires:
        raise QuestionExpired(core.id, name, to_datetime(entry.expires))
    if (wrong := fault(entry.schema, value)) is not None:
        raise InvalidAnswer(core.id, name, wrong)
    try:
        core.values.encode(value)
    except EncodeError as error:
        raise InvalidAnswer(core.id, name, str(error)) from error


async def _save_answer(core: RunCore, name: str, entry: Question, value: Any, by: str | None) -> None:
    identity = Identity(ASK, name, None, entry.segment, entry.n)
    now = now_micros()
    record: Record = record_of(identity, entry.digest, entry.at, took=max(0, now - entry.at), by=by, result=value)
    left = {other: one for other, one in core.asked.items() if other != name}
    core.asked = left
    changes: dict[str, Any] = {STATUS: "ready"}
    if left:  # the run waits for other answers too, but may go on with this one: it is due
        shown = {other: msgspec.structs.asdict(one) for other, one in left.items()}
        changes = {STATUS: "waiting", ASKED: shown, DUE: now}
    drop = () if left else (DUE, ASKED)

    def plan(planner: Planner) -> PlannedRow:
        return planner.change(changes, append=(STEPS, [record.to_state()]), drop=drop)

    facts = Facts.check(core.values, None, (), {ANSWERED: name}, None, None)
    await core.thread.save_plan(plan, facts)  # on the checkpoint that was just loaded, or not at all
