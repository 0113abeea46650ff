"""Questions of a run, on each engine, through the sync and the async facade: asked, waited for, answered once."""

from __future__ import annotations

import dataclasses
import datetime as dt
import threading
import time
import uuid
from contextlib import suppress
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
import pytest

import backtrail
from backtrail.run.schema import fault, schema_of

CALL = {"tool": "pay", "amount": 12}
SECOND = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)


def ask(store: Any, id: str = "r", call: dict[str, Any] = CALL, **options: Any) -> Any:
    """A run that asks whether it may make a call, and ends with the answer."""
    with store.run(id, task="pay") as run:
        run.step("plan", lambda: "a plan")
        options = {"schema": bool, **options}
        run.result = run.ask("ok?", "Shall I pay?", about=call, **options)
        return run.result


def test_a_question_waits_for_an_answer_and_the_run_goes_on_with_it(opener: Any) -> None:
    store = opener()
    with pytest.raises(backtrail.Suspended) as waits:
        ask(store)
    assert (waits.value.run_id, waits.value.questions, waits.value.until) == ("r", ("ok?",), None)
    [pending] = opener().pending()
    assert (pending.run_id, pending.task, pending.name, pending.question) == ("r", "pay", "ok?", "Shall I pay?")
    assert (pending.about, pending.schema, pending.expires_at) == (CALL, {"type": "boolean"}, None)
    assert [info.status for info in store.runs()] == ["waiting"]
    with pytest.raises(backtrail.Suspended):
        ask(store)  # it is still open
    opener().answer("r", "ok?", True, by="ada", digest=pending.digest)
    assert store.pending() == []
    assert [info.status for info in store.runs()] == ["ready"]
    assert ask(opener()) is True
    assert [(step.kind, step.result, step.by) for step in store.run("r").steps()][1:] == [("ask", True, "ada")]
    assert store.run("r").outcome().result is True


def test_the_lease_is_free_while_a_run_waits(opener: Any) -> None:
    with suppress(backtrail.Suspended):
        ask(opener())
    with suppress(backtrail.Suspended), opener().run("r", timeout=0) as run:
        assert run.status == "waiting"
        run.ask("ok?", "Shall I pay?", about=CALL, schema=bool)


def test_suspension_passes_an_agents_except_exception(store: Any) -> None:
    def loop() -> None:
        with store.run("r") as run:
            try:
                run.ask("ok?", "?")
            except Exception:  # noqa: BLE001  # as in many an agent
                raise AssertionError("a suspension is not an error") from None

    with pytest.raises(backtrail.Suspended):
        loop()
    assert store.runs()[0].status == "waiting"


def test_the_first_answer_counts(opener: Any) -> None:
    store = opener()
    with suppress(backtrail.Suspended):
        ask(store)
    store.answer("r", "ok?", False, by="ada")
    with pytest.raises(backtrail.AlreadyAnswered, match="by ada") as told:
        opener().answer("r", "ok?", True, by="bob")
    assert told.value.by == "ada"
    assert ask(store) is False
    with pytest.raises(backtrail.AlreadyAnswered):
        store.answer("r", "ok?", True)


def test_of_answers_given_at_the_same_time_one_counts(tmp_path: Any) -> None:
    with backtrail.open(tmp_path / "s.db") as store:
        for n in range(10):
            with suppress(backtrail.Suspended):
                ask(store, f"r{n}")
            begin = threading.Barrier(4)
            outcomes: list[str] = []

            def answer(by: str, n: int = n, begin: threading.Barrier = begin, outcomes: list[str] = outcomes) -> None:
                begin.wait()
                try:
                    store.answer(f"r{n}", "ok?", True, by=by)
                    outcomes.append(by)
                except backtrail.AlreadyAnswered:
                    outcomes.append("")

            threads = [threading.Thread(target=answer, args=(name,)) for name in "abcd"]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            [winner] = filter(None, outcomes)
            assert store.run(f"r{n}").steps()[1].by == winner


