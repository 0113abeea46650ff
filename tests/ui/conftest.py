"""The inspector in a real Chromium. `make test` installs one if possible; without one these tests are left out, and the
end of the report mentions it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import backtrail
from fix_inspector import Inspector, inspector

CHROMIUM = os.environ.get("BACKTRAIL_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
PICTURES = Path(__file__).parents[2] / "build" / "inspector"
AXE = Path(__file__).parents[2] / "build" / "axe" / "axe.min.js"  # `make axe` fetches it
collect_ignore_glob = ["test_*.py"] if not CHROMIUM else [] if AXE.exists() else ["test_accessibility.py"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not CHROMIUM:
        terminalreporter.write_line("tests/ui were left out: no Chromium here (apt-get install chromium)", yellow=True)
    elif not AXE.exists():
        terminalreporter.write_line("tests/ui/test_accessibility.py was left out: no axe here (make axe)", yellow=True)


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """One browser for all of these tests, but not for the whole session: its event loop would disturb other tests."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=30_000)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def served() -> Iterator[Inspector]:
    """An inspector of a store in memory with two threads."""
    with backtrail.open("memory:") as store:
        store.thread("other").save({"messages": [{"role": "user", "content": "something else"}]})
        talk: backtrail.Thread[Any] = store.thread("team/talk")
        talk.save({"messages": [{"role": "system", "content": "be careful"}], "mode": "plan"}, label="start")
        talk.append("messages", [{"role": "user", "content": "build a rate limiter"}])
        call = {"id": "1", "function": {"name": "read_file", "arguments": '{"path": "app.py"}'}}
        talk.append("messages", [{"role": "assistant", "content": "", "tool_calls": [call]}])
        talk.append("messages", [{"role": "tool", "tool_call_id": "1", "name": "read_file", "content": "import this"}])
        talk.append("messages", [{"role": "assistant", "content": "a fixed window"}], tags=["bad"])
        talk.rewind(4)
        talk.append("messages", [{"role": "assistant", "content": "a `token` bucket"}])
        talk.update({"mode": "build"})
        with inspector(store) as running:
            yield running


Open = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens a page on an inspector; an error in its scripts fails the test, and a picture of its end is kept."""
    contexts: list[Any] = []
    errors: list[str] = []

    def open_(
        served: Inspector, *, width: int = 1600, height: int = 900, scheme: str = "light", link: bool = True
    ) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        context.set_default_timeout(30_000)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", lambda dialog: errors.append(f"dialog: {dialog.message}") or dialog.dismiss())
        page.goto(served.link() if link else served.url)
        return page

    yield open_
    PICTURES.mkdir(parents=True, exist_ok=True)
    for number, context in enumerate(contexts):
        context.pages[0].screenshot(path=PICTURES / f"{request.node.name}-{number}.png")
        context.close()
    assert not errors
