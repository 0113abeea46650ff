"""Binds a case to an engine: it is written once, as a coroutine, and run in each mode."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest

from backtrail.engines.base import Engine
from backtrail.testing import call_modes

Self = TypeVar("Self", bound="Binding")


class Binding:
    """The facts that a subclass gives about its engine."""

    #: For an engine that awaits its client: ("awaited",).
    modes: ClassVar[tuple[call_modes.Mode, ...]] = ("direct", "threaded")

    _directory: Path
    _wrap: Callable[[Engine], Engine]
    _opened: list[Engine]

    def make_engine(self, directory: Path) -> Engine:
        """An engine on the store of `directory`; called again, another engine on the same store."""
        raise NotImplementedError(f"{type(self).__name__} must say how its engine is made")

    def open(self) -> Engine:
        """Another engine on the store of the running case; closed when the case ends."""
        engine = self._wrap(self.make_engine(self._directory))
        self._opened.append(engine)
        return engine

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One test for each mode."""
        if "mode" in metafunc.fixturenames:
            metafunc.parametrize("mode", self.modes)


def case(test: Callable[[Self, Engine], Awaitable[None]]) -> Callable[[Self, call_modes.Mode, Path], None]:
    """Turn `async def test_…(self, engine)` into a test for pytest, run once in each mode."""

    def in_mode(self: Self, mode: call_modes.Mode, tmp_path: Path) -> None:
        async def whole(wrap: Callable[[Engine], Engine]) -> None:
            self._directory, self._wrap, self._opened = tmp_path, wrap, []
            try:
                await test(self, self.open())
            finally:
                for engine in self._opened:
                    await engine.close()

        call_modes.run(mode, whole)

    # Not functools.wraps: pytest would look through it and ask for a fixture named `engine`.
    for part in ("__name__", "__qualname__", "__doc__", "__module__"):
        setattr(in_mode, part, getattr(test, part))
    return in_mode
