"""Retries: one policy with named limits, and safe repetition of calls over a network.

An answer can be lost after its request was carried out. So a call is repeated only if that does no harm. A commit that
is refused after a lost answer is looked up first: if its rows are stored with their ids and digests, the first attempt
had succeeded.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import msgspec

from backtrail.engines.base import Commit, Engine
from backtrail.errors import InvalidInput, Unavailable
from backtrail.telemetry import count_retry

T = TypeVar("T")
_TRIED = r"connection to server (?:at|on socket) "


class Interrupted(Unavailable):
    """No answer this time: the call may or may not have been carried out, and may be repeated."""


class RetryPolicy(msgspec.Struct, frozen=True):
    """How often, and for how long, a call is retried.

    There are at most `retries` attempts after the first, and none begins after `deadline` seconds; but the first
    `at_least` attempts are made however long they take. For lost races, time is the better limit: a writer that has its
    next step ready can win very many races in a row against one that has to read first."""

    retries: float = 8  #: attempts after the first; `math.inf` for any number
    backoff: float = 0.05  #: seconds before the first of them; doubled each time, up to `longest_pause`
    deadline: float = 20.0  #: seconds after which no new attempt begins
    at_least: int = 1
    longest_pause: float = 1.0  #: seconds

    def __post_init__(self) -> None:
        if self.retries < 0 or self.backoff < 0 or self.deadline <= 0:
            raise InvalidInput("retries and backoff must not be negative, and deadline must be positive")

    @classmethod
    def times(cls, attempts: int) -> RetryPolicy:
        """This many attempts, without pauses."""
        return cls(retries=attempts - 1, backoff=0.0, deadline=math.inf)

    @classmethod
    def seconds(cls, deadline: float, *, pause: float = 0.0, at_least: int = 1) -> RetryPolicy:
        """Attempts for this many seconds, with a constant pause between them."""
        return cls(retries=math.inf, backoff=pause, deadline=deadline, at_least=at_least, longest_pause=pause)

    def attempts(self) -> Iterator[int]:
        """0, 1, 2, … for as long as another attempt may begin. Pausing between them is left to the loop."""
        end = time.monotonic() + self.deadline
        number = 0
        while number < self.at_least or (number <= self.retries and time.monotonic() < end):
            yield number
            number += 1

    def pause(self, number: int) -> float:
        """Seconds to wait after attempt `number`."""
        return float(min(self.backoff * 2 ** min(number, 30), self.longest_pause))


#: Calls over a network, unless the user sets other limits. Only this policy is cut short by `fail_fast`.
NETWORK = RetryPolicy()
#: A request that is only useful if answered quickly: one retry, because an idle connection may have been cut.
ONCE_MORE = RetryPolicy(retries=1)
#: Polls a lease that another process holds, while commits queue for it.
LEASE_POLL = RetryPolicy(retries=math.inf, backoff=0.002, deadline=math.inf, longest_pause=0.05)
#: Polls connections that other threads still use, before they are closed.
DRAIN_POLL = RetryPolicy.seconds(math.inf, pause=0.0002)
#: How long a fork waits for reads and writes of other threads.
FORK = RetryPolicy.seconds(10.0)


async def retry_interrupted(
    attempt: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    sleep: Callable[[float], Awaitable[None]],
    fail_fast: Callable[[], bool] | None = None,
) -> tuple[T, bool]:
    """Repeat `attempt` while it is interrupted. Returns the answer, and True if an earlier answer may have been lost.
    If `fail_fast` is given and true, a refused connection is final."""
    begun = time.monotonic()
    number = 0
    while True:
        try:
            return await attempt(), number > 0
        except Interrupted as error:
            import random  # slow, and hardly any process needs it

            # Jitter, so that the clients of a restarted server do not all come back at the same moment.
            pause = policy.pause(number) * random.uniform(0.5, 1.0)  # noqa: S311 (a pause is no secret)
            spent = time.monotonic() - begun
            enough = number >= policy.retries or spent + pause > policy.deadline
            if enough or (fail_fast is not None and fail_fast() and is_connection_refused(error)):
                asked = f"asked {number + 1} time{'' if not number else 's'} in {spent:.1f} s"
                raise Unavailable(f"{error} ({asked}: does it run, and is the URL right?)") from error.__cause__
            count_retry(type(error.__cause__ or error).__qualname__)
        await sleep(pause)
        number += 1


def is_connection_refused(error: Interrupted) -> bool:
    """True if a connection was refused or there is no socket to connect to: the server is not slow, it is not
    running."""
    reason: BaseException | None = error
    while reason is not None:
        if isinstance(reason, ConnectionRefusedError | FileNotFoundError):
            return True
        reason = reason.__cause__ or reason.__context__
    # libpq has only a message, with one sentence for each address that it tried.
    tried, text = re.findall(_TRIED, str(error)), str(error)
    return bool(tried) and len(tried) == sum(map(text.count, ("Connection refused", "No such file or directory")))


async def landed(engine: Engine, commit: Commit) -> bool:
    """True if this commit is stored. A commit is atomic, so one of its rows proves all of it."""
    for row in commit.rows:
        there = await engine.row(commit.lineage, row.branch, row.step)
        return there is not None and (there.id, there.digest) == (row.id, row.digest)
    for branch in commit.branches:
        return branch in await engine.branches(commit.lineage)
    return bool(commit.swaps) and all([await engine.head(swap.thread) == swap.new for swap in commit.swaps])
