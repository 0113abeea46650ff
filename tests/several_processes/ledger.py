"""What the clients reported: every operation, when it began and ended, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec


class Operation(msgspec.Struct, kw_only=True):
    """One call of one client."""

    client: int
    life: int
    do: str
    thread: str
    begin: float
    end: float = math.inf  #: of an acknowledged one; any other may take effect at any later time
    acknowledged: bool = False
    error: str | None = None
    text: str = ""
    trace: str | None = None
    id: str | None = None  #: of the checkpoint that it made or moved to, or would have made
    token: str | None = None
    by: str | None = None  #: which call a save was
    target: str | None = None
    source: str | None = None
    label: str | None = None
    before: tuple[str, int, bool, bool] | None = None  #: active side, generation, spooling, both sides have everything
    after: tuple[str, int, bool, bool] | None = None

    @property
    def asked(self) -> tuple[str, int] | None:
        """The side and generation that surely answered it; None if that is not sure."""
        if self.before is None or self.after is None or self.before[:2] != self.after[:2] or self.spooled:
            return None
        return self.before[:2]

    @property
    def where(self) -> tuple[str, int] | None:
        """The side and generation that surely took it; None if that is not sure."""
        return self.asked if self.acknowledged else None

    @property
    def moved(self) -> bool:
        """The roles changed while it was made: it may have been made on both sides."""
        return self.before is None or self.after is None or self.before[:2] != self.after[:2]

    @property
    def refused(self) -> bool:
        """It surely did nothing, because what it was about was not there."""
        return self.asked is not None and self.error is not None and self.error.endswith(("NotFound", "NoCheckpoint"))

    @property
    def spooled(self) -> bool:
        """It may have gone into a spool."""
        return any(facts is None or facts[2] for facts in (self.before, self.after))

    def surely_knew(self, other: Operation) -> bool:
        """When this operation was made, the side that took it had the other's work."""
        return (
            self.where is not None
            and other.where is not None
            and self.where[0] == other.where[0]
            and other.end < self.begin
        )

    def __str__(self) -> str:
        told = [f"{self.begin:8.3f}", f"client {self.client}.{self.life}", f"{self.by or self.do} {self.thread!r}"]
        names = ("token", "source", "target", "label", "id")
        told += [f"{name}={value}" for name in names if (value := getattr(self, name)) is not None]
        facts = self.before if self.before == self.after else (self.before, self.after)
        if self.acknowledged:
            told.append(f"-> acknowledged at {self.end:.3f}, {facts}")
        else:
            told.append(f"-> {self.error or 'no answer'} {self.text[:160]}, {self.before}")
        return " ".join(told)


class Ledger:
    """All operations of a round, by their begin."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.pruned: list[tuple[str, str, float]] = []  #: thread, checkpoint, and when the prune began
        self.faults: list[str] = []  #: of processes that ended by an exception
        self.unsettled: list[str] = []  #: of processes that did not catch up

    @classmethod
    def read(cls, folder: Path, start: int) -> Ledger:
        """The reports in a folder; times count from `start`."""
        ledger = cls()
        for path in sorted(folder.glob("client-*.jsonl")):
            _, client, life = path.stem.split("-")
            lines = path.read_bytes().split(b"\n")[:-1]  # the last one may be cut by a kill
            ledger._add(int(client), int(life), map(msgspec.json.decode, lines), start)
        ledger.operations.sort(key=lambda operation: operation.begin)
        return ledger

    def _add(self, client: int, life: int, lines: Iterable[dict[str, Any]], start: int) -> None:
        begun: dict[int, Operation] = {}
        for line in lines:
            at = (line.pop("at") - start) / 1e9
            if (number := line.pop("begin", None)) is not None:
                made = Operation(client=client, life=life, begin=at, before=tuple(line.pop("before")), **line)
                begun[number] = made
                self.operations.append(made)
            elif (number := line.pop("end", None)) is not None:
                made = begun[number]
                made.id = line.get("id") or made.id
                made.error, made.text, made.trace = line.get("error"), line.get("text", ""), line.get("trace")
                made.after = tuple(line["after"]) if "after" in line else None
                if made.error is None:
                    made.acknowledged, made.end = True, at
            elif "pruned" in line:
                began = (line["began"] - start) / 1e9
                self.pruned += [(line["thread"], id, began) for id in line["pruned"]]
            elif "fault" in line:
                self.faults.append(f"client {client}.{life}: {line['fault']}\n{line['trace']}")
            elif not line["settled"]:
                self.unsettled.append(f"client {client}.{life}: {line['status']}")

    def all(self, *kinds: str, thread: str | None = None) -> list[Operation]:
        return [
            operation
            for operation in self.operations
            if operation.do in kinds and (thread is None or operation.thread == thread)
        ]

    def story(self, *words: str) -> str:
        """The operations whose report has one of these words, in their order."""
        return "\n".join(
            told for operation in self.operations if any(word in (told := str(operation)) for word in words)
        )
