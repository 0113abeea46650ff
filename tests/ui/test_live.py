"""A live agent: what is new is added, and the reader is left in peace."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import expect

import backtrail
from fix_inspector import Inspector, inspector

from .conftest import Open
from .test_addresses import TALK, _choose


def _long(served: Inspector, count: int = 60) -> backtrail.Thread[Any]:
    thread: backtrail.Thread[Any] = served.store.thread("long")
    for i in range(count):
        thread.append("messages", [{"role": "user", "content": f"message {i}\n\n" + "words " * 120}])
    return thread


def test_a_thread_opens_at_its_newest_message(served: Inspector, open_page: Open) -> None:
    _long(served)
    page = open_page(served)
    _choose(page, "long")
    expect(page.locator(".message").last).to_contain_text("message 59")
    expect(page.locator(".message").last).to_be_in_viewport()
    page.wait_for_timeout(500)
    left = page.locator("#view").evaluate("node => node.scrollHeight - node.scrollTop - node.clientHeight")
    assert left < 60


def test_new_messages_leave_folds_and_the_place_of_the_reader_alone(served: Inspector, open_page: Open) -> None:
    thread = _long(served)
    call = {"id": "c", "name": "bash", "input": {"command": "ls"}, "type": "tool_use"}
    thread.append("messages", [{"role": "assistant", "content": [call]}])
    page = open_page(served)
    _choose(page, "long")
    page.locator(".fold.call summary").last.click()
    expect(page.locator(".fold.call").last).to_have_attribute("open", "")
    page.locator("#view").evaluate("node => { node.scrollTop -= 900; }")
    page.wait_for_timeout(300)
    before = page.locator("#view").evaluate("node => node.scrollTop")
    page.locator(".fold.call").last.evaluate("node => { node.dataset.kept = 'yes'; }")
    for i in range(3):
        thread.append("messages", [{"role": "assistant", "content": f"news {i}"}])
    expect(page.locator(".pill")).to_have_text("3 new ↓")
    expect(page.locator("#facts .step")).to_have_text("Step 64")
    assert page.locator("#view").evaluate("node => node.scrollTop") == before
    assert page.locator("[data-kept=yes][open]").count() == 1
    page.locator(".pill").click()
    expect(page.locator(".message").last).to_be_in_viewport()
    expect(page.locator(".pill")).to_be_hidden()


def test_at_the_end_the_reader_stays_at_the_end(served: Inspector, open_page: Open) -> None:
    thread = _long(served)
    page = open_page(served)
    _choose(page, "long")
    thread.append("messages", [{"role": "assistant", "content": "the news"}])
    expect(page.locator(".message").last).to_contain_text("the news")
    expect(page.locator(".message").last).to_be_in_viewport()
    expect(page.locator(".pill")).to_be_hidden()


def test_a_message_that_is_rewritten_while_it_is_shown_is_drawn_again(served: Inspector, open_page: Open) -> None:
    thread = _long(served, 3)
    page = open_page(served)
    _choose(page, "long")
    state = thread.load()
    state["messages"][-1] = {"role": "user", "content": "in other words"}
    thread.save(state)
    expect(page.locator(".message").last).to_contain_text("in other words")


@contextmanager
def _running_agent(store: backtrail.Store, name: str, pause: float = 0.05) -> Iterator[None]:
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            store.thread(name).append("messages", [{"role": "assistant", "content": "still at it"}])
            time.sleep(pause)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yield
    finally:
        stop.set()
        worker.join()


def test_end_on_a_live_thread_is_the_oldest_step(served: Inspector, open_page: Open) -> None:
    _long(served, 100)
    page = open_page(served)
    _choose(page, "long")
    with _running_agent(served.store, "long"):
        page.locator("#rows").focus()
        for _ in range(4):
            page.wait_for_timeout(300)
            page.keyboard.press("End")
            expect(page.locator("#facts .step")).to_have_text("Step 1")
            page.keyboard.press("Home")
            expect(page.locator("#facts .step")).not_to_have_text("Step 1")


def test_a_live_thread_with_an_old_step_chosen_asks_for_little(open_page: Open) -> None:
    with backtrail.open("memory:") as store:
        thread: backtrail.Thread[Any] = store.thread("long")
        for i in range(3_000):
            thread.append("messages", [{"role": "user", "content": f"message {i}"}])
        with inspector(store) as served:
            page = open_page(served)
            _choose(page, "long")
            page.keyboard.press("G")
            expect(page.locator("#facts .step")).to_have_text("Step 1")
            asked: list[str] = []
            page.on("request", lambda request: asked.append(request.url))
            begin = time.monotonic()
            with _running_agent(store, "long"):
                page.wait_for_timeout(6_000)
            seconds = time.monotonic() - begin
            histories = [url for url in asked if "/history" in url]
            assert len(histories) <= 4 * seconds  # the page is told twice a second that the thread has changed
            assert not [url for url in asked if "/messages" in url]
            expect(page.locator("#newer")).to_contain_text("new")
            expect(page.locator("#facts .step")).to_have_text("Step 1")
            page.locator("#newer").click()
            expect(page.locator("#facts .badge")).to_have_text("head")


class _Held:
    """Answers of the server that reach the page when they are released, and not before."""

    def __init__(self, page: Any, requests: str) -> None:
        self._page = page
        self._answers: list[tuple[Any, Any]] | None = []
        page.route(requests, self._take)

    def _take(self, route: Any) -> None:
        if self._answers is None:
            route.continue_()
        else:
            self._answers.append((route, route.fetch()))

    def wait(self) -> None:
        """Returns when there is one."""
        until = time.monotonic() + 30
        while not self._answers:
            assert time.monotonic() < until
            self._page.wait_for_timeout(20)

    def release(self) -> None:
        answers, self._answers = self._answers or [], None
        for route, response in answers:
            route.fulfill(response=response)


def test_a_step_that_is_saved_while_the_reader_goes_to_the_newest_is_followed(
    served: Inspector, open_page: Open
) -> None:
    thread = _long(served)
    page = open_page(served)
    _choose(page, "long")
    page.keyboard.press("G")
    expect(page.locator("#facts .step")).to_have_text("Step 1")
    thread.append("messages", [{"role": "assistant", "content": "the first news"}])
    expect(page.locator("#newer")).to_have_text("1 new ↑")
    held = _Held(page, "**/history?*")
    thread.append("messages", [{"role": "assistant", "content": "the last news"}])
    held.wait()
    page.locator("#newer").click()  # the page knows of the first news only
    expect(page.locator("#facts .step")).to_have_text("Step 61")
    held.release()
    expect(page.locator("#facts .step")).to_have_text("Step 62")
    expect(page.locator("#facts .badge")).to_have_text("head")
    expect(page.locator(".message").last).to_contain_text("the last news")
    expect(page.locator("#newer")).to_be_hidden()


def test_a_page_of_the_history_that_comes_late_does_not_take_the_head_back(served: Inspector, open_page: Open) -> None:
    thread = _long(served, 400)
    page = open_page(served)
    _choose(page, "long")
    expect(page.locator("#facts .step")).to_have_text("Step 400")
    held = _Held(page, "**/history?*start=2*")
    page.locator("#rows").evaluate("node => { node.scrollTop = 54 * 260; }")
    held.wait()
    thread.append("messages", [{"role": "assistant", "content": "the news"}])
    expect(page.locator("#facts .step")).to_have_text("Step 401")
    held.release()
    expect(page.locator("#rows .row:not(.blank)").first).to_be_visible()
    expect(page.locator("#rows .blank")).to_have_count(0)
    expect(page.locator("#facts .badge")).to_have_text("head")
    expect(page.locator("#rows")).to_have_attribute("aria-rowcount", "401")
    page.locator("#rows").focus()
    page.keyboard.press("Home")
    expect(page.locator("#facts .step")).to_have_text("Step 401")


def test_the_focus_of_the_history_and_of_a_thread_can_be_seen(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    _choose(page)
    page.locator("#search").focus()
    for name in (".row[aria-selected=true]", ".thread[aria-current]"):
        box = page.locator(name).bounding_box()
        edge = {"x": box["x"], "y": box["y"] + 12, "width": 3, "height": box["height"] - 24}
        blurred = page.screenshot(clip=edge)
        page.locator("#rows" if "row" in name else name).focus()
        page.keyboard.press("Shift")  # a key, so that the focus is one of the keyboard
        assert page.screenshot(clip=edge) != blurred, name
        page.locator("#search").focus()


def test_undo_and_redo_ask_first_and_say_what_they_do(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    _choose(page)
    page.keyboard.press("u")
    expect(page.get_by_role("dialog")).to_contain_text("from step 6 to step 5")
    assert served.store.thread(TALK).step == 6
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert served.store.thread(TALK).step == 6
    page.get_by_role("button", name="Undo", exact=True).click()
    page.locator("dialog .primary").click()
    expect(page.locator("#facts .step")).to_have_text("Step 5")
    assert served.store.thread(TALK).step == 5
    page.locator("#facts").get_by_role("button", name="Redo").click()
    expect(page.get_by_role("dialog")).to_contain_text("from step 5 to step 6")
    page.locator("dialog .primary").click()
    expect(page.locator("#facts .step")).to_have_text("Step 6")
    assert served.store.thread(TALK).step == 6
    page.locator("#facts").get_by_role("button", name="Redo").click()
    expect(page.locator(".toast.bad")).to_contain_text("nothing to redo")


def test_a_link_that_is_followed_while_its_thread_is_being_opened_leads_there(
    served: Inspector, open_page: Open
) -> None:
    page = open_page(served)
    held = _Held(page, "**/history?*")
    page.evaluate("location.hash = 'thread=team/talk'")
    held.wait()
    page.evaluate("location.hash = 'thread=team/talk&message=2'")
    page.wait_for_timeout(200)  # the page has heard of it
    held.release()
    expect(page.locator("#facts .step")).to_have_text("Step 6")
    expect(page.locator(".message").last).to_be_visible()
