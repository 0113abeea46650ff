"""Exceptions that steps raise: how one is recorded and raised again, and which of them ended a run.

No class is imported because a store names it: a recorded failure becomes an instance of its class only if that is built
in, or was named by the caller.
"""

from __future__ import annotations

import builtins
from typing import cast

from backtrail.errors import StepFailed, Suspended
from backtrail.run.model import Failure
from backtrail.run.recording import Record

MAX_MESSAGE = 4096  # characters of an exception's message that are recorded


def failure_of(error: BaseException) -> Failure:
    """An exception in the form that is recorded. A recorded failure that is raised again stays what it was."""
    if isinstance(error, StepFailed):
        return Failure(error.type, error.reason)
    try:
        message = str(error)
    except Exception as broken:  # noqa: BLE001  # an exception of the user whose __str__ raises
        message = f"(its message cannot be had: {type(broken).__qualname__})"
    clean = message[:MAX_MESSAGE].encode("utf-8", "replace").decode()
    return Failure(class_name(type(error)), clean)


def class_name(cls: type[BaseException]) -> str:
    """The name of a class, with its module unless it is built in."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def rebuild(run_id: str, record: Record, classes: tuple[type[Exception], ...]) -> StepFailed:
    """The recorded failure as an exception. It is also an instance of the class that was raised, if that is built in or
    among these."""
    assert record.error is not None
    named = {class_name(cls): cls for cls in classes}
    cls = named.get(record.error.type) or _BUILT_IN.get(record.error.type)
    facts = (run_id, record.name, record.error.type, record.error.message)
    if cls is not None and not issubclass(cls, StepFailed):
        both = cast("type[StepFailed]", _both(cls))
        try:
            return both(*facts)
        except TypeError:  # a class that cannot be made of a message alone
            return StepFailed(*facts)
    return StepFailed(*facts)


_BUILT_IN: dict[str, type[Exception]] = {
    name: cls for name, cls in vars(builtins).items() if isinstance(cls, type) and issubclass(cls, Exception)
}
_known: dict[type[Exception], type[Exception]] = {}


def _both(cls: type[Exception]) -> type[Exception]:
    if cls not in _known:
        try:
            _known[cls] = type("StepFailed", (StepFailed, cls), {"__module__": StepFailed.__module__})
        except TypeError:  # its instances have a layout of their own
            return StepFailed
    return _known[cls]


def single(error: BaseException) -> list[BaseException]:
    """The exceptions of a group of tasks, however deep they are; of any other exception, itself."""
    if isinstance(error, BaseExceptionGroup):
        return [one for inner in error.exceptions for one in single(inner)]
    return [error]


def is_suspension(error: BaseException) -> bool:
    """True for `Suspended`, and for a group of tasks of which nothing worse came."""
    return all(isinstance(one, Suspended) for one in single(error))


def is_interrupt(error: BaseException) -> bool:
    """True for what says nothing about the run, such as `KeyboardInterrupt`: it stays as it is, and can be resumed."""
    return not all(isinstance(one, Exception | Suspended) for one in single(error))


def shown_with(error: BaseException) -> set[int]:
    """The identities of the exceptions that a traceback shows: of this one, and of those that it was raised from, was
    raised while handling, or is a group of."""
    found: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in found:
            continue
        found.add(id(one))
        left += [one.__cause__, None if one.__suppress_context__ else one.__context__]
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions
    return found
