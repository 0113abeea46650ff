"""Links that lead nowhere: each says one clear thing, and leaves a way on."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

import backtrail
from backtrail.server import application
from backtrail.server.serve import Server
from fix_inspector import Inspector

from .conftest import Open
from .test_addresses import TALK, _choose


@pytest.mark.parametrize("width", [1600, 360])
def test_a_link_to_an_unknown_thread_names_it(served: Inspector, open_page: Open, width: int) -> None:
    page = open_page(served, width=width)
    page.evaluate("location.hash = 'thread=nobody'")
    expect(page.locator("#empty-text")).to_contain_text("thread 'nobody' does not exist")
    expect(page.locator("#empty-text")).to_be_visible()
    expect(page.locator(".toast")).to_have_count(0)
    page.evaluate("location.hash = ''")
    expect(page.locator(".thread")).to_have_count(2)
    expect(page.locator("#empty-text")).to_contain_text("Choose a thread")


@pytest.mark.parametrize("width", [1600, 360])
@pytest.mark.parametrize("at", ["01a1ed3c-be97-7b0c-a5a3-40ee6c6cc150", "99", "no%20such%20label", "%00"])
def test_a_link_to_an_unknown_step_keeps_the_thread_and_leads_to_its_newest(
    served: Inspector, open_page: Open, at: str, width: int
) -> None:
    page = open_page(served, width=width)
    page.evaluate(f"location.hash = 'thread=team/talk&at={at}'")
    expect(page.locator("#empty-text")).to_be_visible()
    expect(page.locator("#empty-text")).to_contain_text("Show its newest step")
    expect(page.locator("#history-head h1")).to_have_text(TALK)
    expect(page.locator(".toast")).to_have_count(0)
    page.get_by_role("link", name="Show its newest step").click()
    expect(page.locator("#facts .step")).to_have_text("Step 6")


def test_an_unknown_step_of_the_thread_that_is_open_does_not_show_another(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    _choose(page)
    page.evaluate("location.hash = 'thread=team/talk&at=99'")
    expect(page.locator("#empty-text")).to_contain_text("99")
    expect(page.locator("#checkpoint")).to_be_hidden()
    page.go_back()
    expect(page.locator("#facts .step")).to_have_text("Step 6")


def test_what_is_wrong_in_a_tampered_address_is_told_and_left_out(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    page.evaluate("location.hash = 'thread=team/talk&view=<b>&message=-1&list=x&nonsense=1&page=admin'")
    expect(page.locator("#facts .step")).to_have_text("Step 6")
    expect(page.get_by_role("tab", name="Conversation")).to_have_attribute("aria-selected", "true")
    for odd in ("view=<b>", "message=-1", "list=x", "nonsense=1", "page=admin"):
        expect(page.locator(".toast")).to_contain_text(odd)
    page.reload()
    expect(page.locator(".toast")).to_contain_text("nonsense=1")
    page.evaluate("location.hash = 'thread=team/talk&message=99999'")
    expect(page.locator(".message").last).to_be_visible()
    expect(page.locator(".toast").last).to_contain_text("step 6 has 5 messages")


def test_a_thread_that_is_deleted_while_it_is_open_says_so(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    _choose(page)
    served.store.thread(TALK).delete()
    expect(page.locator("#empty-text")).to_have_text(f"The thread {TALK} was deleted.")
    expect(page.locator("#checkpoint")).to_be_hidden()
    expect(page.locator(".thread")).to_have_count(1)
    _choose(page, "other")


@contextlib.contextmanager
def _server(store: backtrail.Store, token: str, port: int) -> Iterator[tuple[int, Any]]:
    """A server on a port, with a token of its own each time that it is started."""
    app = application(store, token=token)
    listener = socket.create_server(("127.0.0.1", port))
    server = Server(app)
    worker = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    worker.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield listener.getsockname()[1], app.state.codes
    finally:
        server.should_exit = True
        worker.join()
        listener.close()


def test_a_server_that_was_started_again_is_told_apart_and_its_new_link_works(browser: Any) -> None:
    with backtrail.open("memory:") as store:
        store.thread("t").save({"messages": [{"role": "user", "content": "hello"}]})
        with _server(store, "the first token", 0) as (port, codes):
            context = browser.new_context()
            page, other = context.new_page(), context.new_page()
            page.goto(f"http://127.0.0.1:{port}/#code={codes.make()}&thread=t")
            expect(page.locator(".message")).to_contain_text("hello")
            other.goto(f"http://127.0.0.1:{port}/#thread=t")
            expect(other.locator(".message")).to_contain_text("hello")
        expect(page.locator("#live")).to_have_text("reconnecting")
        page.get_by_role("tab", name="State").click()
        expect(page.locator("#view")).to_have_text("The server does not answer: it may have been stopped.")
        with _server(store, "the second token", port) as (_, codes):
            expect(page.locator("#banner")).to_contain_text("open the address that backtrail ui printed last")
            expect(other.locator("#banner")).to_be_visible()
            page.goto(f"http://127.0.0.1:{port}/#code={codes.make()}&thread=t")  # in the same tab
            expect(page.locator("#live")).to_have_text("live")
            expect(page.locator("#banner")).to_be_hidden()
            expect(page.locator(".message")).to_contain_text("hello")
            assert "code=" not in page.url
            expect(other.locator("#live")).to_have_text("live")
            expect(other.locator("#banner")).to_be_hidden()
            store.thread("t").append("messages", [{"role": "assistant", "content": "and again"}])
            expect(other.locator(".message").last).to_contain_text("and again")
            used = context.browser.new_context().new_page()
            used.goto(f"http://127.0.0.1:{port}/#code=used")
            expect(used.locator("#banner")).to_contain_text("Each opens the page once")
            used.context.close()
        context.close()
