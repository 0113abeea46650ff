"""Finishing a coroutine in place: what makes one text serve two colours."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, as those of a blocking engine never do."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # StopIteration is untyped
    coroutine.close()
    raise RuntimeError("a blocking engine suspended: this is a defect of the engine, please report it")
