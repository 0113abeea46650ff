"""Turns, the comparison of forks, going on from a checkpoint, finding, health and sharing, in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import backtrail
from fix_agent_store import build_agent_store
from fix_inspector import Inspector, inspector

from .conftest import Open
from .test_addresses import _choose

LIMITER, REDIS = "api/rate-limiter", "api/rate-limiter-redis"


@pytest.fixture
def agents() -> Iterator[Inspector]:
    with backtrail.open("memory:") as store:
        build_agent_store(store)
        with inspector(store) as running:
            yield running


def test_a_thread_is_seen_as_turns_that_unfold_to_steps(agents: Inspector, open_page: Open) -> None:
    page = open_page(agents)
    _choose(page, LIMITER)
    page.get_by_role("button", name="Turns").click()
    expect(page.locator(".turn")).to_have_count(3)
    turn = page.locator(".turn").nth(1)
    expect(turn.locator(".asked")).to_contain_text("token bucket")
    expect(turn.locator(".flow")).to_have_text("bash, edit ×2, bash, apply_patch")
    expect(turn.locator(".answer")).to_contain_text("All tests pass now")
    expect(turn.locator(".turn-facts")).to_contain_text("tokens")
    expect(turn.locator(".turn-facts")).to_contain_text("claude-sonnet-4")
    expect(page.locator(".totals")).to_contain_text("3 turns · 1 failed call · ")
    turn.locator("summary").click()
    expect(turn.locator(".steps li")).to_have_count(11)
    turn.locator(".steps button", has_text="FAILED").click()
    expect(page.locator("#facts .step")).to_have_text("Step 9")
    page.reload()
    expect(page.locator(".turn")).to_have_count(3)


def test_a_turn_costs_what_the_readers_own_prices_say(agents: Inspector, open_page: Open) -> None:
    page = open_page(agents)
    _choose(page, LIMITER)
    page.get_by_role("button", name="Turns").click()
    expect(page.locator(".totals")).not_to_contain_text("$")
    page.get_by_role("link", name="Health").click()
    page.get_by_role("button", name="Add a model").click()
    for name, value in (("model", "claude"), ("what is read", "3"), ("from the cache", "0.3"), ("written", "15")):
        page.get_by_label(name).last.fill(value)
        page.keyboard.press("Tab")
    page.go_back()
    _choose(page, LIMITER)
    page.reload()
    expect(page.locator("#facts")).to_contain_text("claude-sonnet-4 · 2,100 → 180 tokens · $")
    expect(page.locator(".message .facts", has_text="$").first).to_be_visible()
    page.get_by_role("button", name="Turns").click()
    expect(page.locator(".totals")).to_contain_text("$")


def test_the_next_failure_is_one_key_away(agents: Inspector, open_page: Open) -> None:
    page = open_page(agents)
    _choose(page, LIMITER)
    page.keyboard.press("x")
    expect(page.locator(".message.landed .fold.failed")).to_contain_text("assert 11 == 10")


def test_two_forks_are_compared_side_by_side_from_where_they_part(agents: Inspector, open_page: Open) -> None:
    page = open_page(agents)
    _choose(page, LIMITER)
    page.keyboard.press("c")
    page.get_by_label("With the thread").fill(REDIS)
    page.locator("dialog .primary").click()
    expect(page.locator("#view")).to_contain_text("both go on from step 8. 8 messages are the same.")
    left, right = page.locator(".sides .side").first, page.locator(".sides .side").last
    expect(left.locator(".message").first).to_contain_text("assert 11 == 10")
    expect(right.locator(".message").first).to_contain_text("Another way: count in Redis")
    expect(page.locator(".change code")).to_have_text("plan.steps[2]")
    page.reload()
    expect(page.locator(".sides .side")).to_have_count(2)


def test_a_fork_chip_is_a_link(agents: Inspector, open_page: Open) -> None:
    page = open_page(agents)
    _choose(page, LIMITER)
    page.locator(".row .fork", has_text=REDIS).click()
    expect(page.locator("#history-head h1")).to_have_text(REDIS)
    expect(page.locator("#facts .step")).to_have_text("Step 8")


def test_a_message_and_a_key_are_edited_as_forks(agents: Inspector, open_page: Open) -> None:
    page = open_page(agents)
    _choose(page, LIMITER)
    before = agents.store.thread(LIMITER).load()
    page.locator(".message", has_text="Now per client").hover()
    page.locator(".message", has_text="Now per client").get_by_role("button", name="Edit").click()
    text = page.get_by_label("The value, as JSON")
    text.fill("{ not JSON")
    page.locator("dialog .primary").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    text.fill(json.dumps({"role": "user", "content": "Now per address"}))
    page.get_by_label("Name of the fork").fill("api/edited")
    page.locator("dialog .primary").click()
    expect(page.locator("#history-head h1")).to_have_text("api/edited")
    expect(page.locator(".message", has_text="Now per address")).to_be_visible()
    assert agents.store.thread(LIMITER).load() == before
    page.get_by_role("tab", name="State").click()
    page.locator(".branch", has_text="plan").get_by_role("button", name="Edit").click()
    text.fill('{"steps": []}')
    page.locator("dialog .primary").click()
    expect(page.locator("#history-head")).to_contain_text("forked from api/edited")
    newest = agents.store.threads(limit=1, newest_first=True)[0]
    assert agents.store.thread(newest.id).load()["plan"] == {"steps": []}


def test_how_to_go_on_is_told_in_three_languages(agents: Inspector, open_page: Open) -> None:
    page = open_page(agents)
    _choose(page, LIMITER)
    page.keyboard.press("p")
    dialog = page.get_by_role("dialog")
    for words in ("import backtrail", "backtrail fork 'api/rate-limiter'", "curl -s -H"):
        expect(dialog).to_contain_text(words)


def test_a_step_gets_a_note_and_is_deleted(agents: Inspector, open_page: Open) -> None:
    page = open_page(agents)
    _choose(page, LIMITER)
    page.keyboard.press("l")
    page.get_by_label("Note").fill("look again")
    page.locator("dialog .primary").click()
    expect(page.locator("#facts .custom")).to_contain_text("look again")
    assert agents.store.thread(LIMITER).get("@").custom == {"note": "look again"}
    page.get_by_role("button", name="Delete").click()
    page.get_by_label("The whole thread").check()
    page.locator("dialog .primary").click()
    expect(page.locator(".toast", has_text="is deleted")).to_be_visible()
    assert not agents.store.thread(LIMITER).exists()


def test_the_list_has_titles_last_messages_and_filters(agents: Inspector, open_page: Open) -> None:
    page = open_page(agents)
    row = page.locator(".thread", has_text="support/")
    expect(row.locator(".told")).to_have_text("My parcel is late")
    expect(row.locator(".sub")).to_contain_text("assistant: I am sorry. Which one?")
    search = page.get_by_label("Search threads")
    search.fill("kind:session")
    expect(page.locator(".thread")).to_have_count(1)
    search.fill("until:2001-01-01")
    expect(page.locator("#thread-list")).to_contain_text("No thread matches.")
    search.fill("since:yesterday")
    expect(page.locator("#filter-note")).to_contain_text("is no date")


def test_text_is_found_in_all_threads_and_lands_on_the_message(agents: Inspector, open_page: Open) -> None:
    page = open_page(agents)
    page.get_by_label("Search threads").fill("text:keep it in memory")
    expect(page.locator(".results li")).to_have_count(1)
    expect(page.locator(".results mark")).to_have_text("keep it in memory")
    page.locator(".results a").click()
    expect(page.locator(".message.landed")).to_contain_text("keep it in memory")
    expect(page.locator("#history-head h1")).to_have_text(REDIS)


def test_a_message_far_away_is_found_in_a_long_thread(open_page: Open) -> None:
    with backtrail.open("memory:") as store:
        messages = [{"role": "user", "content": f"message {n}"} for n in range(3000)]
        messages[17] = {"role": "user", "content": "the needle"}
        store.thread("long").save({"messages": messages})
        with inspector(store) as served:
            page = open_page(served)
            _choose(page, "long")
            page.get_by_label("Find in this thread").fill("needle")
            page.keyboard.press("Enter")
            expect(page.locator("#found li")).to_have_count(1)
            page.keyboard.press("Enter")
            expect(page.locator(".message.landed")).to_contain_text("the needle")
            page.get_by_label("Find in this thread").fill("role:assistant")
            page.keyboard.press("Enter")
            expect(page.locator("#found")).to_contain_text("nothing found")


def test_the_operator_sees_the_health_of_the_store(agents: Inspector, open_page: Open) -> None:
    page = open_page(agents)
    page.get_by_role("link", name="Health").click()
    expect(page.locator("#page")).to_contain_text("The store answers.")
    expect(page.locator("#page")).to_contain_text("This store has no mirror.")
    page.get_by_role("button", name="Measure what can be freed").click()
    expect(page.locator("#page")).to_contain_text("can be freed by prune")


def test_a_conversation_is_shared_as_one_file_without_what_was_left_out(
    agents: Inspector, open_page: Open, browser: Any, tmp_path: Path
) -> None:
    page = open_page(agents)
    _choose(page, LIMITER)
    page.keyboard.press("e")
    page.get_by_label("as a page of its own").check()
    page.get_by_label("results of tools").check()
    page.get_by_label("the model's thinking").check()
    with page.expect_download() as download:
        page.locator("dialog .primary").click()
    file = tmp_path / "shared.html"
    download.value.save_as(file)
    context = browser.new_context(offline=True)
    shared = context.new_page()
    asked: list[str] = []
    shared.on("request", lambda request: asked.append(request.url))
    shared.goto(file.as_uri())
    expect(shared.locator("body")).to_contain_text("All tests pass now")
    expect(shared.locator("img")).to_have_js_property("naturalWidth", 120)
    assert "a line of a long output" not in file.read_text()
    assert "I should read the app first" not in file.read_text()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    context.close()
