"""Every exception that backtrail raises on purpose.

One small hierarchy under `BacktrailError`. A message says what happened, to which record, and what to do; the facts are
also attributes, so that a program need not parse the text. A driver's own error is kept as `__cause__`.
"""

from __future__ import annotations

import datetime as dt
import os
import re

# Parts of a lease owner's name that mean nothing to a person: the pid namespace, the start time, a random token.
_MARKS = r" \(pid:\[\d+\]\)| started \d+(?= \[)| \[[0-9a-f]{8,32}\]$"


#: What a decoder raises for bytes that are not its own: msgspec's errors and UnicodeDecodeError are ValueErrors, and
#: nesting that is too deep is a RecursionError. Catch these, never one of them.
DECODE_ERRORS = (ValueError, RecursionError)


class BacktrailError(Exception):
    """Anything backtrail raises on purpose."""


class InvalidInput(BacktrailError, ValueError):
    """An argument that can never be right, whatever the store holds."""


class NotFound(BacktrailError):
    """Something requested by name does not exist."""


class ThreadNotFound(NotFound):
    """The thread has no checkpoint yet, or was deleted."""

    def __init__(self, thread_id: str, message: str | None = None) -> None:
        super().__init__(
            message or f"thread {thread_id!r} does not exist: save to it first, or list threads with store.threads()"
        )
        self.thread_id = thread_id


class CheckpointNotFound(NotFound):
    """No checkpoint of this thread has the given id, prefix or step."""

    def __init__(
        self,
        thread_id: str,
        at: object,
        hint: str = "list them with thread.history(all=True)",
        found: str = "no checkpoint",
    ) -> None:
        super().__init__(f"thread {thread_id!r} has {found} {_short(at)}: {hint}")
        self.thread_id = thread_id
        self.at = at


class AmbiguousCheckpoint(CheckpointNotFound, InvalidInput):
    """Several checkpoints of the thread have this label, or an id that starts so. `matches` are their ids, and `steps`
    the numbers of their steps."""

    def __init__(
        self, thread_id: str, at: str, matches: list[str], steps: list[int], hint: str = "give more characters"
    ) -> None:
        listed = [f"{id} (step {step})" for id, step in zip(matches, steps, strict=True)]
        shown = ", ".join(listed[:4]) + (", …" if len(listed) > 4 else "")
        super().__init__(thread_id, at, f"{hint}; it has {shown}", found="no single checkpoint")
        self.matches = matches
        self.steps = steps


class NoCheckpoint(NotFound):
    """A session has no snapshot for this message, or there is nothing to go back to."""


class NoDirectory(NotFound):
    """No directory on this machine is known for a workspace: a store never chooses one."""

    def __init__(self, workspace: str) -> None:
        super().__init__(
            f"this machine knows no directory of workspace {_middle(workspace)!r}: its snapshots were taken elsewhere, "
            "or the store was moved or copied. A store never chooses a directory: name it, with "
            "thread.workspace(at, root=DIRECTORY) or store.workspace(DIRECTORY, name)"
        )
        self.workspace = workspace


class Conflict(BacktrailError):
    """Another writer moved the thread first; nothing of this call was written.

    `expected` is the checkpoint the caller built on, `actual` the one that is there now (None: no checkpoint).
    """

    def __init__(
        self, thread_id: str, expected: str | None = None, actual: str | None = None, message: str | None = None
    ) -> None:
        super().__init__(
            message
            or f"thread {thread_id!r} moved: expected head {expected or 'none'}, found {actual or 'none'}; "
            "load again and retry, or fork to keep both"
        )
        self.thread_id = thread_id
        self.expected = expected
        self.actual = actual


class LockLost(Conflict):
    """The lock that a save relied on had expired and went to another owner; nothing was written."""


