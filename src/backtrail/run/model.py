"""The frozen values of durable runs: what a caller says about a step, and what a store tells about a run."""

from __future__ import annotations

import datetime as dt
from typing import Any, Literal

import msgspec

from backtrail.errors import InvalidInput
from backtrail.history.validation import check_seconds
from backtrail.model import Status

Key = str | int
StepStatus = Literal["done", "failed", "started"]


class Retry(msgspec.Struct, frozen=True):
    """How often a step is tried, and on which exceptions: `Retry(3, backoff=2.0, on=(TimeoutError,))`."""

    times: int = 3  #: attempts in all
    backoff: float = 1.0  #: seconds before the second attempt; twice as many before each one after it
    on: tuple[type[Exception], ...] = (Exception,)
    longest: float = 60.0  #: seconds between two attempts, at most

    def __post_init__(self) -> None:
        if type(self.times) is not int or self.times < 1:
            raise InvalidInput(f"times must be an int from 1 up, not {self.times!r:.40}")
        check_seconds(self.backoff, "backoff")
        check_seconds(self.longest, "longest")
        if type(self.on) is not tuple or not all(isinstance(one, type) and issubclass(one, Exception) for one in self.on):
            raise InvalidInput(f"on must be a tuple of exception classes, not {self.on!r:.80}")

    def pause(self, attempts: int) -> float:
        """Seconds to wait after so many failed attempts."""
        return min(self.longest, self.backoff * 2.0 ** min(attempts - 1, 60))


class Done(msgspec.Struct, frozen=True):
    """The answer of a `check=` function: the step did take effect, with this result."""

    result: Any = None


class Failure(msgspec.Struct, frozen=True):
    """An exception as it is recorded: the name of its class and its message."""

    type: str
    message: str

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class StepInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded step of a run; `kind` is "step", "ask" or "sleep"."""

    kind: str
    name: str
    key: Key | None
    occurrence: int
    status: StepStatus
    started_at: dt.datetime
    seconds: float
    attempts: int
    result: Any = None
    error: Failure | None = None
    by: str | None = None  #: who answered a question


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """A question that waits for an answer."""

    run_id: str
    task: str
    name: str
    question: Any
    about: Any  #: what it is about: the call that the answer allows, for example
    schema: dict[str, Any] | None  #: the form of an answer, as JSON Schema
    digest: str  #: of the question, what it is about, and the schema
    asked_at: dt.datetime
    expires_at: dt.datetime | None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a run stands, or how it ended."""

    status: Status
    result: Any = None
    error: Failure | None = None
    steps: int = 0
    iteration: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    created_at: dt.datetime
    ended_at: dt.datetime | None = None
    due_at: dt.datetime | None = None  #: when a sleeping run goes on, or a question expires
