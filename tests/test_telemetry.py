"""OpenTelemetry: what is told of each operation, by the sync and the async API, and that nothing is told unasked."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import backtrail
import backtrail.aio
from backtrail import telemetry
from backtrail.engines.capabilities import SharesCommits, capability
from backtrail.engines.retry import Interrupted, RetryPolicy, retry_interrupted

PAGE = (Path(__file__).parents[1] / "docs/observability.md").read_text()


class Collected:
    """The spans and metrics of one test."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader])

    @property
    def spans(self) -> list[ReadableSpan]:
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def metrics(self) -> dict[str, list[Any]]:
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def total(self, metric: str, **labels: str) -> int:
        wanted = {name.replace("_", "."): value for name, value in labels.items()}
        return sum(
            getattr(point, "value", None) or getattr(point, "count", 0)
            for point in self.metrics().get(metric, [])
            if wanted.items() <= point.attributes.items()
        )


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collected]:
    """A program that has set its providers; the global ones can be set only once in a process."""
    collected = Collected()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: collected.tracers)
    monkeypatch.setattr(trace, "get_tracer", collected.tracers.get_tracer)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: collected.meters)
    monkeypatch.setattr(metrics, "get_meter", collected.meters.get_meter)
    yield collected
    monkeypatch.undo()
    telemetry.activate()


def test_a_save_is_a_span_with_its_commit_in_it(collected: Collected, tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "s.db") as store:
        saved = store.thread("t").save({"n": 1})
    save, commit = collected.spans
    assert (save.name, commit.name) == ("backtrail.save", "commit")
    assert commit.parent is not None
    assert commit.parent.span_id == save.context.span_id
    assert dict(save.attributes or {}) == {
        "backtrail.operation.name": "save",
        "db.system.name": "sqlite",
        "gen_ai.conversation.id": "t",
        "backtrail.save.written": saved.written,
        "backtrail.step": 1,
    }
    assert dict(commit.attributes or {}) == {"db.system.name": "sqlite", "db.operation.name": "commit"}
    assert commit.kind is trace.SpanKind.CLIENT
    assert collected.total("backtrail.operation.duration", backtrail_operation_name="save") == 1
    assert collected.total("db.client.operation.duration", db_operation_name="commit") == 1
    assert [point.sum for point in collected.metrics()["backtrail.save.written"]] == [saved.written]


def test_every_operation_on_a_thread_has_its_span(collected: Collected) -> None:
    with backtrail.open("memory:") as store:
        thread = store.thread("t")
        thread.append("messages", ["one"], label="first")
        thread.update({"plan": "go on"})
        thread.load()
        thread.pick(["plan"])
        thread.tail("messages", 1)
        thread.find(label="first")
        thread.history()
        thread.diff()
        thread.fork("other")
        thread.rewind(1)
        thread.undo()
        thread.redo()
        thread.annotate(1, label="begun")
        store.session("s").add("user", "hello")
        store.session("s").messages(last=1)
        store.thread("other").delete()
    told = [name.removeprefix("backtrail.") for name in collected.names() if name != "commit"]
    expected = "save save load load load find history diff fork rewind undo redo annotate save load delete"
    assert told == expected.split()


def test_async_spans_belong_to_the_span_of_their_task_although_tasks_share_commits(
    collected: Collected, tmp_path: Path
) -> None:
    tracer = collected.tracers.get_tracer("the program")

    async def turn(store: Any, number: int) -> None:
        with tracer.start_as_current_span(f"turn {number}"):
            await store.thread(f"t{number}").append("messages", [number])
            await store.thread(f"t{number}").load()

    async def main() -> None:
        async with await backtrail.aio.open(tmp_path / "s.db") as store:
            await asyncio.gather(*(turn(store, number) for number in range(8)))

    asyncio.run(main())
    by_id = {span.context.span_id: span for span in collected.spans}
    turns = {span.context.span_id: span.name.split()[1] for span in collected.spans if span.name.startswith("turn")}
    for span in collected.spans:
        if span.name.startswith("backtrail."):
            assert span.parent is not None
            assert (span.attributes or {})["gen_ai.conversation.id"] == f"t{turns[span.parent.span_id]}"
        elif span.name == "commit":
            assert span.parent is not None
            assert by_id[span.parent.span_id].name == "backtrail.save"
    assert len(collected.spans) == 8 * 4


def test_a_conflict_is_counted_and_named_in_its_span(collected: Collected) -> None:
    with backtrail.open("memory:") as store:
        mine, theirs = store.thread("t"), store.thread("t")
        mine.save({"n": 1})
        theirs.load()
        theirs.save({"n": 2})
        with pytest.raises(backtrail.Conflict):
            mine.save({"n": 3})
    assert collected.total("backtrail.conflicts", backtrail_operation_name="save") == 1
    failed = collected.spans[-1]
    assert (failed.attributes or {})["error.type"] == "Conflict"
    assert failed.status.status_code is trace.StatusCode.ERROR
    assert collected.total("backtrail.operation.duration", error_type="Conflict") == 1


def test_the_async_api_tells_of_searches_and_conflicts_as_the_sync_one_does(collected: Collected) -> None:
    async def main() -> None:
        async with await backtrail.aio.open("memory:") as store:
            mine, theirs = store.thread("t"), store.thread("t")
            await mine.save({"n": 1}, label="first")
            await theirs.load()
            await theirs.save({"n": 2})
            assert len(await theirs.find(label="first")) == 1
            with pytest.raises(backtrail.Conflict):
                await mine.save({"n": 3})

    asyncio.run(main())
    told = [name.removeprefix("backtrail.") for name in collected.names()]
    assert told == ["save", "commit", "load", "save", "commit", "find", "save"]
    assert collected.total("backtrail.conflicts", backtrail_operation_name="save") == 1
    assert collected.total("backtrail.operation.duration", backtrail_operation_name="find") == 1


