"""Times that a caller gives: seconds from now, a timedelta, or a time with a time zone."""

from __future__ import annotations

import datetime as dt
from typing import Any

from backtrail.errors import InvalidInput
from backtrail.history.records import LAST_TIME
from backtrail.history.validation import check_seconds


def check_time(value: Any, what: str) -> float | dt.datetime | None:
    """The argument, if it is a time: None, seconds, a timedelta (as seconds), or a datetime with a time zone."""
    if value is None:
        return None
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            raise InvalidInput(f"{what} needs a time with a time zone, such as datetime.now(UTC) + …, not {value!r}")
        return value
    if isinstance(value, dt.timedelta):
        return check_seconds(value.total_seconds(), what)
    return check_seconds(value, what)


def check_moment(value: Any) -> dt.datetime:
    """The argument, if it is a datetime with a time zone."""
    moment = check_time(value, "time") if isinstance(value, dt.datetime) else None
    if not isinstance(moment, dt.datetime):
        raise InvalidInput(f"time must be a datetime, not {type(value).__qualname__}")
    return moment


def to_micros(value: Any, what: str, now: int) -> int | None:
    """Microseconds since 1970 of such a time; `now` is when a span begins."""
    limit = check_time(value, what)
    return None if limit is None else moment_micros(limit, now)


def moment_micros(limit: float | dt.datetime, now: int) -> int:
    """Microseconds since 1970 of a time that was checked."""
    if isinstance(limit, dt.datetime):
        return min(max(0, round(limit.timestamp() * 1_000_000)), LAST_TIME)
    return min(now + round(limit * 1_000_000), LAST_TIME)
