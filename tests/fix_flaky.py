"""An engine that can be made unreachable: for faults of stores without a server (a file, a dict)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from backtrail.engines.base import Engine
from backtrail.engines.capabilities import FailsFast
from backtrail.errors import Unavailable


class Flaky(Engine, FailsFast):
    """Passes everything on while `up`. `lose_answers`: does the work of the next n commits, then says it is away.
    `awaiting`: suspends at each call, as an engine over a network does."""

    def __init__(self, engine: Engine, *, awaiting: bool = False) -> None:
        self.engine = engine
        self.awaiting = awaiting
        self.properties = msgspec.structs.replace(engine.properties, blocking=not awaiting)
        self.up = True
        self.lose_answers = 0
        self.calls: list[str] = []


def _passing(name: str) -> Any:
    async def call(self: Flaky, *args: Any, **options: Any) -> Any:
        self.calls.append(name)
        if self.awaiting:
            await asyncio.sleep(0)
        if not self.up and name != "close":
            raise Unavailable("the store is away, because a test took it away")
        answer = await getattr(self.engine, name)(*args, **options)
        if name == "commit" and self.lose_answers:
            self.lose_answers -= 1
            self.up = False
            raise Unavailable("the answer was lost, because a test lost it")
        return answer

    return call


for _name in Engine.__abstractmethods__:
    setattr(Flaky, _name, _passing(_name))
Flaky.__abstractmethods__ = frozenset()