def test_an_answer_that_does_not_fit_changes_nothing(store: Any) -> None:
    with suppress(backtrail.Suspended):
        ask(store)
    [pending] = store.pending()
    for bad in ("yes", 1, None, object(), [True]):
        with pytest.raises(backtrail.InvalidAnswer, match="ok\\?"):
            store.answer("r", "ok?", bad)
    with pytest.raises(backtrail.QuestionChanged, match=pending.digest):
        store.answer("r", "ok?", True, digest="0" * 32)
    with pytest.raises(backtrail.QuestionNotFound, match="pending"):
        store.answer("r", "other", True)
    with pytest.raises(backtrail.ThreadNotFound, match="pending"):
        store.answer("nobody", "ok?", True)
    with pytest.raises(backtrail.InvalidInput):
        store.answer("r", "", True)
    with pytest.raises(backtrail.InvalidInput):
        store.answer("r", "ok?", True, by="")
    assert store.pending() == [pending]
    store.session("s").add("user", "x")
    with pytest.raises(backtrail.BacktrailError):
        store.answer("s", "ok?", True)


def test_an_answer_is_bound_to_the_call_that_was_shown(store: Any) -> None:
    with suppress(backtrail.Suspended):
        ask(store)
    [old] = store.pending()
    with suppress(backtrail.Suspended):
        ask(store, call={"tool": "pay", "amount": 1200})  # the model wants something else now
    [new] = store.pending()
    assert new.about["amount"] == 1200
    with pytest.raises(backtrail.QuestionChanged):
        store.answer("r", "ok?", True, digest=old.digest)
    store.answer("r", "ok?", True, digest=new.digest)
    with pytest.raises(backtrail.StepChanged, match="'ok\\?'"):
        ask(store)  # an answer to one call is none to another


def test_a_question_expires(opener: Any, later: Any) -> None:
    store = opener()
    with pytest.raises(backtrail.Suspended) as waits:
        ask(store, expires=60)
    assert waits.value.until is not None
    [pending] = store.pending()
    assert pending.expires_at == waits.value.until
    later(61)
    with pytest.raises(backtrail.QuestionExpired):
        store.answer("r", "ok?", True)
    assert [info.id for info in store.due()] == ["r"]
    for _ in range(2):
        with pytest.raises(backtrail.QuestionExpired):
            ask(opener(), expires=60)
    with pytest.raises(backtrail.QuestionExpired):
        store.answer("r", "ok?", True)
    assert store.pending() == []


def test_a_program_can_go_on_after_a_question_has_expired(store: Any, later: Any) -> None:
    def program() -> str:
        with store.run("r") as run:
            try:
                run.ask("ok?", "?", expires=dt.timedelta(hours=1))
            except backtrail.QuestionExpired:
                return str(run.step("without", lambda: "without"))
            raise AssertionError("never reached")

    with suppress(backtrail.Suspended):
        program()
    later(3601)
    assert program() == "without"


def test_waiting_in_place_gets_the_answer_at_once(tmp_path: Any) -> None:
    with backtrail.open(tmp_path / "s.db") as store:

        def answer() -> None:
            while not store.pending():
                time.sleep(0.01)
            store.answer("r", "ok?", True, by="ada")

        helper = threading.Thread(target=answer, daemon=True)
        helper.start()
        assert ask(store, wait=30) is True
        helper.join()
        begun = time.monotonic()
        with pytest.raises(backtrail.Suspended):
            ask(store, "r2", wait=0.1)
        assert time.monotonic() - begun >= 0.1


def test_a_step_after_an_answer_that_came_meanwhile_is_recorded(tmp_path: Any) -> None:
    with backtrail.open(tmp_path / "s.db") as store, backtrail.open(tmp_path / "s.db") as other:
        with store.run("r") as run:
            with suppress(backtrail.Suspended):
                run.ask("ok?", "?")
            other.answer("r", "ok?", 1)
            run.step("after", lambda: 2)
        assert [step.kind for step in store.run("r").steps()] == ["ask", "step"]


