"""How long a call that lost a race tries again before its caller is told.

The measure is time, not a number of attempts: a writer that has its next step ready can win very many races in a row
against one that has to look first, and must not make it give up while both of them get on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

PATIENCE = 30.0  # seconds
_AT_LEAST = 8


def tries() -> Iterator[int]:
    """0, 1, 2, … until the patience is at its end."""
    end = time.monotonic() + PATIENCE
    number = 0
    while number < _AT_LEAST or time.monotonic() < end:
        yield number
        number += 1
