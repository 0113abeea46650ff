"""Thousands of threads: the list scrolls, is searched, and stays under the reader while agents save."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

import backtrail
from fix_inspector import Inspector, inspector

from .conftest import Open

THREADS = 5_000


@pytest.fixture(scope="module")
def many() -> Iterator[Inspector]:
    with backtrail.open("memory:") as store:
        for number in range(THREADS):
            store.thread(f"team/{number:04}").append("messages", [{"role": "user", "content": f"task {number}"}])
        with inspector(store) as served:
            yield served


def _scroll_to(page: Any, row: int) -> None:
    """Scrolls on until a row is on top: pages come as the reader gets near their border."""
    page.wait_for_function(
        """(top) => { const list = document.querySelector('#thread-list'); list.scrollTop = top;
          return Math.abs(list.scrollTop - top) < 1; }""",
        arg=62 * row,
    )


def test_a_list_of_thousands_has_only_what_is_in_sight_and_goes_on_as_it_is_scrolled(
    many: Inspector, open_page: Open
) -> None:
    page = open_page(many)
    expect(page.locator(".thread").first).to_contain_text("4999")
    for row in range(60, 1_200, 60):
        _scroll_to(page, row)
        thread = page.locator(f'[data-thread="team/{THREADS - 1 - row:04}"]')
        expect(thread).to_contain_text(f"task {THREADS - 1 - row}")
        assert page.locator(".thread").count() < 60


def test_one_of_thousands_is_found_by_its_name(many: Inspector, open_page: Open) -> None:
    page = open_page(many)
    page.locator("#search").fill("team/0042")
    expect(page.locator(".thread")).to_have_count(1)
    page.locator("#search").press("Enter")
    expect(page.locator("#history-head h1")).to_have_text("team/0042")


def test_a_list_that_is_read_stays_while_threads_come_to_the_top(many: Inspector, open_page: Open) -> None:
    page = open_page(many)
    expect(page.locator(".thread").first).to_be_visible()
    _scroll_to(page, 30)
    read = page.locator('[data-thread="team/4965"]')
    expect(read).to_be_in_viewport()
    before = read.bounding_box()
    many.store.thread("new/one").append("messages", [{"role": "user", "content": "new"}])
    many.store.thread("team/4990").append("messages", [{"role": "user", "content": "again"}])  # from above
    many.store.thread("team/4000").append("messages", [{"role": "user", "content": "again"}])  # from below
    page.wait_for_function("() => document.querySelector('#thread-list').scrollTop === 62 * 32")
    assert read.bounding_box() == before
    page.locator("#thread-list").evaluate("node => { node.scrollTop = 0; }")
    expect(page.locator(".thread").first).to_contain_text("4000")
    expect(page.locator(".thread", has_text="new/one")).to_contain_text("new")
