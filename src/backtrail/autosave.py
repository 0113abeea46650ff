"""Saving every n-th step: counts calls and remembers the newest state until it is saved."""

from __future__ import annotations

from typing import Any

from backtrail.errors import InvalidInput


class EveryNth:
    """Decides which of many states is saved. The front doors do the saving."""

    def __init__(self, every: int) -> None:
        if type(every) is not int or every < 1:
            raise InvalidInput(f"every must be an int from 1 up, not {every!r}")
        self.every = every
        self.pending: Any = None
        self.facts: dict[str, Any] = {}
        self.waiting = 0

    def due(self, state: Any, facts: dict[str, Any]) -> bool:
        """Note a step, and what was said about it; whether it is one to save."""
        self.pending, self.facts = state, facts
        self.waiting += 1
        return self.waiting >= self.every

    def saved(self) -> None:
        self.pending, self.facts, self.waiting = None, {}, 0