def test_pending_lists_newest_first_in_pages(everywhere: Any) -> None:
    for n in range(5):
        with suppress(backtrail.Suspended):
            ask(everywhere, f"r{n}", call={"large": "x" * (3000 if n == 3 else 10)})
    everywhere.run("plain").checkpoint()
    everywhere.answer("r1", "ok?", True)
    assert [one.run_id for one in everywhere.pending()] == ["r4", "r3", "r2", "r0"]
    assert everywhere.pending()[1].about == {"large": "x" * 3000}
    assert [one.run_id for one in everywhere.pending(limit=2)] == ["r4", "r3"]
    assert [one.run_id for one in everywhere.pending(limit=2, after="r3")] == ["r2", "r0"]
    assert [one.run_id for one in everywhere.pending(prefix="r0")] == ["r0"]
    statuses = {info.id: info.status for info in everywhere.runs()}
    assert statuses == {
        "r0": "waiting",
        "r1": "ready",
        "r2": "waiting",
        "r3": "waiting",
        "r4": "waiting",
        "plain": "running",
    }
    assert [info.id for info in everywhere.runs(status=["ready", "running"])] == ["r1", "plain"]
    assert len(everywhere.threads(kind="run")) == 6
    assert [info.id for info in everywhere.threads(kind="run", newest_first=True, limit=2)] == ["r1", "plain"]
    with pytest.raises(backtrail.InvalidInput, match="status"):
        everywhere.runs(status="odd")


def test_several_questions_may_wait_at_once(store: Any) -> None:
    def program(a: Any, b: Any) -> Any:
        with store.run("r") as run:
            found = []
            for name in ("a", "b"):
                try:
                    found.append(run.ask(name, f"{name}?"))
                except backtrail.Suspended as error:
                    waits = error
            if len(found) < 2:
                raise waits
            return found

    with pytest.raises(backtrail.Suspended):
        program(1, 2)
    assert {one.name for one in store.pending()} == {"a", "b"}
    store.answer("r", "a", 1)
    assert [one.name for one in store.pending()] == ["b"]
    with pytest.raises(backtrail.Suspended):
        program(1, 2)
    assert store.runs()[0].status == "waiting"
    store.answer("r", "b", 2)
    assert program(1, 2) == [1, 2]


@dataclasses.dataclass
class Choice:
    tone: Literal["kind", "short"]
    words: int = 10


def test_an_answer_can_be_asked_for_as_a_type(store: Any) -> None:
    def program() -> Any:
        with store.run("r") as run:
            return run.ask("how?", "How shall I write?", schema=Choice)

    with suppress(backtrail.Suspended):
        program()
    [pending] = store.pending()
    assert pending.schema["properties"]["tone"]["enum"] == ["kind", "short"]
    with pytest.raises(backtrail.InvalidAnswer, match="tone"):
        store.answer("r", "how?", {"tone": "rude"})
    store.answer("r", "how?", {"tone": "short"})
    assert program() == Choice("short", 10)


@pytest.mark.parametrize(
    ("kind", "bad", "good", "given"),
    [
        (dt.date, "soon", "2026-01-02", dt.date(2026, 1, 2)),
        (Annotated[dt.datetime, msgspec.Meta(tz=True)], "2026-01-02", "2026-01-02T00:00:00Z", SECOND),
        (dt.timedelta, "5", "PT5S", dt.timedelta(seconds=5)),
        (uuid.UUID, "5", str(uuid.UUID(int=5)), uuid.UUID(int=5)),
        (list[Decimal], ["five"], ["5.0"], [Decimal("5.0")]),
    ],
    ids=str,
)
def test_an_answer_that_the_type_asked_for_cannot_be_made_of_is_refused(
    kind: Any, bad: Any, good: Any, given: Any
) -> None:
    store = backtrail.open("memory:")

    def program() -> Any:
        with store.run("r") as run:
            return run.ask("q?", "?", schema=kind)

    with pytest.raises(backtrail.Suspended):
        program()
    with pytest.raises(backtrail.InvalidAnswer, match="not of format"):
        store.answer("r", "q?", bad)
    store.answer("r", "q?", good)
    assert program() == given


