"""Programs for a run, drawn from a seed: each process that plays one finds the same."""

from __future__ import annotations

import hashlib
import random
from typing import Any, Literal

import msgspec

Kind = Literal["plain", "keyed", "flaky", "failing", "checked", "unchecked", "together", "sub", "ask", "sleep"]
_KINDS: tuple[Kind, ...] = (
    "plain",
    "keyed",
    "flaky",
    "failing",
    "checked",
    "unchecked",
    "together",
    "sub",
    "ask",
    "sleep",
)
_WEIGHTS = (6, 4, 2, 2, 3, 2, 3, 1, 1, 1)
WIDTH = 3  #: steps that are done together


class Act(msgspec.Struct, frozen=True):
    """One act of a program. `id` is its name in the ledger; acts of one `name` are told apart by their arguments."""

    id: str
    kind: Kind
    name: str
    seconds: float = 0.0  #: that the function takes, or a sleep lasts


class Plan(msgspec.Struct, frozen=True):
    """A program: its acts, between checkpoints."""

    seed: str
    parts: list[list[Act]]

    @property
    def acts(self) -> list[Act]:
        """All acts."""
        return [act for part in self.parts for act in part]


def draw(seed: str) -> Plan:
    """The program of a seed."""
    dice = random.Random(seed)
    parts: list[list[Act]] = []
    for part in range(dice.randint(1, 3)):
        acts = []
        for number in range(dice.randint(3, 7)):
            kind = dice.choices(_KINDS, _WEIGHTS)[0]
            own = kind in ("ask", "sleep", "sub", "together")  # questions and sleeps need names of their own
            name = f"{kind} {part}.{number}" if own else kind
            seconds = dice.choice((0.0, 0.0, 0.001, 0.004)) if kind != "sleep" else dice.uniform(0.001, 0.06)
            acts.append(Act(f"{part}.{number}", kind, name, seconds))
        parts.append(acts)
    return Plan(seed, parts)


def value_of(seed: str, id: str) -> dict[str, Any]:
    """The result of a step: the same for each call, and of any size up to some KB."""
    digest = hashlib.sha256(f"{seed} {id}".encode()).hexdigest()
    return {"of": id, "text": digest * (int(digest[:2], 16) // 4)}
