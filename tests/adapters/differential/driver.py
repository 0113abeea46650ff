"""Calls a graph by its sync or by its async methods, so that a program is written once."""

from __future__ import annotations

from typing import Any


class Driver:
    """One way to call graphs and savers: `await driver.invoke(graph, …)` calls `invoke` or `ainvoke`."""

    def __init__(self, saver: Any, *, sync: bool) -> None:
        self.saver = saver
        self.sync = sync

    def __getattr__(self, name: str) -> Any:
        async def call(target: Any, *args: Any, **kwargs: Any) -> Any:
            if self.sync:
                return getattr(target, name)(*args, **kwargs)
            return await getattr(target, f"a{name}")(*args, **kwargs)

        return call

    async def all(self, name: str, target: Any, *args: Any, **kwargs: Any) -> list[Any]:
        """Everything that an iterating method gives: `stream`, `get_state_history`, `list`."""
        if self.sync:
            return list(getattr(target, name)(*args, **kwargs))
        return [one async for one in getattr(target, f"a{name}")(*args, **kwargs)]
