"""The steps and turns of a thread, filtered: by fields that a keyboard reaches, with an address, on a live thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

import backtrail
from fix_inspector import Inspector, inspector

from .conftest import Open
from .test_addresses import _choose

STEPS = 3_000


@pytest.fixture(scope="module")
def long() -> Iterator[Inspector]:
    """A thread of three thousand steps in which each thousandth is a failed bash."""
    with backtrail.open("memory:") as store:
        thread: backtrail.Thread[Any] = store.thread("long")
        for number in range(1, STEPS + 1):
            if number % 1000 == 500:
                call = {"id": f"c{number}", "function": {"name": "bash", "arguments": '{"command": "make"}'}}
                message: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [call]}
            elif number % 1000 == 501:
                failed = {"type": "tool_result", "tool_use_id": f"c{number - 1}", "content": "exit 2", "is_error": True}
                message = {"role": "user", "content": [failed]}
            else:
                message = {"role": "user" if number % 50 == 0 else "assistant", "content": f"message {number}"}
            thread.append("messages", [message], label="release" if number == 2000 else None)
        with inspector(store) as served:
            yield served


def _kept(page: Any) -> Any:
    return page.locator("#kept .row .step")


def test_a_filter_finds_steps_anywhere_in_a_long_thread(long: Inspector, open_page: Open) -> None:
    page = open_page(long)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/steps?" in request.url else None)
    _choose(page, "long")
    page.keyboard.press("Shift+F")
    expect(page.get_by_label("role")).to_be_focused()
    page.get_by_label("failed").check()
    expect(_kept(page)).to_have_text(["Step 2501", "Step 1501", "Step 501"])
    expect(page.locator("#kept-note")).to_have_text("3 steps of 3,000")
    assert len(asked) == STEPS / 300, "each request reads three hundred steps"
    page.get_by_label("failed").uncheck()
    expect(page.locator("#rows")).to_be_visible()
    page.get_by_label("tool", exact=True).fill("bash")
    page.keyboard.press("Enter")
    expect(_kept(page)).to_have_count(6)
    page.get_by_label("role").select_option("assistant")
    expect(_kept(page)).to_have_text(["Step 2500", "Step 1500", "Step 500"])
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("label", exact=True).fill("release")
    page.keyboard.press("Enter")
    expect(_kept(page)).to_have_text(["Step 2000"])


def test_a_filter_has_an_address_and_back_takes_it_away(long: Inspector, open_page: Open) -> None:
    page = open_page(long)
    _choose(page, "long")
    page.get_by_role("button", name="Filter").click()
    page.get_by_label("failed").check()
    expect(_kept(page)).to_have_count(3)
    page.locator("#kept .row").nth(1).click()
    expect(page.locator("#facts .step")).to_have_text("Step 1501")
    assert "failed=1" in page.url
    page.reload()
    expect(_kept(page)).to_have_count(3)
    expect(page.get_by_label("failed")).to_be_checked()
    expect(page.locator("#facts .step")).to_have_text("Step 1501")
    expect(page.locator('#kept [aria-selected="true"] .step')).to_have_text("Step 1501")
    page.go_back()
    page.go_back()
    expect(page.locator("#rows")).to_be_visible()
    expect(page.locator("#kept")).to_be_hidden()


def test_keys_move_among_the_steps_that_are_kept(long: Inspector, open_page: Open) -> None:
    page = open_page(long)
    page.evaluate("location.hash = 'thread=long&failed=1'")
    expect(_kept(page)).to_have_count(3)
    for key, step in (("j", 2501), ("j", 1501), ("k", 2501), ("G", 501), ("g", 2501)):
        page.keyboard.press(key)
        expect(page.locator("#facts .step")).to_have_text(f"Step {step}")
    page.locator("#kept").focus()
    for key, step in (("ArrowDown", 1501), ("End", 501), ("Home", 2501)):
        page.keyboard.press(key)
        expect(page.locator("#facts .step")).to_have_text(f"Step {step}")
    page.keyboard.press("Enter")
    expect(page.locator("#view")).to_be_focused()


def test_a_live_thread_brings_the_steps_that_fit_and_no_others(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    _choose(page)
    page.get_by_role("button", name="Filter").click()
    page.get_by_label("role").select_option("user")
    expect(_kept(page)).to_have_text(["Step 2"])
    talk: backtrail.Thread[Any] = served.store.thread("team/talk")
    talk.append("messages", [{"role": "assistant", "content": "not this"}])
    talk.append("messages", [{"role": "user", "content": "but this"}])
    expect(_kept(page)).to_have_text(["Step 8", "Step 2"])
    talk.rewind(2)
    expect(page.locator("#kept .row.left")).to_have_count(1)


def test_turns_are_filtered_by_the_same_fields(long: Inspector, open_page: Open) -> None:
    page = open_page(long)
    page.evaluate("location.hash = 'thread=long&list=turns&tool=bash'")
    expect(page.locator(".turn")).to_have_count(3)
    expect(page.locator(".turn").first).to_contain_text("bash")
    page.get_by_label("tool", exact=True).fill("nothing")
    page.keyboard.press("Enter")
    expect(page.locator("#turns")).to_contain_text("No turn has all of that.")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".turn")).to_have_count(50)


def test_a_filter_that_is_none_says_so(long: Inspector, open_page: Open) -> None:
    page = open_page(long)
    page.evaluate("location.hash = 'thread=long&since=yesterday'")
    expect(page.locator("#kept-note")).to_contain_text("since='yesterday' is no date")
