"""Imports of a framework that may not be installed: the error names the extra that installs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from backtrail.errors import MissingExtra


@contextmanager
def require_extra(extra: str) -> Iterator[None]:
    """Turn an `ImportError` of the imports inside into a `MissingExtra`."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra(f"backtrail's adapter for {extra} ({error})", extra) from error
