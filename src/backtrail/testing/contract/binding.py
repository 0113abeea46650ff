"""How a case meets an engine: it is written once, as a coroutine, and run in each colour."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest

from backtrail.engines.base import Engine
from backtrail.testing import drive

Self = TypeVar("Self", bound="Binding")


class Binding:
    """What a subclass says about its engine."""

    #: For an engine that awaits its client: ("awaited",).
    colours: ClassVar[tuple[drive.Colour, ...]] = ("stepped", "hopped")

    _place: Path
    _dress: Callable[[Engine], Engine]
    _opened: list[Engine]

    def make_engine(self, place: Path) -> Engine:
        """An engine on the store that belongs to `place`; called again, another engine on the same store."""
        raise NotImplementedError(f"{type(self).__name__} must say how its engine is made")

    def open(self) -> Engine:
        """Another engine on the store of the running case; closed when the case ends."""
        engine = self._dress(self.make_engine(self._place))
        self._opened.append(engine)
        return engine

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One test for each colour."""
        if "colour" in metafunc.fixturenames:
            metafunc.parametrize("colour", self.colours)


def case(test: Callable[[Self, Engine], Awaitable[None]]) -> Callable[[Self, drive.Colour, Path], None]:
    """Turn `async def test_…(self, engine)` into a test for pytest, run once in each colour."""

    def in_colour(self: Self, colour: drive.Colour, tmp_path: Path) -> None:
        async def whole(dress: Callable[[Engine], Engine]) -> None:
            self._place, self._dress, self._opened = tmp_path, dress, []
            try:
                await test(self, self.open())
            finally:
                for engine in self._opened:
                    await engine.close()

        drive.run(colour, whole)

    # Not functools.wraps: pytest would look through it and ask for a fixture named `engine`.
    for part in ("__name__", "__qualname__", "__doc__", "__module__"):
        setattr(in_colour, part, getattr(test, part))
    return in_colour
