"""What a store tells OpenTelemetry: spans and metrics of its operations, commits, conflicts and retries.

A store is observed if the program has set a tracer or meter provider when it opens the store. Everything else costs
nothing: OpenTelemetry is never imported here before the program has done so, and a store that is not observed runs the
same code as without it. `docs/observability.md` lists the names, which follow the conventions for databases and for
generative AI where these have one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from backtrail.errors import Conflict
from backtrail.model import Checkpoint

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, Meter
    from opentelemetry.trace import Span, SpanKind

T = TypeVar("T")
Labels = dict[str, str]
SCOPE = "backtrail"
#: Seconds. The conventions advise these for databases; a commit to SQLite takes a third of a millisecond.
_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
#: What the conventions call an engine; they have no name for the others.
_SYSTEMS = {"postgres": "postgresql"}

_active: Telemetry | None = None


def activate() -> Telemetry | None:
    """The telemetry of this process, for a store that is being opened; None if the program has set no provider."""
    global _active
    _active = (
        Telemetry() if _is_set("trace", "get_tracer_provider") or _is_set("metrics", "get_meter_provider") else None
    )
    return _active


def _is_set(part: str, getter: str) -> bool:
    """True if the program has set this provider: those of the API itself, of which one is always there, do nothing."""
    api = sys.modules.get(f"opentelemetry.{part}")
    if api is None:
        return False
    return not type(getattr(api, getter)()).__module__.startswith(f"opentelemetry.{part}")


def count_retry(reason: str) -> None:
    """Count a call that got no answer and is made again; it is an event of the current span, too."""
    if _active is not None:
        _active.count_retry(reason)


def record_lag(commits: int) -> None:
    """Record how many commits the follower of a mirror lacks."""
    if _active is not None:
        _active.mirror_lag.record(commits)


def count_change_of_side(active: str) -> None:
    """Count that another side of a mirror is active now."""
    if _active is not None:
        _active.mirror_changes.add(1, {"active": active})


class Telemetry:
    """The tracer and the instruments of a process."""

    def __init__(self) -> None:
        from opentelemetry import metrics, trace

        self._trace = trace
        self._tracer = trace.get_tracer(SCOPE)
        meter = metrics.get_meter(SCOPE)
        self._operations = _durations(meter, "backtrail.operation.duration", "duration of operations on threads")
        self._commits = _durations(meter, "db.client.operation.duration", "duration of commits")
        self._written = meter.create_histogram(
            "backtrail.save.written", unit="By", description="bytes that a save wrote"
        )
        self._conflicts = meter.create_counter(
            "backtrail.conflicts", unit="{conflict}", description="operations that ended with a Conflict"
        )
        self._refusals = meter.create_counter(
            "backtrail.commit.refusals", unit="{commit}", description="commits refused because another writer was first"
        )
        self._retries = meter.create_counter(
            "backtrail.retries", unit="{attempt}", description="calls that got no answer and were made again"
        )
        self.mirror_lag = meter.create_histogram(
            "backtrail.mirror.lag", unit="1", description="commits the follower lacks"
        )
        self.mirror_changes = meter.create_counter(
            "backtrail.mirror.changes", unit="1", description="changes of the active side"
        )

    async def operation(self, name: str, engine: str, thread: str, work: Coroutine[Any, Any, T]) -> T:
        """Run an operation on a thread in a span of its own."""
        labels: Labels = {"backtrail.operation.name": name, "db.system.name": system(engine)}
        with self._timed(self._operations, f"backtrail.{name}", labels, {"gen_ai.conversation.id": thread}) as span:
            try:
                result = await work
            except Conflict:
                self._conflicts.add(1, labels)
                raise
            if isinstance(result, Checkpoint) and name == "save":
                self._written.record(result.written, labels)
                span.set_attributes({"backtrail.save.written": result.written, "backtrail.step": result.step})
            return result

    async def commit(self, engine: str, refusal: type[Exception], work: Coroutine[Any, Any, None]) -> None:
        """Run a commit in a span of its own, as the conventions for databases have it; `refusal` is a lost race."""
        labels: Labels = {"db.system.name": system(engine), "db.operation.name": "commit"}
        with self._timed(self._commits, "commit", labels, kind=self._trace.SpanKind.CLIENT):
            try:
                await work
            except refusal:
                self._refusals.add(1, labels)
                raise

    @contextmanager
    def _timed(
        self, duration: Histogram, name: str, labels: Labels, facts: Labels | None = None, kind: SpanKind | None = None
    ) -> Iterator[Span]:
        """A span with these labels and facts; its duration is recorded with the labels. An error is named in both."""
        kind = kind or self._trace.SpanKind.INTERNAL
        with self._tracer.start_as_current_span(name, kind=kind, attributes={**labels, **(facts or {})}) as span:
            begun = time.perf_counter()
            try:
                yield span
            except BaseException as error:
                labels["error.type"] = type(error).__qualname__
                span.set_attribute("error.type", type(error).__qualname__)
                raise
            finally:
                duration.record(time.perf_counter() - begun, labels)

    def count_retry(self, reason: str) -> None:
        labels = {"error.type": reason}
        self._retries.add(1, labels)
        self._trace.get_current_span().add_event("backtrail.retry", labels)


def _durations(meter: Meter, name: str, description: str) -> Histogram:
    """A histogram of seconds. OpenTelemetry before 1.30 takes no advice on its bounds: a view can set them there."""
    import inspect  # slow to import, and hardly any process is observed

    advice: dict[str, Any] = {}
    if "explicit_bucket_boundaries_advisory" in inspect.signature(meter.create_histogram).parameters:
        advice = {"explicit_bucket_boundaries_advisory": _BOUNDS}
    return meter.create_histogram(name, unit="s", description=description, **advice)


def system(engine: str) -> str:
    """What the conventions call this engine, or the two of a mirror."""
    return "+".join(_SYSTEMS.get(name, name) for name in engine.split("+"))
