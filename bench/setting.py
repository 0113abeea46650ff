"""Where and how a run takes place: sizes, rounds, scratch directories, progress."""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


@dataclass
class Setting:
    """Handed to every workload."""

    root: Path  #: on the disk that is to be measured
    rounds: int = 3
    quick: bool = False
    bars: Progress = field(
        default_factory=lambda: Progress(
            TextColumn("{task.description:<44}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn()
        )
    )

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
        """A progress bar for one part of a workload."""
        task = self.bars.add_task(title, total=total)
        yield Bar(self.bars, task)
        self.bars.update(task, completed=total)


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


@dataclass
class Bar:
    _bars: Progress
    _task: object

    def to(self, done: int) -> None:
        self._bars.update(self._task, completed=done)  # type: ignore[arg-type]

    def tick(self, more: int = 1) -> None:
        self._bars.advance(self._task, more)  # type: ignore[arg-type]
