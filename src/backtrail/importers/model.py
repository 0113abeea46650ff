"""What foreign files hold, in backtrail's words, and what became of it: plain frozen values, known to all of this
room."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import msgspec
from blake3 import blake3

Message = dict[str, Any]


class BadFile(Exception):
    """A file, or a part of one, that cannot be imported. The text says why."""


class Content(msgspec.Struct, frozen=True):
    """A file that was read: one JSON value, or the objects of its lines with their numbers."""

    path: Path
    name: str  #: the path below where the import began, without its ending: an id for what has none of its own
    value: Any = None
    lines: list[tuple[int, dict[str, Any]]] | None = None
    notes: tuple[str, ...] = ()  #: lines that could not be read


class MessageRun(msgspec.Struct, frozen=True):
    """Messages that follow each other. They come after stretch number `after` (None: the one before), or, `whole`, in
    the place of everything."""

    messages: list[Message]
    after: int | None = None
    whole: bool = False
    snapshot: str | None = None  #: the message id that the conversation is tied to once they are there


class Found(msgspec.Struct, frozen=True):
    """A conversation or a run in a foreign file."""

    id: str
    kind: Literal["session", "run"] = "session"
    stretches: tuple[MessageRun, ...] = ()
    head: int = -1  #: the stretch that the conversation stands at
    summary: str = ""
    user_turns: int | None = None  #: where the file counts them itself
    fields: dict[str, Any] = {}  #: of a run
    facts: dict[str, Any] = {}  #: what else is worth keeping: when it was made, its title
    notes: tuple[str, ...] = ()

    def live(self) -> list[Message]:
        """The messages on the way to the head."""
        parts: list[list[Message]] = []
        at = self.head % len(self.stretches) if self.stretches else -1
        while at >= 0:
            stretch = self.stretches[at]
            parts.append(stretch.messages)
            at = -1 if stretch.whole else at - 1 if stretch.after is None else stretch.after
        return [message for part in reversed(parts) for message in part]

    def digest(self) -> str:
        """A name for exactly this content: what was imported under it need not be looked at again."""
        parts = [self.id, self.kind, [msgspec.structs.astuple(s) for s in self.stretches], self.summary, self.fields]
        return blake3(json.dumps(parts, sort_keys=True, default=repr).encode("utf-8", "surrogatepass")).hexdigest(16)


def check_run(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a run, if a run can have them."""
    for name in ("iteration", "input_tokens", "output_tokens"):
        if type(fields.setdefault(name, 0)) is not int or fields[name] < 0:
            raise BadFile(f"its {name} is no whole number from 0 up")
    for name, kind in (("task", str), ("system_prompt", str), ("messages", list), ("custom", dict)):
        if type(fields.setdefault(name, kind())) is not kind:
            raise BadFile(f"its {name} is no {kind.__name__}")
    return fields


class ReportLine(msgspec.Struct, frozen=True):
    """One line of a report."""

    source: str  #: the file
    id: str | None = None
    reason: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.source, self.id, self.reason) if part)


class Report(msgspec.Struct, frozen=True):
    """What an import did. Prints well."""

    imported: tuple[ReportLine, ...] = ()  #: new in the store
    updated: tuple[ReportLine, ...] = ()  #: were in the store, and the file had more
    unchanged: tuple[ReportLine, ...] = ()  #: were in the store already
    skipped: tuple[ReportLine, ...] = ()  #: the store has something else under this id, which was left as it is
    failed: tuple[ReportLine, ...] = ()  #: files that could not be read
    notes: tuple[ReportLine, ...] = ()  #: what was left out of what was imported

    def __str__(self) -> str:
        names = ("imported", "updated", "unchanged", "skipped", "failed")
        lines = [", ".join(f"{len(getattr(self, name))} {name}" for name in names)]
        for name in ("skipped", "failed", "notes"):
            lines += [f"  {name.removesuffix('s')}: {line}" for line in getattr(self, name)]
        return "\n".join(lines)