def test_a_lost_race_is_counted_although_its_caller_sees_nothing(collected: Collected, tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "s.db") as store, backtrail.open(tmp_path / "s.db") as other:
        store.thread("t").append("messages", [1])
        other.thread("t").append("messages", [2])
        store.thread("t").append("messages", [3])  # its cached tip is old: refused, read again, and saved
        assert store.thread("t").load() == {"messages": [1, 2, 3]}
    assert collected.total("backtrail.commit.refusals", db_system_name="sqlite") == 1
    assert collected.total("backtrail.conflicts") == 0


def test_a_call_without_an_answer_is_counted_each_time_that_it_is_made_again(collected: Collected) -> None:
    backtrail.open("memory:").close()  # a store that is opened turns the counting on
    answers = [Interrupted("no answer"), Interrupted("no answer"), None]

    async def attempt() -> str:
        if (answer := answers.pop(0)) is not None:
            raise answer from ConnectionResetError()
        return "done"

    async def sleep(seconds: float) -> None:
        return None

    with collected.tracers.get_tracer("the program").start_as_current_span("turn"):
        assert asyncio.run(retry_interrupted(attempt, RetryPolicy(), sleep)) == ("done", True)
    assert collected.total("backtrail.retries", error_type="ConnectionResetError") == 2
    assert [event.name for event in collected.spans[0].events] == ["backtrail.retry"] * 2


@pytest.mark.parametrize("kind", ["redis", "postgres"])
def test_servers_have_the_names_that_the_conventions_give_them(
    kind: str, collected: Collected, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = request.getfixturevalue(f"{kind}_server")
    name = tmp_path.name.replace("-", "_")[:40]
    url = f"{server.url}?{'prefix' if kind == 'redis' else 'schema'}=telemetry_{name}"

    async def main() -> None:
        async with await backtrail.aio.open(url) as store:
            await store.thread("t").append("messages", [1])

    asyncio.run(main())
    system = {"redis": "redis", "postgres": "postgresql"}[kind]
    assert collected.names() == ["backtrail.save", "commit"]
    assert {(span.attributes or {})["db.system.name"] for span in collected.spans} == {system}


def test_durations_have_bounds_that_tell_a_commit_from_another(collected: Collected) -> None:
    with backtrail.open("memory:") as store:
        store.thread("t").save({"n": 1})
    (commit,) = collected.metrics()["db.client.operation.duration"]
    assert commit.explicit_bounds[:4] == (0.0001, 0.00025, 0.0005, 0.001)


def test_an_older_opentelemetry_that_takes_no_advice_is_used_as_it_is(
    collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OldMeter:
        def __init__(self, meter: metrics.Meter) -> None:
            self.create_counter = meter.create_counter
            self._meter = meter

        def create_histogram(self, name: str, unit: str = "", description: str = "") -> metrics.Histogram:
            return self._meter.create_histogram(name, unit, description)

    monkeypatch.setattr(metrics, "get_meter", lambda name: OldMeter(collected.meters.get_meter(name)))
    with backtrail.open("memory:") as store:
        store.thread("t").save({"n": 1})
    assert collected.total("db.client.operation.duration") == 1


def test_an_observed_store_shares_commits_as_any_other(collected: Collected, tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "s.db") as store:
        assert capability(store._core.context.engine, SharesCommits) is not None


def test_a_store_is_not_observed_while_the_program_has_set_no_provider(tmp_path: Path) -> None:
    assert telemetry.activate() is None
    with backtrail.open(tmp_path / "s.db") as store:
        assert store._core.context.telemetry is None
        assert type(store._core.context.engine).__name__ == "SQLiteEngine"


def test_a_program_that_does_not_use_opentelemetry_never_imports_it(tmp_path: Path) -> None:
    program = (
        "import sys, backtrail\n"
        "for options in ({}, {'replica': 'memory:'}):\n"
        "    with backtrail.open(sys.argv[1], **options) as store:\n"
        "        store.thread('t').save({'n': 1})\n"
        "        store.thread('t').load()\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "s.db")], check=True)


def test_the_program_of_the_page_tells_what_the_page_says(tmp_path: Path) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    ended = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert re.findall(r'"name": "(.*?)"', ended.stdout) == ["commit", "backtrail.save", "backtrail.load", "turn"]


def test_a_mirror_is_observed_as_one_store(collected: Collected, tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "a.db", replica=tmp_path / "b.db", spool=tmp_path / "spool") as store:
        store.thread("t").save({"n": 1})
        assert store.status().behind == 0
    assert collected.names() == ["backtrail.save", "commit"]
    assert {(span.attributes or {})["db.system.name"] for span in collected.spans} == {"sqlite+sqlite"}


def test_every_name_that_is_told_is_documented(collected: Collected) -> None:
    with backtrail.open("memory:") as store:
        thread = store.thread("t")
        thread.save({"n": 1})
        thread.load()
        with pytest.raises(backtrail.Conflict):
            thread.save({"n": 2}, expect=None)
    for span in collected.spans:
        assert f"`{span.name}`" in PAGE
        for name in span.attributes or {}:
            assert f"`{name}`" in PAGE
    for name in collected.metrics():
        assert f"`{name}`" in PAGE
