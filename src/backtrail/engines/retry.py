"""Trying again, safely, for engines that live on the other side of a network.

An answer can be lost after its request was carried out. So a call is repeated only if that does no harm, and a commit
that is refused after a lost answer is looked up first: if the rows it wanted to write are there, under the ids and
digests it gave them, it had succeeded.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from backtrail.engines.base import Commit, Engine
from backtrail.errors import InvalidInput, Unavailable

T = TypeVar("T")
_TRIED = re.compile(r"connection to server (?:at|on socket) ")


class Interrupted(Unavailable):
    """The place did not answer this time: the call may or may not have been carried out, and may be repeated."""


class RetryPolicy(msgspec.Struct, frozen=True):
    """How long to go on trying."""

    retries: int = 8  #: attempts after the first
    backoff: float = 0.05  #: seconds before the first of them; doubled each time, up to a second, less some chance
    deadline: float = 20.0  #: seconds after which no new attempt begins

    def __post_init__(self) -> None:
        if self.retries < 0 or self.backoff < 0 or self.deadline <= 0:
            raise InvalidInput("retries and backoff must not be negative, and deadline must be positive")


#: For a question whose point is a quick answer: once more, because an idle connection may have been cut.
ONCE_MORE = RetryPolicy(retries=1)


#: What nobody has said anything about: then a caller who has somewhere else to go may say it.
USUAL = RetryPolicy()


async def patiently(
    attempt: Callable[[], Awaitable[T]],
    patience: RetryPolicy,
    sleep: Callable[[float], Awaitable[None]],
    fail_fast: Callable[[], bool] | None = None,
) -> tuple[T, bool]:
    """Repeat `attempt` while it is interrupted; the answer, and whether an earlier one may have been lost. If
    `fail_fast` is given and true, a refused connection is final."""
    begun, pause = time.monotonic(), patience.backoff
    for tries in range(patience.retries + 1):
        try:
            return await attempt(), tries > 0
        except Interrupted as error:
            # Some chance, so that many clients of a restarted server do not come back in step.
            pause_now = pause * random.uniform(0.5, 1.0)  # noqa: S311 (a pause is no secret)
            spent = time.monotonic() - begun
            enough = tries == patience.retries or spent + pause_now > patience.deadline
            if enough or (fail_fast is not None and fail_fast() and nobody_listens(error)):
                asked = f"asked {tries + 1} time{'' if not tries else 's'} in {spent:.1f} s"
                raise Unavailable(f"{error} ({asked}: does it run, and is the URL right?)") from error.__cause__
        await sleep(pause_now)
        pause = min(pause * 2, 1.0)
    raise AssertionError("the last attempt returns or raises")


def nobody_listens(error: Interrupted) -> bool:
    """Whether a connection was refused, or there is no socket to connect to: the place is not slow, it is not there."""
    reason: BaseException | None = error
    while reason is not None:
        if isinstance(reason, ConnectionRefusedError | FileNotFoundError):
            return True
        reason = reason.__cause__ or reason.__context__
    # libpq only has words, one sentence for each address that it tried.
    tried, text = _TRIED.findall(str(error)), str(error)
    return bool(tried) and len(tried) == sum(map(text.count, ("Connection refused", "No such file or directory")))


async def landed(engine: Engine, commit: Commit) -> bool:
    """Is this commit the one that is there? A commit is atomic, so one of its rows speaks for all of it."""
    for row in commit.rows:
        there = await engine.row(commit.lineage, row.branch, row.step)
        return there is not None and (there.id, there.digest) == (row.id, row.digest)
    for branch in commit.branches:
        return branch in await engine.branches(commit.lineage)
    return bool(commit.swaps) and all([await engine.head(swap.thread) == swap.new for swap in commit.swaps])
