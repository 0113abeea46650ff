"""A session of a coding agent in the inspector: turns with prompts, tools and files, also while the agent works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import backtrail
from backtrail.agents.events import AGENTS
from backtrail.render.agent_turns import find_turns
from fix_captured import CapturedSession
from fix_inspector import Inspector, inspector
from fix_transcripts import PROMPTS

from .conftest import Open
from .test_addresses import _choose


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Inspector]:
    with backtrail.open(tmp_path / "agents.db") as store, inspector(store) as running:
        yield running


def _show_turns(page: Page, thread: str) -> None:
    _choose(page, thread)
    page.get_by_role("button", name="Turns").click()


@pytest.mark.parametrize("agent", AGENTS)
def test_a_turn_shows_its_prompt_its_tool_and_the_files_that_it_changed(
    agent: str, served: Inspector, open_page: Open, tmp_path: Path
) -> None:
    session = CapturedSession(served.store, agent, tmp_path / "home", tmp_path / "project")
    session.play()
    page = open_page(served)
    _show_turns(page, session.thread_id)
    expect(page.locator(".turn .asked")).to_have_text(PROMPTS[agent][::-1])
    second = page.locator(".turn[data-number='2']")
    expect(second.locator(".tool-name").first).to_be_visible()
    second.locator("summary").first.click()
    expect(second.locator(".turn-files")).to_contain_text("a.txt")
    second.locator(".turn-files summary").first.click()
    expect(second.locator(".turn-files")).to_contain_text("two")


def test_the_files_are_those_of_the_turn_also_if_its_prompt_was_sent_twice(
    served: Inspector, open_page: Open, tmp_path: Path
) -> None:
    session = CapturedSession(served.store, "claude", tmp_path / "home", tmp_path / "project")
    first, third = session.turns[0], session.turns[2]
    session.lines[third.index]["message"] = dict(session.lines[first.index]["message"])
    session.turns = find_turns(session.lines)
    session.play()
    page = open_page(served)
    _show_turns(page, session.thread_id)
    for number, file in (("1", "a.txt"), ("3", "c.txt")):
        turn = page.locator(f".turn[data-number='{number}']")
        turn.locator("summary").first.click()
        expect(turn.locator(".turn-files code")).to_have_text([file])


def test_a_turn_is_followed_while_the_agent_works(served: Inspector, open_page: Open, tmp_path: Path) -> None:
    session = CapturedSession(served.store, "claude", tmp_path / "home", tmp_path / "project")
    session.play(1, 1)
    page = open_page(served)
    _show_turns(page, session.thread_id)
    expect(page.locator(".turn")).to_have_count(1)
    session.play(2, 2)
    expect(page.locator(".turn")).to_have_count(2)
    expect(page.locator(".turn .asked").first).to_have_text(PROMPTS["claude"][1])
