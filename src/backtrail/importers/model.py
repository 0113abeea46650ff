"""The values of an import: a file's content, the threads read from it, and the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import msgspec
from blake3 import blake3

from backtrail.model import MAX_GIVEN

Message = dict[str, Any]


class BadFile(Exception):
    """A file, or a part of one, that cannot be imported. The text says why."""


class FileContent(msgspec.Struct, frozen=True):
    """A file that was read: either one JSON value, or the objects of its lines with their line numbers."""

    path: Path
    name: str  #: the path below the imported directory, without suffix: the id of a thread that has none
    value: Any = None
    lines: list[tuple[int, dict[str, Any]]] | None = None
    notes: tuple[str, ...] = ()  #: lines that could not be read


class Segment(msgspec.Struct, frozen=True):
    """Messages that are saved as one checkpoint. They follow segment number `after` (None: the one before), or, if
    `replaces_all`, take the place of all of them."""

    messages: list[Message]
    after: int | None = None
    replaces_all: bool = False
    snapshot: str | None = None  #: the message id that `session.rewind()` finds this checkpoint by


class ForeignThread(msgspec.Struct, frozen=True):
    """A session or a run, read from a file of another program."""

    id: str
    kind: Literal["session", "run"] = "session"
    segments: tuple[Segment, ...] = ()
    head: int = -1  #: the segment whose end is the head
    summary: str = ""
    user_turns: int | None = None  #: None if the file has no count
    fields: dict[str, Any] = {}  #: of a run
    custom: dict[str, Any] = {}  #: custom fields of the last checkpoint: creation time, title
    notes: tuple[str, ...] = ()

    def messages_at_head(self) -> list[Message]:
        """The messages up to the head."""
        parts: list[list[Message]] = []
        at = self.head % len(self.segments) if self.segments else -1
        while at >= 0:
            segment = self.segments[at]
            parts.append(segment.messages)
            at = -1 if segment.replaces_all else at - 1 if segment.after is None else segment.after
        return [message for part in reversed(parts) for message in part]

    def digest(self) -> str:
        """Identifies this content, so that it is imported once."""
        parts = [self.id, self.kind, [msgspec.structs.astuple(s) for s in self.segments], self.summary, self.fields]
        return blake3(json.dumps(_sorted(parts), default=repr).encode("utf-8", "surrogatepass")).hexdigest(16)


def _sorted(value: Any) -> Any:
    """The same content whatever the order of keys, which need not be text."""
    if isinstance(value, dict):
        pairs = [[repr(_sorted(key)), _sorted(item)] for key, item in value.items()]
        return {"": sorted(pairs, key=lambda pair: pair[0])}
    if isinstance(value, int) and value.bit_length() > _LONG_INT:
        return hex(value)
    return [_sorted(item) for item in value] if isinstance(value, list | tuple) else value


_LONG_INT = 12_000  # bits: Python does not write a longer one in decimal


def check_run(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a run, with defaults; `BadFile` if one has the wrong type."""
    for name in ("iteration", "input_tokens", "output_tokens"):
        if type(fields.setdefault(name, 0)) is not int or not 0 <= fields[name] < MAX_GIVEN:
            raise BadFile(f"its {name} is no whole number from 0 to {MAX_GIVEN:,}")
    for name, kind in (("task", str), ("system_prompt", str), ("messages", list), ("custom", dict)):
        if type(fields.setdefault(name, kind())) is not kind:
            raise BadFile(f"its {name} is no {kind.__name__}")
    return fields


class ReportLine(msgspec.Struct, frozen=True):
    """One file or thread in a report."""

    source: str  #: the file
    id: str | None = None
    reason: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.source, self.id, self.reason) if part)


class Report(msgspec.Struct, frozen=True):
    """The outcome of an import, for each file or thread. `str()` of it is for people."""

    imported: tuple[ReportLine, ...] = ()  #: new in the store
    updated: tuple[ReportLine, ...] = ()  #: in the store already; the file had more
    unchanged: tuple[ReportLine, ...] = ()  #: in the store already
    skipped: tuple[ReportLine, ...] = ()  #: the store has something else under this id, which was kept
    failed: tuple[ReportLine, ...] = ()  #: files that could not be read
    notes: tuple[ReportLine, ...] = ()  #: parts of an imported file that were left out

    def __str__(self) -> str:
        names = ("imported", "updated", "unchanged", "skipped", "failed")
        lines = [", ".join(f"{len(getattr(self, name))} {name}" for name in names)]
        for name in ("skipped", "failed", "notes"):
            lines += [f"  {name.removesuffix('s')}: {line}" for line in getattr(self, name)]
        return "\n".join(lines)
