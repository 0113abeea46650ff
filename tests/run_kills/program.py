"""A program of a run, played over the sync or the async API.

It is written once, as a generator of requests: the two players call, or await, the methods of the run. A step's
function logs its effect at its end, the program logs each result that it was given, and both are on disk before
anything else happens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

import backtrail
import backtrail.aio
from backtrail import Done, Retry
from run_kills.ledger import UNCERTAIN, Ledger
from run_kills.plan import WIDTH, Act, Plan, value_of

LEASE = 30.0  # seconds to wait for a sub-run: the lease of a dead process may end later than that of the run around it


class Request(msgspec.Struct, frozen=True):
    """A call of a method of the run."""

    method: str
    args: tuple[Any, ...]
    options: dict[str, Any] = {}


class Together(msgspec.Struct, frozen=True):
    """Calls that are made at the same time."""

    requests: list[Request]


Requests = Generator[Request | Together, Any, None]


class Flaky(Exception):
    """What a step raises that succeeds at its second attempt."""


class Program:
    """One process's view of a program."""

    def __init__(self, plan: Plan, ledger: Ledger, sub: Callable[[str], Any]) -> None:
        self.plan = plan
        self.ledger = ledger
        self.sub = sub  # plays a sub-run, inside of a step
        self._tried: set[str] = set()

    def requests(self, run: Any) -> Requests:
        """The requests of the whole program, from the checkpoint that the run is at."""
        if run.iteration == 0:
            run.custom.setdefault("results", [])
        for part in self.plan.parts[run.iteration :]:
            found: list[Any] = []
            for act in part:
                found += yield from self._act(act)
            run.messages.append({"role": "assistant", "content": f"part {run.iteration}"})
            results = [*run.custom["results"], *found]
            yield Request("checkpoint", (), {"custom": {"results": results}})
        run.result = run.custom["results"]

    def _act(self, act: Act) -> Generator[Request | Together, Any, list[Any]]:
        if act.kind == "together":
            ids = [f"{act.id}/{n}" for n in range(WIDTH)]
            values = yield Together([self._step(act, id, {"key": id}) for id in ids])
            for id, value in zip(ids, values, strict=True):
                self.ledger.write("returned", id, value)
            return list(values)
        value = yield from self._one(act)
        self.ledger.write("returned", act.id, value)
        return [value]

    def _one(self, act: Act) -> Generator[Request | Together, Any, Any]:
        if act.kind == "ask":
            return (yield Request("ask", (act.id, f"What about {act.id}?"), {"schema": int, "about": [act.id]}))
        if act.kind == "sleep":
            self.ledger.write("asked", act.id)
            return (yield Request("sleep", (act.name, act.seconds)))
        if act.kind == "sub":
            return (yield Request("step", (act.name, self.sub, act.id)))
        if act.kind == "failing":
            try:
                return (yield Request("step", (act.name, self._break, act.id)))
            except ValueError as error:
                return error.reason if isinstance(error, backtrail.StepFailed) else str(error)
        if act.kind in ("checked", "unchecked"):
            options = {"at_most_once": True, **({"check": self._check} if act.kind == "checked" else {})}
            try:
                return (yield self._step(act, act.id, options))
            except backtrail.StepUncertain:
                return UNCERTAIN
        if act.kind == "flaky":
            return (yield self._step(act, act.id, {"retry": Retry(3, backoff=0.0, on=(Flaky,))}))
        return (yield self._step(act, act.id, {"key": act.id} if act.kind == "keyed" else {}))

    def _step(self, act: Act, id: str, options: dict[str, Any]) -> Request:
        return Request("step", (act.name, self._do, id, act.kind, act.seconds), options)

    # -- the functions of the steps -----------------------------------------------------------------------------------

    def _do(self, id: str, kind: str, seconds: float) -> Any:
        if kind == "flaky" and id not in self._tried:
            self._tried.add(id)
            raise Flaky(id)
        time.sleep(seconds)
        self.ledger.write("effect", id)
        return value_of(self.plan.seed, id)

    def _break(self, id: str) -> Any:
        self.ledger.write("effect", id)
        raise ValueError(f"it broke: {id}")

    def _check(self, id: str, kind: str, seconds: float) -> Done | None:
        return Done(value_of(self.plan.seed, id)) if self.ledger.has("effect", id) else None


# -- over the sync API -------------------------------------------------------------------------------------------------


def play(store: backtrail.Store, run: backtrail.Run, plan: Plan, ledger: Ledger) -> None:
    """Play a program in the block of a run, to its end, or until the run is suspended."""

    def sub(id: str) -> Any:
        try:
            with store.run(f"{run.id}/{id}", timeout=LEASE) as inner:
                for n in range(3):
                    inner.step("inner", ledger.write, "effect", f"{id}:{n}")
                    ledger.write("returned", f"{id}:{n}")
                ledger.write("effect", id)
                inner.result = value_of(plan.seed, id)
            return inner.result
        except backtrail.RunFinished as finished:
            return finished.result

    with ThreadPoolExecutor(WIDTH) as threads:
        requests = Program(plan, ledger, sub).requests(run)

        def call(request: Request) -> Any:
            return getattr(run, request.method)(*request.args, **request.options)

        def carry_out(request: Request | Together) -> Any:
            return list(threads.map(call, request.requests)) if isinstance(request, Together) else call(request)

        drive(requests, carry_out)


def drive(requests: Requests, carry_out: Callable[[Request | Together], Any]) -> None:
    """Carry out the requests of a program."""
    try:
        request = next(requests)
        while True:
            try:
                value = carry_out(request)
            except Exception as error:  # noqa: BLE001  # the program's to judge
                request = requests.throw(error)
            else:
                request = requests.send(value)
    except StopIteration:
        return


# -- over the async API ------------------------------------------------------------------------------------------------


async def play_async(store: backtrail.aio.AsyncStore, run: backtrail.aio.AsyncRun, plan: Plan, ledger: Ledger) -> None:
    """Play a program in the block of a run, to its end, or until the run is suspended."""

    async def sub(id: str) -> Any:
        try:
            async with store.run(f"{run.id}/{id}", timeout=LEASE) as inner:
                for n in range(3):
                    await inner.step("inner", ledger.write, "effect", f"{id}:{n}")
                    ledger.write("returned", f"{id}:{n}")
                ledger.write("effect", id)
                inner.result = value_of(plan.seed, id)
            return inner.result
        except backtrail.RunFinished as finished:
            return finished.result

    requests = Program(plan, ledger, sub).requests(run)

    async def call(request: Request) -> Any:
        return await getattr(run, request.method)(*request.args, **request.options)

    async def carry_out(request: Request | Together) -> Any:
        if isinstance(request, Together):
            return await asyncio.gather(*map(call, request.requests))
        return await call(request)

    try:
        request = next(requests)
        while True:
            try:
                value = await carry_out(request)
            except Exception as error:  # noqa: BLE001  # the program's to judge
                request = requests.throw(error)
            else:
                request = requests.send(value)
    except StopIteration:
        return
