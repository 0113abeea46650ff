"""A durable run in the browser: its timeline, its question with the form of the schema, and the answer."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

import backtrail
from fix_inspector import inspector

from .conftest import Open
from .test_addresses import _choose


def _look_and_ask(run: backtrail.Run) -> None:
    run.step("look <b>up</b>", lambda: {"sum": 42})
    run.ask("pay?", "Pay <b>42</b>?", {"type": "boolean"}, about={"sum": 42})


def test_a_question_is_answered_with_the_buttons_of_its_schema(open_page: Open) -> None:
    with backtrail.open("memory:") as store:
        with pytest.raises(backtrail.Suspended), store.run("pay", task="pay the bill") as run:
            _look_and_ask(run)
        with inspector(store) as served:
            page = open_page(served)
            expect(page.locator(".thread .tag")).to_have_text("waiting")
            expect(page.locator(".thread .told")).to_have_text("pay the bill")
            page.locator("#health").click()
            page.get_by_role("link", name="1 question waits for an answer").click()
            expect(page.locator("#search")).to_have_value("is:waiting")
            _choose(page, "pay")
            expect(page.get_by_role("tab", name="Run")).to_have_attribute("aria-selected", "true")
            expect(page.locator(".run-status")).to_have_text("waiting")
            expect(page.locator(".timeline li")).to_have_count(1)
            expect(page.locator(".timeline")).to_contain_text("look <b>up</b>")
            expect(page.locator(".row", has_text="step look <b>up</b>")).to_have_count(1)
            expect(page.get_by_role("tab", name="Conversation")).to_have_count(0)  # it has none
            expect(page.locator(".question")).to_contain_text("Pay <b>42</b>?")
            page.get_by_label("Your name").fill("ada")
            page.locator(".question").get_by_role("button", name="Yes").click()
            expect(page.locator(".run-status")).to_have_text("ready")
            expect(page.locator(".timeline")).to_contain_text("by ada")
        with store.run("pay") as run:
            assert run.step("look <b>up</b>", lambda: {"sum": 0}) == {"sum": 42}
            assert run.ask("pay?", "Pay <b>42</b>?", {"type": "boolean"}, about={"sum": 42}) is True


def test_a_step_shows_what_its_model_used(open_page: Open) -> None:
    used = {"input_tokens": 900, "output_tokens": 40}
    with backtrail.open("memory:") as store:
        with store.run("paid") as run:
            run.step("ask the model", lambda: {"content": "hi", "usage": used, "cost": 0.02})
            run.step("look up the price", lambda: {"cost": 80})
        with inspector(store) as served:
            page = open_page(served)
            _choose(page, "paid")
            expect(page.locator(".timeline li")).to_have_count(2)
            model, price = page.locator(".timeline li summary").all()
            expect(model).to_contain_text("900 tokens read, 40 written · $0.0200")
            expect(price).not_to_contain_text("$")


def test_a_form_is_made_from_the_fields_of_a_schema(open_page: Open) -> None:
    schema = {
        "type": "object",
        "properties": {"amount": {"type": "integer"}, "to": {"type": "string"}, "how": {"enum": ["card", "cash"]}},
        "required": ["amount"],
    }
    with backtrail.open("memory:") as store:
        with pytest.raises(backtrail.Suspended), store.run("fill") as run:
            run.ask("what?", "What?", schema)
        with inspector(store) as served:
            page = open_page(served)
            _choose(page, "fill")
            page.get_by_label("amount").fill("7")
            page.get_by_label("to", exact=True).fill("them")
            page.locator(".question select").select_option(label="cash")
            page.get_by_role("button", name="Answer").click()
            expect(page.locator(".run-status")).to_have_text("ready")
        with store.run("fill") as run:
            assert run.ask("what?", "What?", schema) == {"amount": 7, "to": "them", "how": "cash"}


def test_a_field_that_is_not_required_and_stays_empty_is_left_out_of_the_answer(open_page: Open) -> None:
    schema = {
        "type": "object",
        "properties": {
            "when": {"type": "string", "format": "date"},
            "until": {"type": "string", "format": "date"},
            "amount": {"type": "integer"},
            "how": {"enum": ["card", "cash"]},
            "more": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["when"],
        "additionalProperties": False,
    }
    with backtrail.open("memory:") as store:
        with pytest.raises(backtrail.Suspended), store.run("fill") as run:
            run.ask("what?", "What?", schema)
        with inspector(store) as served:
            page = open_page(served)
            _choose(page, "fill")
            page.get_by_label("when").fill("2026-01-02")
            page.get_by_role("button", name="Answer").click()
            expect(page.locator(".run-status")).to_have_text("ready")
        with store.run("fill") as run:
            assert run.ask("what?", "What?", schema) == {"when": "2026-01-02"}
