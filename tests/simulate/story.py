"""Tells a run: when, who, what was called, what each side answered, and what both have in the end.

Checkpoints are called like the operation that saved them (o3), because nobody can read UUIDs. Reads that were answered
are left out unless they are asked for: what matters is what was written, and what was not answered.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import backtrail
from backtrail.engines.base import Commit, Drop, Engine
from backtrail.engines.conflicts import Refused

from .plan import Fault, Plan
from .servers import history
from .workload import Call, Ledger

if TYPE_CHECKING:
    from .network import Message

_RESERVED = re.compile(r"(\\U0010ffff|\U0010ffff)+")
_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}|\b[0-9a-f]{32}\b")
_FAULTS = {
    "request": "the request is lost",
    "answer": "its answer will be lost",
    "late": "the request will arrive late, after its caller gave up",
    "twice": "the request will arrive twice",
    "slow": "the request is slow",
}


class Story:
    """What happened, in lines with the time of each."""

    def __init__(self, *, silent: bool = False, reads: bool = False) -> None:
        self.silent, self.reads = silent, reads
        self.clock: Callable[[], float] = lambda: 0.0
        self._lines: list[str] = []
        self._last, self._repeated = "", 0

    def tell(self, what: str) -> None:
        """Add a line; what happens again and again is counted."""
        if self.silent:
            return
        if what == self._last:
            self._repeated += 1
            if self._repeated > 1:
                self._lines.pop()
            self._lines.append(f"{self.clock():8.3f}  … and again, {self._repeated} times")
            return
        self._last, self._repeated = what, 0
        self._lines.append(f"{self.clock():8.3f}  {what}")

    def begins(self, call: Call) -> None:
        if self.silent:
            return
        self.tell(f"{call.process} begins {_asked(call)}")

    def ends(self, call: Call) -> None:
        if self.silent:
            return
        if call.error is not None:
            self.tell(f"{call.process} raises {type(call.error).__name__} for {call.text}: {call.error}")
        else:
            about = f" (of {call.target})" if call.target else ""
            self.tell(f"{call.process} has done {_asked(call)}{about}")

    def fault(self, fault: Fault, process: str) -> None:
        for_long = f"for {fault.lasting:g} s"
        what = {
            "cut": f"{process} can no longer reach the {fault.side} ({fault.how}), {for_long}",
            "down": f"nobody can reach the {fault.side} any more ({fault.how}), {for_long}",
            "crash": f"{process} dies" + (", with a request on its way" if fault.after else ""),
            "stop": f"{process} is stopped {for_long}",
            "clock": f"the clock of {process} jumps by {fault.jump:g} s",
        }.get(fault.kind, f"{process}: {_FAULTS.get(fault.kind, fault.kind)}")
        self.tell(f"** {what}")

    def logs(self, process: str, what: str) -> None:
        """Tell what a mirror logged; that something is well is not worth a line."""
        if " is healthy" not in what:
            self.tell(f"{process} logs: {what}")

    def message(self, message: Message, outcome: str, error: BaseException | None) -> None:
        """Tell what became of a message."""
        if self.silent:
            return
        plain = message.method not in ("commit", "drop")
        if plain and not self.reads and (message.method == "ping" or (error is None and not outcome)):
            return
        answer = ": ".join(filter(None, (outcome, "" if error is None else _raised(error)))) or "ok"
        self.tell(f"    {message.process.name} -> {message.server.name}: {_request(message)}: {answer}")

    def text(self, ledger: Ledger) -> str:
        """The whole story; checkpoints are called like the operations that saved them."""
        names = {call.id: call.text for call in ledger.calls if call.id}
        names |= {id.replace("-", ""): name for id, name in names.items()}
        told = _UUID.sub(lambda found: names.get(found[0], found[0][-6:]), "\n".join(self._lines))
        return _RESERVED.sub("~", told)

    def sides(self, engines: dict[str, Engine]) -> None:
        """Tell what both sides have in the end."""
        for name, engine in engines.items():
            store = backtrail.open(engine)
            self.tell(f"the {name} has")
            for info in store.threads():
                reached = {one.id for one in history(store, info.id, all=False)}
                shown = [
                    f"{one.id}{'' if one.id in reached else ' (abandoned)'}{f' [{one.label}]' if one.label else ''}"
                    for one in history(store, info.id)
                ]
                self.tell(f"    {info.id!r}: {', '.join(shown)}")


def _asked(call: Call) -> str:
    operation = call.operation
    return {
        "fork": f"{call.text}: fork {call.thread!r} to {operation.to!r}",
        "prune": f"{call.text}: prune keep_last={operation.keep}",
        "catch_up": f"{call.text}: catch_up",
        "reopen": f"{call.text}: close and open",
    }.get(call.kind, f"{call.text}: {call.kind} {call.thread!r}")


def _raised(error: BaseException) -> str:
    return f"{'refused' if isinstance(error, Refused) else type(error).__name__}: {error}"


def _request(message: Message) -> str:
    request = message.args[0] if message.args else None
    if isinstance(request, Commit):
        return _commit(request)
    if isinstance(request, Drop):
        freed = {name: getattr(request, name) for name in ("rows", "bodies", "branches", "blobs")}
        parts = [f"{len(some)} {name}" for name, some in freed.items() if some]
        return f"drop of {request.lineage!r}: {', '.join(parts) or 'nothing'}"
    return f"{message.method}({', '.join(map(_short, message.args))})"


def _commit(commit: Commit) -> str:
    parts = [f"row {row.step} of {_branch(row.branch)} = {row.id.hex()}" for row in commit.rows]
    for thread, expect, new in commit.swaps:
        old = "none" if expect is None else f"{expect[1]} v{expect[2]}"
        now = "deleted" if new is None else f"{new.step} v{new.version} of {_branch(new.branch)}"
        parts.append(f"head {thread!r} {old} -> {now}")
    parts += [
        f"{'mark' if mark.data is not None else 'no mark'} on {mark.step} of {_branch(mark.branch)}"
        for mark in commit.marks
    ]
    if commit.fence is not None:
        parts.append(f"fence {commit.fence.token}")
    return f"commit to {commit.lineage!r}: {', '.join(parts)}"


def _branch(id: bytes) -> str:
    """A short name: the start is the same for all that a mirror makes in one generation."""
    return f"{id.hex()[:4]}…{id.hex()[-4:]}"


def _short(value: Any) -> str:
    shown = _branch(value) if isinstance(value, bytes) else repr(value)
    return shown if len(shown) < 60 else shown[:57] + "…"


def told_plan(plan: Plan) -> str:
    """One line on what all processes of a plan have in common."""
    options = ", ".join(f"{name}={value:g}" for name, value in plan.options.items())
    spool = ", each with a spool" if plan.spool else ""
    return f"{plan.processes} processes{spool}, replication={plan.replication}, {options}"
