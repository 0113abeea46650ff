"""Tells a run: when, who, what was called, and what each side answered.

Checkpoints are called like the operation that saved them (o3), because nobody can read UUIDs. Reads that were answered
are left out unless they are asked for: what matters is what was written, and what was not answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from backtrail.engines.base import Commit, Drop
from backtrail.errors import LockLost
from backtrail.engines.conflicts import Refused

from .plan import Fault, Plan
from .workload import Call

_FAULTS = {
    "request": "the request is lost",
    "answer": "its answer will be lost",
    "late": "the request will arrive late, after its caller gave up",
    "twice": "the request will arrive twice",
    "slow": "the request is slow",
}


class Story:
    """Lines, with the time of each."""

    def __init__(self, *, silent: bool = False, reads: bool = False) -> None:
        self.silent, self.reads = silent, reads
        self.clock: Callable[[], float] = lambda: 0.0
        self.lines: list[str] = []
        self._names: dict[bytes, str] = {}

    def tell(self, what: str | None, message: Any = None, outcome: str = "", error: Any = None) -> None:
        """Tell something that happened; or, if `what` is None, what became of a message."""
        if self.silent:
            return
        if what is None:
            shown = self._message(message, outcome, error)
            if shown is None:
                return
            what = shown
        self.lines.append(f"{self.clock():9.4f}  {what}")

    def begins(self, call: Call) -> None:
        self.tell(f"{call.process} begins {self._call(call)}")

    def ends(self, call: Call) -> None:
        if call.error is None:
            saved = f", saved as {call.id[-6:]}" if call.id else f" ({call.target[-6:]})" if call.target else ""
            self.tell(f"{call.process} has done {self._call(call)}{saved}")
        else:
            self.tell(f"{call.process} {self._call(call)} raised {type(call.error).__name__}: {call.error}")

    def _call(self, call: Call) -> str:
        operation = call.operation
        to = f" to {operation.to!r}" if call.kind == "fork" else f" keep_last={operation.keep}" * (call.kind == "prune")
        return f"{call.text}: {call.kind} {call.thread!r}{to}"

    def fault(self, fault: Fault, process: str) -> None:
        what = {
            "cut": f"{process} can no longer reach the {fault.side} ({fault.how}), for {fault.lasting} s",
            "down": f"nobody can reach the {fault.side} ({fault.how}), for {fault.lasting} s",
            "crash": f"{process} dies" + (", with a request on its way" if fault.after else ""),
            "stop": f"{process} is stopped for {fault.lasting} s",
            "clock": f"the clock of {process} jumps",
        }.get(fault.kind, f"{process}: {_FAULTS.get(fault.kind, fault.kind)}")
        self.tell(f"{fault.name}: {what}")

    def _message(self, message: Any, outcome: str, error: Any) -> str | None:
        if error is None and not outcome and not self.reads and message.method not in ("commit", "drop"):
            return None
        request = message.args[0] if message.args else ""
        if isinstance(request, Commit):
            asked = self._commit(request)
        elif isinstance(request, Drop):
            parts = [
                f"{len(getattr(request, one))} {one}" for one in ("rows", "bodies", "branches") if getattr(request, one)
            ]
            asked = f"drop of {request.lineage!r}: {', '.join(parts) or 'nothing'}"
        else:
            asked = f"{message.method}({', '.join(map(_short, message.args))})"
        answer = outcome
        if error is not None:
            kind = (
                "refused" if isinstance(error, Refused) else "LockLost" if isinstance(error, LockLost) else repr(error)
            )
            answer = f"{outcome + ': ' if outcome else ''}{kind}: {error}"
        return f"    {message.process.name} -> {message.server}: {asked}: {answer or 'ok'}"

    def _commit(self, commit: Commit) -> str:
        parts = []
        for row in commit.rows:
            parts.append(f"row {row.step} of {row.branch.hex()[:10]} = {row.id.hex()[-6:]}")
        for swap in commit.swaps:
            old = "none" if swap.expect is None else f"{swap.expect[1]}v{swap.expect[2]}"
            new = (
                "deleted" if swap.new is None else f"{swap.new.step}v{swap.new.version} on {swap.new.branch.hex()[:10]}"
            )
            parts.append(f"head {swap.thread!r} {old} -> {new}")
        if commit.marks:
            parts.append(f"{len(commit.marks)} marks")
        if commit.fence is not None:
            parts.append(f"fence {commit.fence.token}")
        return f"commit to {commit.lineage!r}: {', '.join(parts)}"


def _short(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()[:10]
    return repr(value) if len(repr(value)) < 60 else repr(value)[:57] + "…"


def told_plan(plan: Plan) -> list[str]:
    """The plan, in lines."""
    options = ", ".join(f"{name}={value}" for name, value in plan.options.items())
    spool = ", each with a spool" if plan.spool else ""
    lines = [f"{plan.processes} processes{spool}, replication={plan.replication}, {options}"]
    return lines + [f"  at {one.at:.3f} {one}" for one in plan.faults]