SCHEMA = {
    "type": "object",
    "required": ["name"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 5, "title": "Name"},
        "age": {"type": ["integer", "null"], "minimum": 0, "exclusiveMaximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", 1]}, "maxItems": 2},
        "more": {"anyOf": [{"const": True}, {"type": "number", "maximum": 2}]},
    },
}


@pytest.mark.parametrize(
    "good", [{"name": "a"}, {"name": "a", "age": None}, {"name": "a", "tags": ["a", 1]}, {"name": "a", "more": 1.5}]
)
def test_an_answer_that_fits_its_schema_is_taken(good: Any) -> None:
    assert fault(schema_of(SCHEMA), good) is None


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        ([], "object"),
        ({}, "no 'name'"),
        ({"name": ""}, "shorter than 1"),
        ({"name": "abcdef"}, "longer than 5"),
        ({"name": "a", "x": 1}, "not asked for"),
        ({"name": "a", "age": -1}, "below 0"),
        ({"name": "a", "age": 150}, "not below 150"),
        ({"name": "a", "age": True}, "integer or null"),
        ({"name": "a", "tags": [True]}, r"\[0\] is True, not one of"),
        ({"name": "a", "tags": ["a"] * 3}, "more items than 2"),
        ({"name": "a", "more": 3}, "no alternative"),
        ({"name": "a", "more": float("nan")}, "no alternative"),
    ],
)
def test_an_answer_that_does_not_fit_is_told_why(bad: Any, told: str) -> None:
    import re

    assert re.search(told, fault(schema_of(SCHEMA), bad) or "")


@pytest.mark.parametrize(
    "bad",
    [
        {"pattern": "a"},
        {"type": "text"},
        {"type": []},
        {"properties": []},
        {"items": 3},
        {"minimum": "1"},
        {"enum": 1},
        {"anyOf": [{"odd": 1}]},
        {"format": 1},
        dict[int, str],
        list[dt.datetime] | None,
        "string",
        object,
        3,
    ],
    ids=str,
)
def test_a_schema_that_would_not_be_applied_is_refused_when_the_question_is_asked(bad: Any) -> None:
    store = backtrail.open("memory:")
    with store.run("r") as run, pytest.raises(backtrail.InvalidInput):
        run.ask("ok?", "?", schema=bad)
    assert store.runs(status="all") == []


@pytest.mark.parametrize(
    "bad",
    [{"expires": -1}, {"expires": "soon"}, {"expires": dt.datetime(2030, 1, 1)}, {"wait": -1}, {"about": object()}],
)
def test_bad_arguments_of_a_question_are_refused(store: Any, bad: dict[str, Any]) -> None:
    with store.run("r") as run, pytest.raises(backtrail.InvalidInput):
        run.ask("ok?", "?", **bad)
    assert store.pending() == []


# -- time ------------------------------------------------------------------------------------------------------------


def test_a_sleep_lasts_over_restarts(opener: Any, later: Any) -> None:
    store = opener()

    def program(store: Any) -> str:
        with store.run("r") as run:
            run.sleep("a while", 86_400)
            return str(run.step("after", lambda: "awake"))

    with pytest.raises(backtrail.Suspended) as waits:
        program(store)
    assert waits.value.until is not None
    [info] = store.runs()
    assert (info.status, info.due_at) == ("sleeping", waits.value.until)
    assert store.due() == []
    with pytest.raises(backtrail.Suspended) as still:
        program(opener())
    assert still.value.until == waits.value.until
    later(86_401)
    assert [one.id for one in store.due()] == ["r"]
    assert program(opener()) == "awake"
    assert store.due() == []
    assert store.run("r").outcome().status == "finished"


def test_a_sleep_until_a_time_and_one_in_place(store: Any) -> None:
    with store.run("r") as run:
        run.sleep_until("past", dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
        begun = time.monotonic()
        run.sleep("short", 0.05, wait=10)
        assert time.monotonic() - begun >= 0.05
        for call in (
            lambda: run.sleep("bad", -1),
            lambda: run.sleep("bad", "x"),
            lambda: run.sleep_until("bad", dt.datetime(2030, 1, 1)),
            lambda: run.sleep_until("bad", 3),
        ):
            with pytest.raises(backtrail.InvalidInput):
                call()
