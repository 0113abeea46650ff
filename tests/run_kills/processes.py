"""What the processes of a round do. Each is a function for `fix_children.Child`: it opens the store for itself."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import backtrail
import backtrail.aio
from run_kills.ledger import Ledger
from run_kills.plan import Plan
from run_kills.program import play, play_async

Send = Callable[[bytes], None]
Work = Callable[[Send], None]
SUSPENDED, FINISHED = b"S", b"F"
_LOOKED = 1.0  # seconds: the TTL of leases, and ten times that between two looks for runs that were left behind


class Processes:
    """The processes of one store."""

    def __init__(self, url: str, options: dict[str, Any], folder: Path) -> None:
        self._url, self._options, self._folder = url, options, folder
        import_all()

    def _open(self) -> backtrail.Store:
        return backtrail.open(self._url, **self._options)

    def ledger_path(self, run_id: str) -> Path:
        """The ledger of a run."""
        return self._folder / f"{run_id}.log"

    def player(self, api: str, run_id: str, plan: Plan) -> Work:
        """Plays a run to its end, or until it is suspended."""

        def sync(send: Send) -> None:
            with self._open() as store, store.run(run_id, task="kills") as run:
                play(store, run, plan, Ledger(self.ledger_path(run_id), send))

        async def awaiting(send: Send) -> None:
            async with (
                await backtrail.aio.open(self._url, **self._options) as store,
                store.run(run_id, task="kills") as run,
            ):
                await play_async(store, run, plan, Ledger(self.ledger_path(run_id), send))

        def work(send: Send) -> None:
            try:
                if api == "sync":
                    sync(send)
                else:
                    asyncio.run(awaiting(send))
            except backtrail.Suspended:
                send(SUSPENDED)
            except backtrail.RunFinished:  # the one before was killed after its last commit
                send(FINISHED)
            else:
                send(FINISHED)

        return work

    def worker(self, api: str, plans: dict[str, Plan], elsewhere: bool) -> Work:
        """Works until it is told to stop."""

        def sync(send: Send) -> None:
            with self._open() as store:

                def task(run: backtrail.Run, given: Any) -> Any:
                    play(store, run, plans[run.id], Ledger(self.ledger_path(run.id), send))

                store.work({"kills": task}, workers=2)

        async def awaiting(send: Send) -> None:
            async with await backtrail.aio.open(self._url, **self._options) as store:

                async def task(run: backtrail.aio.AsyncRun, given: Any) -> Any:
                    await play_async(store, run, plans[run.id], Ledger(self.ledger_path(run.id), send))

                await store.work({"kills": task}, workers=2)

        def work(send: Send) -> None:
            hurry(elsewhere)
            if api == "sync":
                sync(send)
            else:
                asyncio.run(awaiting(send))

        return work

    def submitter(self, plans: dict[str, Plan]) -> Work:
        """Submits runs, each of them twice: the second time changes nothing."""

        def work(send: Send) -> None:
            with self._open() as store:
                for run_id in [*plans, *plans]:
                    store.submit("kills", {"of": run_id}, id=run_id)

        return work

    def unfinished(self, plans: dict[str, Plan]) -> Work:
        """Sends a byte for each run that has not finished."""

        def work(send: Send) -> None:
            with self._open() as store:
                send(b"." * sum(store.run(run_id).outcome().status != "finished" for run_id in plans))

        return work

    def answerer(self, prefix: str, value: int) -> Work:
        """Answers what waits."""

        def work(send: Send) -> None:
            with self._open() as store:
                for pending in store.pending(prefix=prefix):
                    ledger = Ledger(self.ledger_path(pending.run_id))
                    ledger.write("answering", pending.name, value)
                    try:
                        store.answer(pending.run_id, pending.name, value, by=str(value), digest=pending.digest)
                    except backtrail.AlreadyAnswered:
                        continue
                    ledger.write("answered", pending.name, value)

        return work

    def reader(self, run_id: str) -> Work:
        """Sends the status and result of a run, and how many of its questions wait."""

        def work(send: Send) -> None:
            with self._open() as store:
                outcome = store.run(run_id).outcome()
                waiting = [one for one in store.pending(prefix=run_id) if one.run_id == run_id]
                send(msgspec.json.encode([outcome.status, outcome.result, len(waiting)]))

        return work


def hurry(elsewhere: bool) -> None:
    """Let this process look often for runs that a dead one left behind; `elsewhere`: and not know who is dead, so that
    leases have to end, which are short."""
    modules = ["work_core", *(["lease", "sync_api", "async_api"] if elsewhere else [])]
    for name in modules:
        sys.modules[f"backtrail.run.{name}"].TTL = _LOOKED  # type: ignore[attr-defined]  # a module
    if elsewhere:
        sys.modules["backtrail.run.lease"].is_gone = lambda owner: False  # type: ignore[attr-defined]  # a module


def import_all() -> None:
    """Import what is imported when it is first used, so that each forked process need not do it again."""
    for module in ("sqlite", "jsonl", "redis", "postgres"):
        importlib.import_module(f"backtrail.engines.{module}")
    with backtrail.open("memory:") as store:
        with store.run("r") as run:
            run.step("s", int)
            run.sleep("a moment", 0.0)
        store.submit("t")
        store.work({"t": lambda run, given: None}, drain=True)
        store.pending()

    async def asynchronous() -> None:
        async with await backtrail.aio.open("memory:") as store:
            async with store.run("r") as run:
                await run.step("s", int)
            await store.submit("t")
            await store.work({"t": lambda run, given: None}, drain=True)

    asyncio.run(asynchronous())
