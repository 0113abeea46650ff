"""Importing: sessions and runs that other programs kept, into a store. One small module per foreign format.

A format is a module with two functions: `recognises(content)` and `read(content)`. They are asked in the order of
`FORMATS`; each file is read by the first that knows it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from backtrail.engines.drive import finish
from backtrail.errors import InvalidInput
from backtrail.history.context import Context
from backtrail.importers import claude, ductwork, openai, openrouter, own_jsonl, picoclaw
from backtrail.importers.model import BadFile, Found, Report, ReportLine
from backtrail.importers.scan import read, scan
from backtrail.importers.store_writer import take
from backtrail.runner import AsyncRunner

__all__ = ["FORMATS", "Line", "Report", "import_awaited", "import_blocking"]

FORMATS: dict[str, ModuleType] = {
    "backtrail": own_jsonl,
    "picoclaw": picoclaw,
    "ductwork": ductwork,
    "openrouter": openrouter,
    "claude": claude,
    "openai": openai,
}
Progress = Callable[[int, int], None]


class _Import:
    """One import: its files, and its growing report."""

    def __init__(self, context: Context, format: str | None) -> None:
        context.check_open()
        if format is not None and format not in FORMATS:
            raise InvalidInput(f"format={format!r} is unknown: use {', '.join(map(repr, FORMATS))} or None")
        self._context = context
        self._formats = FORMATS.values() if format is None else (FORMATS[format],)
        self._asked = format is not None
        self._lines: dict[str, list[ReportLine]] = {}

    def read(self, path: Path, name: str) -> list[Found]:
        """What a file holds; a bad one is put into the report."""
        try:
            content = read(path, name)
            for module in self._formats:
                if self._asked or module.recognises(content):
                    found: list[Found] = module.read(content)
                    return found
            raise BadFile(f"it has none of the known formats ({', '.join(FORMATS)})")
        except BadFile as bad:
            self._add("failed", ReportLine(str(path), None, str(bad)))
            return []

    async def take(self, path: Path, finds: list[Found]) -> None:
        """Put what a file holds into the store."""
        for found in finds:
            try:
                outcome, reason = await take(self._context, found)
            except InvalidInput as error:  # a name or a value that a store cannot keep: the next one may be fine
                self._add("failed", ReportLine(str(path), found.id, str(error)))
                continue
            self._add(outcome, ReportLine(str(path), found.id, reason))
            for note in found.notes:
                self._add("notes", ReportLine(str(path), found.id, note))

    def _add(self, name: str, line: ReportLine) -> None:
        self._lines.setdefault(name, []).append(line)

    def report(self) -> Report:
        return Report(**{name: tuple(lines) for name, lines in self._lines.items()})


def import_blocking(
    context: Context, target: Any, format: str | None = None, progress: Progress | None = None
) -> Report:
    """Import files through a blocking engine."""
    work = _Import(context, format)
    files = scan(target)
    for number, (path, name) in enumerate(files, 1):
        finish(work.take(path, work.read(path, name)))
        if progress is not None:
            progress(number, len(files))
    return work.report()


async def import_awaited(
    context: Context, hop: AsyncRunner, target: Any, format: str | None = None, progress: Progress | None = None
) -> Report:
    """Import files on an event loop, which never waits for a disk."""
    from asyncio import to_thread

    work = _Import(context, format)
    files = await to_thread(scan, target)
    for number, (path, name) in enumerate(files, 1):
        await hop(work.take(path, await to_thread(work.read, path, name)))
        if progress is not None:
            progress(number, len(files))
    return work.report()