class EncodeError(InvalidInput):
    """A value in the state has no exact encoding. `path` names it, for example `state["plan"][3].owner`."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{_middle(path)}: {reason}")
        self.path = path
        self.reason = reason


class Corrupt(BacktrailError):
    """Stored bytes are damaged: a checksum, a digest or a pointer does not hold. `where` names the record."""

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(
            f"{where} is damaged ({reason}): run store.verify() to see what else is; the rest stays readable"
        )
        self.where = where
        self.reason = reason


class OverBudget(BacktrailError):
    """A load would take more than the store's budget allows. `limit` is the name of the limit (bytes, values, pieces,
    seconds), `allowed` its value, and `where` the checkpoint."""

    def __init__(self, where: str, limit: str, allowed: float, needed: float) -> None:
        super().__init__(
            f"{where} needs more {limit} than one load may take ({allowed:,g}; at least {needed:,g}): if you trust the "
            f'store, open it with a larger budget, such as budget="{limit}={_round_up(needed)}"'
        )
        self.where = where
        self.limit = limit
        self.allowed = allowed
        self.needed = needed


class Unavailable(BacktrailError):
    """The store cannot be reached or cannot write now: closed, read-only, full, or its server is unreachable.

    If the call was a save, it may have been carried out although its answer was lost. `id` is the id that its
    checkpoint has then: the same call with `id=error.id` saves what is not there, and nothing twice.
    """

    id: str | None = None


class Closed(Unavailable):
    """The store was closed in this process: no call will work until it is opened again."""


class LockTimeout(BacktrailError):
    """Another owner held the lock for longer than the caller's timeout."""

    def __init__(self, name: str, waited: float, owner: str | None = None) -> None:
        holder = re.sub(_MARKS, "", owner) if owner else "another owner"
        super().__init__(f"{name} is held by {holder}: waited {round(waited, 1):g} s; try again or raise timeout")
        self.name = name
        self.owner = owner


class Suspended(BaseException):
    """A run cannot go on yet: it waits for an answer, or for a time. Neither a success nor a failure; the run is saved,
    and its process may end. `questions` are the names of its open questions, `until` is the time at which it goes on by
    itself (None: only with an answer).

    Not an `Exception`, so that `except Exception` in an agent's loop does not stop it on its way out of the block.
    """

    def __init__(
        self,
        run_id: str,
        questions: tuple[str, ...] = (),
        until: dt.datetime | None = None,
        why: str | None = None,
    ) -> None:
        waits = [f"for an answer to {', '.join(map(repr, questions))}"] if questions else []
        waits += [f"until {until.isoformat(timespec='seconds')}"] if until is not None else []
        super().__init__(f"run {run_id!r} {why or 'waits ' + ' or '.join(waits)}: it goes on when it is resumed")
        self.run_id = run_id
        self.questions = questions
        self.until = until


class RunFinished(BacktrailError):
    """The run has finished already; `result` is what it finished with."""

    def __init__(self, run_id: str, result: object = None) -> None:
        super().__init__(
            f"run {run_id!r} has finished: begin another under a new id, go back in it with store.run(id).rewind(at), "
            "or delete it with store.run(id).finish(delete=True) to begin it anew"
        )
        self.run_id = run_id
        self.result = result


class StepError(BacktrailError):
    """Something is wrong with a step of a run. `run_id` and `step` name it."""

    def __init__(self, run_id: str, step: str, message: str) -> None:
        super().__init__(message)
        self.run_id = run_id
        self.step = step


class StepMisused(StepError, InvalidInput):
    """A step outside of its run's block, or inside another step of the same run."""


class StepFailed(StepError):
    """The failure of a step, as it was recorded: the exception of an earlier process. `type` is the name of that
    exception's class, `reason` its message. If the class is built in, or was named in `raises=`, this error is an
    instance of it too."""

    def __init__(self, run_id: str, step: str, type: str, reason: str) -> None:
        super().__init__(run_id, step, f"step {step!r} of run {run_id!r} failed: {type}: {reason}")
        self.type = type
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0])


