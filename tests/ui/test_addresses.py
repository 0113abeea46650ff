"""Every place of the inspector has an address, which survives a reload, Back, a second tab and a friend."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import expect

from fix_inspector import TOKEN, Inspector

from .conftest import Open

TALK = "team/talk"


def _choose(page: Any, thread: str = TALK) -> None:
    page.locator(f"[data-thread={json.dumps(thread)}]").click()
    expect(page.locator("#history-head h1")).to_have_text(thread)
    expect(page.locator("#checkpoint")).to_be_visible()


def test_a_reload_stays_at_the_thread_the_step_and_the_tab(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    _choose(page)
    page.locator(".row", has_text="build a rate limiter").click()
    page.get_by_role("tab", name="State").click()
    page.reload()
    expect(page.locator("#facts .step")).to_have_text("Step 2")
    expect(page.get_by_role("tab", name="State")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".tree .key").first).to_have_text("messages")


def test_back_and_forward_go_through_what_was_looked_at(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    _choose(page)
    page.locator(".row", has_text="build a rate limiter").click()
    expect(page.locator("#facts .step")).to_have_text("Step 2")
    _choose(page, "other")
    page.go_back()
    expect(page.locator("#history-head h1")).to_have_text(TALK)
    expect(page.locator("#facts .step")).to_have_text("Step 2")
    page.go_back()
    expect(page.locator("#facts .step")).to_have_text("Step 6")
    page.go_forward()
    expect(page.locator("#facts .step")).to_have_text("Step 2")


def test_a_copied_link_opens_the_same_step_in_a_second_tab_and_has_no_token(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    _choose(page)
    page.keyboard.press("j")
    page.get_by_role("button", name="Copy link").first.click()
    expect(page.locator(".toast")).to_contain_text("Copied")
    link = page.evaluate("navigator.clipboard.readText()")
    assert TOKEN not in link
    assert "code=" not in link
    second = page.context.new_page()
    second.goto(link)
    expect(second.locator("#facts .step")).to_have_text("Step 5")
    expect(second.locator(".message").last).to_contain_text("a token bucket")


def test_a_link_to_a_message_lands_on_it(served: Inspector, open_page: Open) -> None:
    thread = served.store.thread("long")
    thread.save({"messages": [{"role": "user", "content": f"message {i}\n\n" + "words " * 80} for i in range(300)]})
    page = open_page(served)
    expect(page.locator(".thread")).to_have_count(3)
    page.evaluate("location.hash = 'thread=long&message=100'")
    expect(page.locator(".message.landed")).to_contain_text("message 100")
    expect(page.locator(".message.landed")).to_be_in_viewport()


def test_on_a_phone_a_link_to_a_message_shows_it_and_one_to_a_thread_its_history(
    served: Inspector, open_page: Open
) -> None:
    page = open_page(served, width=360)
    expect(page.locator(".thread")).to_have_count(2)
    second = page.context.new_page()
    second.goto(f"{served.url}/#thread=team/talk&message=1")
    expect(second.locator(".message.landed")).to_be_in_viewport()
    third = page.context.new_page()
    third.goto(f"{served.url}/#thread=team/talk")
    expect(third.locator(".row").first).to_be_visible()


def test_a_search_has_an_address(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    expect(page.locator(".thread")).to_have_count(2)
    page.get_by_label("Search threads").fill("oth")
    expect(page.locator(".thread")).to_have_count(1)
    page.reload()
    expect(page.get_by_label("Search threads")).to_have_value("oth")
    expect(page.locator(".thread")).to_have_count(1)


def test_a_link_to_what_is_not_there_says_so(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    expect(page.locator(".thread")).to_have_count(2)
    page.evaluate("location.hash = 'thread=nobody'")
    expect(page.locator("#empty-text")).to_contain_text("nobody")


def test_a_tab_with_an_old_token_gets_the_new_one_from_another_tab(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    expect(page.locator(".thread")).to_have_count(2)
    second = page.context.new_page()
    second.goto(served.url)
    expect(second.locator(".thread")).to_have_count(2)
    second.evaluate("sessionStorage.setItem('backtrail-token', 'of a server that is gone')")
    second.reload()
    expect(second.locator(".thread")).to_have_count(2)
