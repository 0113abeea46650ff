"""The retry policy: the number of attempts, the deadline, and the pauses."""

from __future__ import annotations

import math
from itertools import islice

import pytest

from backtrail.engines.retry import LEASE_POLL, NETWORK, RetryPolicy
from backtrail.errors import InvalidInput


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("backtrail.engines.retry.time.monotonic", lambda: now[0])
    return now


def test_a_number_of_attempts_knows_no_time(clock: list[float]) -> None:
    made = []
    for number in RetryPolicy.times(3).attempts():
        clock[0] += 1e9
        made.append(number)
    assert made == [0, 1, 2]


def test_a_deadline_ends_them_but_not_before_the_least_number(clock: list[float]) -> None:
    def made(policy: RetryPolicy) -> int:
        count = 0
        for _ in policy.attempts():
            count += 1
            clock[0] += 1.0
        return count

    assert made(RetryPolicy.seconds(5.0)) == 5
    assert made(RetryPolicy.seconds(0.5)) == 1
    assert made(RetryPolicy.seconds(5.0, at_least=8)) == 8
    assert made(RetryPolicy.seconds(12.0, at_least=8)) == 12
    assert made(RetryPolicy(retries=2, deadline=60.0)) == 3
    assert made(RetryPolicy(retries=9, deadline=4.0)) == 4


def test_pauses_double_up_to_the_longest() -> None:
    assert [NETWORK.pause(number) for number in range(6)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0]
    assert LEASE_POLL.pause(10_000) == LEASE_POLL.longest_pause
    assert {RetryPolicy.seconds(9.0, pause=0.01).pause(number) for number in range(5)} == {0.01}
    assert RetryPolicy.times(4).pause(3) == 0.0


def test_a_policy_without_end_goes_on() -> None:
    assert list(islice(RetryPolicy.seconds(math.inf).attempts(), 1000)) == list(range(1000))


@pytest.mark.parametrize("wrong", [{"retries": -1}, {"backoff": -0.1}, {"deadline": 0}])
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        RetryPolicy(**wrong)
