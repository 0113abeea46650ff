"""A framework that is not installed is named by the extra that brings it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from backtrail.errors import MissingExtra


@contextmanager
def needed(extra: str) -> Iterator[None]:
    """Around the imports of a framework: what is missing is a `MissingExtra`."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra(f"backtrail's adapter for {extra} ({error})", extra) from error