class StepUncertain(StepError):
    """A step with `at_most_once=True` was started, and nobody knows if it took effect. It is not done again."""

    def __init__(self, run_id: str, step: str, key: str) -> None:
        super().__init__(
            run_id,
            step,
            f"step {step!r} of run {run_id!r} was started, and its process ended before its result was saved: it may "
            f"have taken effect. Pass check=, a function that finds out (its idempotency key was {key!r})",
        )
        self.key = key


class StepChanged(StepError):
    """The recording does not fit the program: the step was recorded with other arguments."""

    def __init__(self, run_id: str, step: str, what: str = "arguments") -> None:
        super().__init__(
            run_id,
            step,
            f"step {step!r} of run {run_id!r} was recorded with other {what}: the program has changed since. Name the "
            'step differently, pass on_change="rerun" to do it again, or fork the run before it',
        )


class StepAmbiguous(StepError, InvalidInput):
    """It cannot be said which recorded step a call means: give it a `key`."""


class QuestionNotFound(NotFound):
    """The run has no question of this name that waits for an answer."""

    def __init__(self, run_id: str, question: str, message: str | None = None) -> None:
        super().__init__(
            message or f"run {run_id!r} has no question {question!r}: store.pending() lists what waits for an answer"
        )
        self.run_id = run_id
        self.question = question


class QuestionExpired(BacktrailError):
    """The question was not answered in time. Raised by `ask`, and for an answer that comes too late."""

    def __init__(self, run_id: str, question: str, expired: dt.datetime) -> None:
        super().__init__(
            f"question {question!r} of run {run_id!r} expired at {expired.isoformat(timespec='seconds')}: it can no "
            "longer be answered"
        )
        self.run_id = run_id
        self.question = question
        self.expired = expired


class AlreadyAnswered(Conflict):
    """The question has an answer; the first one counts."""

    def __init__(self, run_id: str, question: str, by: str | None = None) -> None:
        who = f" by {by}" if by else ""
        super().__init__(
            run_id, message=f"question {question!r} of run {run_id!r} was answered{who} before: the first answer counts"
        )
        self.question = question
        self.by = by


class QuestionChanged(Conflict):
    """The answer was given to another question than the one that is asked now: the digests differ."""

    def __init__(self, run_id: str, question: str, digest: str) -> None:
        super().__init__(
            run_id,
            message=f"question {question!r} of run {run_id!r} is another one now: read it again with store.pending(), "
            f"and answer that (digest {digest})",
        )
        self.question = question
        self.digest = digest


class InvalidAnswer(InvalidInput):
    """The answer does not have the form that the question asks for."""

    def __init__(self, run_id: str, question: str, reason: str) -> None:
        super().__init__(f"the answer to question {question!r} of run {run_id!r} does not fit its schema: {reason}")
        self.run_id = run_id
        self.question = question
        self.reason = reason


class UnsupportedFormat(BacktrailError):
    """A file or store that this version of backtrail cannot read: not a backtrail store, or written by a newer
    backtrail."""


class MissingExtra(BacktrailError, ImportError):
    """A feature whose optional dependency is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(f'{feature} needs an extra: pip install "backtrail[{extra}]"')
        self.extra = extra


class UnsafePath(BacktrailError):
    """A path that leads elsewhere: out of its root, or, where a file of ours should be, through a link or to something
    that is not a regular file. Nothing was written."""


class FilesError(BacktrailError):
    """A directory cannot be snapshotted or restored as asked. `path` names the file, `reason` says why."""

    def __init__(self, path: str | bytes, reason: str) -> None:
        self.path = os.fsdecode(path)
        self.reason = reason
        super().__init__(f"{self.path!r}: {reason}")


def _middle(path: str) -> str:
    """A path that fits into a message; the whole of it is an attribute."""
    return path if len(path) <= 160 else f"{path[:80]} … {path[-72:]}"


def _round_up(needed: float) -> str:
    """Twice of that, as a short number."""
    amount = max(1, round(2 * needed))
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6)):
        if amount >= size:
            return f"{-(-amount // size)}{unit}"
    return str(amount)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
