"""Imports sessions and runs of other programs into a store. One small module per file format.

A format is a module with two functions: `recognises(content)` and `read(content)`. A file is read by the first format
in `FORMATS` that recognises it. `source_files` finds the files, `store_writer` writes their contents into the store.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from backtrail.async_runner import AsyncRunner
from backtrail.engines.coroutines import finish
from backtrail.errors import BacktrailError, InvalidInput, Unavailable
from backtrail.history.context import Context
from backtrail.importers import claude_code, ductwork, message_list, openrouter, own_jsonl, picoclaw
from backtrail.importers.model import BadFile, ForeignThread, Report, ReportLine
from backtrail.importers.source_files import find_files, read_file
from backtrail.importers.store_writer import import_thread

__all__ = ["FORMATS", "Report", "ReportLine", "import_async", "import_sync"]

FORMATS: dict[str, ModuleType] = {
    "backtrail": own_jsonl,
    "picoclaw": picoclaw,
    "ductwork": ductwork,
    "openrouter": openrouter,
    "claude": claude_code,
    "openai": message_list,
}
Progress = Callable[[int, int], object]


class _Import:
    """One import and its report so far."""

    def __init__(self, context: Context, format: str | None) -> None:
        context.check_open()
        if format is not None and format not in FORMATS:
            raise InvalidInput(f"format={format!r} is unknown: use {', '.join(map(repr, FORMATS))} or None")
        self._context = context
        self._formats = FORMATS.values() if format is None else (FORMATS[format],)
        self._format_given = format is not None
        self._lines: dict[str, list[ReportLine]] = {}

    def read(self, path: Path, name: str) -> list[ForeignThread]:
        """Read the threads of a file; a bad file goes into the report."""
        try:
            content = read_file(path, name)
            for module in self._formats:
                if self._format_given or module.recognises(content):
                    threads: list[ForeignThread] = module.read(content)
                    return threads
            raise BadFile(f"it has none of the known formats ({', '.join(FORMATS)})")
        except BadFile as bad:
            self._add("failed", ReportLine(str(path), None, str(bad)))
        except FileNotFoundError:
            self._add("failed", ReportLine(str(path), None, "it is gone: it was removed during the import"))
        return []

    async def write(self, path: Path, threads: list[ForeignThread]) -> None:
        """Write the threads of a file into the store."""
        for thread in threads:
            try:
                outcome, reason = await import_thread(self._context, thread)
            except Unavailable:
                raise  # the store cannot be written to, and the next thread would fail as well
            except BacktrailError as error:
                # A name or a value that a store cannot keep, or a damaged thread of this id: the next may be fine.
                self._add("failed", ReportLine(str(path), thread.id, str(error)))
                continue
            self._add(outcome, ReportLine(str(path), thread.id, reason))
            for note in thread.notes:
                self._add("notes", ReportLine(str(path), thread.id, note))

    def _add(self, name: str, line: ReportLine) -> None:
        self._lines.setdefault(name, []).append(line)

    def report(self) -> Report:
        return Report(**{name: tuple(lines) for name, lines in self._lines.items()})


def import_sync(context: Context, target: Any, format: str | None = None, progress: Progress | None = None) -> Report:
    """Import files through a blocking engine."""
    import_ = _Import(context, format)
    files = find_files(target)
    for number, (path, name) in enumerate(files, 1):
        finish(import_.write(path, import_.read(path, name)))
        if progress is not None:
            progress(number, len(files))
    return import_.report()


async def import_async(
    context: Context, runner: AsyncRunner, target: Any, format: str | None = None, progress: Progress | None = None
) -> Report:
    """Import files on an event loop; files are read in threads, so that the loop never waits for a disk."""
    from asyncio import to_thread

    import_ = _Import(context, format)
    files = await to_thread(find_files, target)
    for number, (path, name) in enumerate(files, 1):
        await runner(import_.write(path, await to_thread(import_.read, path, name)))
        if progress is not None:
            progress(number, len(files))
    return import_.report()
