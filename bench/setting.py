"""Where and how a run takes place: sizes, rounds, scratch directories, progress."""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn


@dataclass
class Setting:
    """Handed to every workload."""

    root: Path  #: on the disk that is to be measured
    rounds: int = 3
    quick: bool = False
    console: Console = field(default_factory=Console)

    def __post_init__(self) -> None:
        columns = (TextColumn("{task.description:<32}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        self.bars = Progress(*columns, console=self.console, disable=not self.console.is_terminal)

    @property
    def steps(self) -> int:
        """Steps of the one long conversation."""
        return 400 if self.quick else 1600

    def scaled(self, count: int) -> int:
        """A count that a quick run makes four times smaller."""
        return count // 4 if self.quick else count

    @contextmanager
    def place(self) -> Iterator[Scratch]:
        """Fresh directories, gone afterwards."""
        directory = Path(tempfile.mkdtemp(dir=self.root))
        gc.collect()
        try:
            yield Scratch(directory)
        finally:
            shutil.rmtree(directory)

    @contextmanager
    def bar(self, title: str, total: int) -> Iterator[Bar]:
        """Progress of one part of a workload: a bar on a terminal, a line at each tenth in a log."""
        bar = Bar(self, title, total)
        yield bar
        bar.to(total)


class Bar:
    """How far a part of a workload has come."""

    def __init__(self, setting: Setting, title: str, total: int) -> None:
        self._bars, self._console, self._title, self._total = setting.bars, setting.console, title, total
        self._task = self._bars.add_task(title, total=total)
        self._done, self._told, self._start = 0, 0, perf_counter()

    def to(self, done: int) -> None:
        self._done = done
        self._bars.update(self._task, completed=done)
        tenth = 10 * done // self._total
        if not self._console.is_terminal and tenth > self._told:
            self._told = tenth
            self._console.print(
                f"{self._title:<32} {10 * tenth:>3}%  {perf_counter() - self._start:6.1f} s", style="dim"
            )

    def tick(self, more: int = 1) -> None:
        self.to(self._done + more)


@dataclass
class Scratch:
    """A directory that hands out subdirectories."""

    path: Path
    _count: int = 0

    def new(self) -> Path:
        self._count += 1
        made = self.path / str(self._count)
        made.mkdir()
        return made
