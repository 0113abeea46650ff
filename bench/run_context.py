"""The parameters of a run, its scratch directories and its progress bars."""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

ENGINES = ("sqlite", "jsonl", "postgres", "redis")  #: on which `scale` can be run


@dataclass
class RunContext:
    """The argument of every workload."""

    root: Path  #: of all scratch directories, on the disk to be measured
    rounds: int = 3
    quick: bool = False
    console: Console = field(default_factory=Console)
    size: int = 5000  #: threads and steps of the smaller store of `scale`
    engine: str = ENGINES[0]  #: of `scale`

    def __post_init__(self) -> None:
        columns = (TextColumn("{task.description:<32}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        self.bars = Progress(*columns, console=self.console, disable=not self.console.is_terminal)

    @property
    def steps(self) -> int:
        """Steps of the one long conversation."""
        return 400 if self.quick else 1600

    def scaled(self, count: int) -> int:
        """`count`, or a quarter of it in a quick run."""
        return count // 4 if self.quick else count

    @contextmanager
    def scratch(self) -> Iterator[Scratch]:
        """A directory for fresh subdirectories, removed afterwards."""
        directory = Path(tempfile.mkdtemp(dir=self.root))
        gc.collect()
        try:
            yield Scratch(directory)
        finally:
            shutil.rmtree(directory)

    @contextmanager
    def progress(self, title: str, total: int) -> Iterator[ProgressBar]:
        """Progress of one part of a workload: a bar on a terminal, a line at each tenth in a log."""
        bar = ProgressBar(self, title, total)
        yield bar
        bar.advance_to(total)


class ProgressBar:
    """The progress of one part of a workload."""

    def __init__(self, context: RunContext, title: str, total: int) -> None:
        self._bars, self._console, self._title, self._total = context.bars, context.console, title, total
        self._task = self._bars.add_task(title, total=total)
        self._done, self._printed_tenths, self._start = 0, 0, perf_counter()

    def advance_to(self, done: int) -> None:
        self._done = done
        self._bars.update(self._task, completed=done)
        tenth = 10 * done // self._total
        if not self._console.is_terminal and tenth > self._printed_tenths:
            self._printed_tenths = tenth
            self._console.print(
                f"{self._title:<32} {10 * tenth:>3}%  {perf_counter() - self._start:6.1f} s", style="dim"
            )

    def advance(self, more: int = 1) -> None:
        self.advance_to(self._done + more)

    def continued_from(self, before: int) -> Callable[[int], None]:
        """`advance_to` for a part that counts from 0 and begins when `before` are done."""
        return lambda done: self.advance_to(before + done)


@dataclass
class Scratch:
    """A directory, and the number of subdirectories made in it."""

    path: Path
    _count: int = 0

    def new_directory(self) -> Path:
        self._count += 1
        made = self.path / str(self._count)
        made.mkdir()
        return made
