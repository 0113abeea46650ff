"""The accessibility tree of every page of the inspector, checked by axe; and the keyboard alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

import backtrail
from fix_agent_store import build_agent_store
from fix_inspector import Inspector, inspector

from .conftest import AXE

T = "thread=api%2Frate-limiter"
PLACES = {
    "threads": "",
    "conversation": T,
    "turns": f"{T}&list=turns",
    "state": f"{T}&view=state",
    "changes": f"{T}&view=changes&base=1",
    "comparison": f"{T}&view=compare&with=api%2Frate-limiter-redis",
    "find": f"{T}&find=bucket",
    "filter": f"{T}&role=tool",
    "files": "thread=project&view=files&path=src%2Fapp.py",
    "run": "thread=runs%2Fpay",
    "search": "search=text:bucket",
    "health": "page=health",
}


SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}, "how": {"enum": ["card", "cash"]}, "note": {"type": "string"}},
    "required": ["amount"],
}


def _pay(run: backtrail.Run) -> object:
    run.step("look up", lambda: {"sum": 42})
    if not run.ask("pay?", "Pay 42?", {"type": "boolean"}, about={"sum": 42}):
        return None
    return run.ask("how?", "How much, and how?", SCHEMA)


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inspector]:
    root = tmp_path_factory.mktemp("project")
    (root / "src").mkdir()
    with backtrail.open("memory:") as store:
        build_agent_store(store)
        for number in range(2):
            (root / "src" / "app.py").write_text(f"def main() -> int:\n    return {number}\n")
            store.thread("project").append(
                "messages", [{"role": "user", "content": f"return {number}"}], files=store.workspace(root)
            )
        with pytest.raises(backtrail.Suspended), store.run("runs/pay", task="pay the bill") as run:
            _pay(run)
        with inspector(store) as running:
            yield running


def _open(browser: Any, served: Inspector, fragment: str, **options: Any) -> Any:
    # axe brings scripts of its own, which the page's policy would refuse.
    context = browser.new_context(bypass_csp=True, **{"viewport": {"width": 1600, "height": 900}, **options})
    page = context.new_page()
    page.goto(f"{served.link()}&{fragment}")
    expect(page.locator(".thread").first).to_be_attached()
    if fragment:
        expect(page.locator("#page > *" if "thread=" not in fragment else "#view > *").first).to_be_attached()
        expect(page.get_by_text("looking …")).to_have_count(0)
    page.wait_for_timeout(400)  # until what is around it has come: the chart, the forks
    page.evaluate("document.querySelectorAll('#view details.call').forEach((node) => { node.open = true; })")
    return page


def _problems(page: Any) -> list[str]:
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [f"{one['id']}: {node['html'][:160]}" for one in found["violations"] for node in one["nodes"][:3]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", PLACES)
def test_axe_finds_nothing(browser: Any, agents: Inspector, place: str, scheme: str) -> None:
    page = _open(browser, agents, PLACES[place], color_scheme=scheme)
    problems = _problems(page)
    page.context.close()
    assert not problems


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", PLACES)
def test_axe_finds_nothing_on_a_phone(browser: Any, agents: Inspector, place: str, scheme: str) -> None:
    size = {"width": 360, "height": 740}
    page = _open(browser, agents, PLACES[place], color_scheme=scheme, viewport=size, has_touch=True, is_mobile=True)
    problems = []
    for pane in ("threads", "history", "detail"):
        page.evaluate("(pane) => { document.body.dataset.pane = pane; }", pane)
        problems += _problems(page)
    page.context.close()
    assert not problems


@pytest.mark.parametrize(("width", "scheme"), [(1600, "light"), (360, "dark")])
@pytest.mark.parametrize("key", ["l", "f", "r", "u", "c", "p", "e", "?"])
def test_axe_finds_nothing_in_a_dialog(browser: Any, agents: Inspector, key: str, width: int, scheme: str) -> None:
    at = f"{T}&at=1" if key == "r" else T
    page = _open(browser, agents, at, color_scheme=scheme, viewport={"width": width, "height": 800})
    if key == "r":
        expect(page.locator("#facts .step")).to_have_text("Step 1")
    page.keyboard.press(key)
    expect(page.get_by_role("dialog")).to_be_visible()
    problems = _problems(page)
    box = page.get_by_role("dialog").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    page.context.close()
    assert not problems


def test_axe_finds_nothing_where_a_message_is_edited_or_a_thread_deleted(browser: Any, agents: Inspector) -> None:
    page = _open(browser, agents, T)
    page.get_by_role("button", name="Delete").click()
    problems = _problems(page)
    page.keyboard.press("Escape")
    page.locator(".message").last.hover()
    page.locator(".message").last.get_by_role("button", name="Edit").click()
    expect(page.get_by_label("The value, as JSON")).to_be_visible()
    problems += _problems(page)
    page.context.close()
    assert not problems


@pytest.mark.parametrize("place", PLACES)
def test_axe_finds_nothing_at_200_percent(browser: Any, agents: Inspector, place: str) -> None:
    size = {"width": 640, "height": 400}  # of a window of 1280 x 800
    page = _open(browser, agents, PLACES[place], viewport=size, device_scale_factor=2)
    problems = _problems(page)
    page.context.close()
    assert not problems


@pytest.mark.parametrize("width", [360, 768, 1024])
@pytest.mark.parametrize("place", PLACES)
def test_nothing_overflows_at_any_width_or_at_twice_the_size(
    browser: Any, agents: Inspector, place: str, width: int
) -> None:
    # 200 % zoom of a page is the page in half of the width.
    page = _open(browser, agents, PLACES[place], viewport={"width": width, "height": 800})
    for pane in ("threads", "history", "detail"):
        page.evaluate("(pane) => { document.body.dataset.pane = pane; }", pane)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), pane
        wide = page.evaluate(
            """() => [...document.querySelectorAll('.view, .rows, .turns, .list, .found')]
              .filter((node) => node.offsetParent && node.scrollWidth > node.clientWidth + 1).map((node) => node.id)"""
        )
        assert not wide, pane
    page.context.close()


def test_with_the_keyboard_alone_a_thread_is_found_read_and_left(browser: Any, agents: Inspector) -> None:
    page = _open(browser, agents, "")
    page.keyboard.press("/")
    page.keyboard.type("redis")
    expect(page.locator(".thread")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#history-head h1")).to_have_text("api/rate-limiter-redis")
    page.keyboard.press("j")
    page.keyboard.press("t")
    expect(page.locator(".turn").first).to_be_visible()
    page.keyboard.press("s")
    page.keyboard.type("memory")
    page.keyboard.press("Enter")
    expect(page.locator("#found li")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator(".message.landed")).to_contain_text("keep it in memory")
    page.context.close()


def test_with_the_keyboard_alone_the_questions_of_a_run_are_answered(browser: Any) -> None:
    with backtrail.open("memory:") as store:
        with pytest.raises(backtrail.Suspended), store.run("pay", task="pay the bill") as run:
            _pay(run)
        with inspector(store) as served:
            page = _open(browser, served, "thread=pay")
            expect(page.locator(".question")).to_contain_text("Pay 42?")
            _tab_to(page, "Your name")
            page.keyboard.type("ada")
            _tab_to(page, "Yes")
            page.keyboard.press("Enter")
            expect(page.locator(".run-status")).to_have_text("ready")
            with pytest.raises(backtrail.Suspended), store.run("pay") as run:
                _pay(run)
            expect(page.locator(".question")).to_contain_text("How much, and how?")
            _tab_to(page, "amount")
            page.keyboard.type("7")
            _tab_to(page, "how")
            page.keyboard.press("ArrowDown")  # from the empty choice: it is not required
            page.keyboard.press("ArrowDown")
            page.keyboard.press("Tab")
            page.keyboard.type("thanks")
            page.keyboard.press("Enter")
            expect(page.locator(".run-status")).to_have_text("ready")
            page.context.close()
        with store.run("pay") as run:
            assert _pay(run) == {"amount": 7, "how": "cash", "note": "thanks"}


def _tab_to(page: Any, name: str) -> None:
    """Press Tab until what has this name is focused."""
    for _ in range(60):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            """() => { const node = document.activeElement;
              return (node.labels?.[0]?.textContent ?? node.textContent ?? '').trim(); }"""
        )
        if focused.startswith(name):
            return
    raise AssertionError(f"the keyboard does not reach {name}")
