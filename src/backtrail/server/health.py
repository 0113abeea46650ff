"""Figures for whoever runs the store: what it holds, how it grew, its mirror, its janitor, and the last errors, as JSON
for the page and in the text format of Prometheus for a monitor."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from datetime import UTC, datetime
from typing import Any

import msgspec

from backtrail import BacktrailError, InvalidInput, Store, __version__
from backtrail.render.json_records import time_json
from backtrail.server import responses

_KEPT_ERRORS = 50
_KEPT_SIZES = 24 * 60
_SIZE_SECONDS = 60.0  # between two figures of the growth
_COUNTED_QUESTIONS = 100
_FREED = ("threads", "checkpoints", "rows", "blobs", "bytes")
_PLAIN = re.compile(r"[^a-z0-9_]")


class LastErrors(logging.Handler):
    """Keeps the last warnings and errors of backtrail's own loggers."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.kept: deque[responses.LoggedErrorJson] = deque(maxlen=_KEPT_ERRORS)

    def emit(self, record: logging.LogRecord) -> None:
        at = datetime.fromtimestamp(record.created, UTC).isoformat()
        self.kept.appendleft({"at": at, "level": record.levelname.lower(), "message": record.getMessage()[:2000]})


class Health:
    """Reads the figures of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._sizes: deque[tuple[float, int]] = deque(maxlen=_KEPT_SIZES)
        self.errors = LastErrors()
        logging.getLogger("backtrail").addHandler(self.errors)

    def report(self, survey: bool = False) -> responses.HealthResponse:
        """What the page shows. `survey`: also how much could be freed, for which all of the store is read."""
        began = time.perf_counter()
        problem: str | None = None
        stats: dict[str, Any] = {}
        mirror: dict[str, Any] | None = None
        janitor: responses.JanitorJson | None = None
        pending = 0
        try:
            stats = self._store.stats(survey=survey)
            mirror = self._mirror()
            janitor = self._janitor()
            pending = len(self._store.pending(limit=_COUNTED_QUESTIONS))
        except BacktrailError as error:
            problem = str(error)
        seconds = time.perf_counter() - began
        self._keep_size(stats)
        with self._lock:
            growth = [[at, size] for at, size in self._sizes]
        return {
            "healthy": problem is None,
            "problem": problem,
            "engine": repr(self._store).removeprefix("<backtrail.Store ").removesuffix(">"),
            "version": __version__,
            "seconds": seconds,
            "stats": stats,
            "mirror": mirror,
            "janitor": janitor,
            "pending": pending,
            "growth": growth,
            "errors": list(self.errors.kept),
        }

    def watch_size(self) -> None:
        """Keep a figure of the growth, if a minute has passed since the last one."""
        if self._size_is_due():
            self._keep_size(self._store.stats(survey=False))

    def _size_is_due(self) -> bool:
        with self._lock:
            return not self._sizes or time.time() - self._sizes[-1][0] >= _SIZE_SECONDS

    def _keep_size(self, stats: dict[str, Any]) -> None:
        if "total" in stats and self._size_is_due():
            with self._lock:
                self._sizes.append((time.time(), int(stats["total"])))

    def _mirror(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = msgspec.to_builtins(self._store.status())
        except InvalidInput:
            return None  # a store without a mirror
        return found

    def _janitor(self) -> responses.JanitorJson | None:
        status = self._store.janitor_status()
        if status is None:
            return None
        report = status.last_report
        return {
            "running": status.running,
            "every": status.every,
            "rounds": status.rounds,
            "errors": status.errors,
            "last_round": time_json(status.last_round),
            "next_round": time_json(status.next_round),
            "last_error": status.last_error,
            "freed": {name: getattr(report, name) for name in _FREED} if report is not None else None,
        }

    def metrics(self) -> str:
        """The same figures as Prometheus reads them."""
        report = self.report()
        lines = _metric("up", 1 if report["healthy"] else 0, "1 if the store answers.")
        lines += _metric("answer_seconds", report["seconds"], "Seconds in which the store answered.")
        for name, value in report["stats"].items():
            if type(value) in (int, float):
                lines += _metric(f"store_{_PLAIN.sub('_', name.lower())}", value, f"{name} of the store.")
        mirror = report["mirror"] or {}
        for name, value in mirror.items():
            if type(value) in (int, float):
                lines += _metric(f"mirror_{_PLAIN.sub('_', name.lower())}", value, f"{name} of the mirror.")
        for role in ("primary", "replica"):
            if role in mirror:
                lines += _metric(f"mirror_{role}_healthy", int(mirror[role]["healthy"]), f"1 if the {role} answers.")
        spool = mirror.get("spool") or {}
        for name in ("records", "bytes"):
            if name in spool:
                lines += _metric(f"mirror_spool_{name}", spool[name], f"{name} that wait in the spool.")
        janitor = report["janitor"]
        if janitor is not None:
            lines += _metric("janitor_rounds", janitor["rounds"], "Rounds of the janitor since its start.")
            lines += _metric("janitor_errors", janitor["errors"], "Rounds of the janitor that failed.")
            if janitor["last_round"] is not None:
                at = datetime.fromisoformat(janitor["last_round"]).timestamp()
                lines += _metric("janitor_last_round_seconds", at, "When the janitor's last round ended, since 1970.")
            for name, value in (janitor["freed"] or {}).items():
                lines += _metric(f"janitor_freed_{name}", value, f"{name} that the janitor's last round freed.")
        lines += _metric("pending_questions", report["pending"], "Questions of runs that wait for an answer.")
        lines += _metric("logged_errors", len(report["errors"]), "Warnings and errors since the start, 50 at most.")
        return "\n".join(lines) + "\n"


def _metric(name: str, value: float, meaning: str) -> list[str]:
    full = f"backtrail_{name}"
    return [f"# HELP {full} {meaning}", f"# TYPE {full} gauge", f"{full} {value}"]
