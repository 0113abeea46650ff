"""Makes the pictures of the docs from the demo store: docs/log.svg and docs/inspector*.png.

python scripts/pictures.py

Needs `backtrail[ui]`, playwright and a Chromium (`make browser`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo_store import build
from playwright.sync_api import Browser, sync_playwright
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

DOCS = Path(__file__).parents[1] / "docs"
THREAD = "api/rate-limiter"
COLUMNS = 118


def log_svg(store: Path) -> None:
    """`backtrail log`, as a terminal shows it."""
    command = ["log", THREAD]
    environment = os.environ | {
        "FORCE_COLOR": "1",
        "TERM": "xterm-256color",
        "COLUMNS": str(COLUMNS),
        "BACKTRAIL_STORE": str(store),
        "BACKTRAIL_PAGER": "off",
    }
    ran = subprocess.run(
        [sys.executable, "-m", "backtrail.cli", *command], env=environment, capture_output=True, text=True, check=True
    )
    out = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115, PTH123
    out.print(Text("$ ", "green").append(f"backtrail {' '.join(command)}", "bold"))
    out.print(Text.from_ansi(ran.stdout.rstrip()), no_wrap=True, crop=True)
    # Without rich's web fonts: the picture must not load anything, and the reader's machine has a monospace font.
    form = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    (DOCS / "log.svg").write_text(out.export_svg(title="backtrail", code_format=form, unique_id="backtrail-log"))


@contextmanager
def running_inspector(store: Path) -> Iterator[dict[str, str]]:
    """Run `backtrail ui` on a free port; gives what it prints: its URL and the token."""
    command = [sys.executable, "-m", "backtrail.cli", "ui", "--store", store.name, "--port", "0", "--json"]
    with subprocess.Popen(command, cwd=store.parent, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["data"]
        finally:
            process.terminate()


def inspector_png(
    browser: Browser, served: dict[str, str], name: str, *, width: int, height: int, scheme: str, pane: str
) -> None:
    """Save one picture of the inspector."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        device_scale_factor=2,
    )
    page = context.new_page()
    # The link opens one page: the others get the token from here.
    page.add_init_script(f"sessionStorage.setItem('backtrail-token', {json.dumps(served['token'])})")
    page.goto(served["url"].partition("#")[0])
    page.locator(f'[data-thread="{THREAD}"]').click()
    page.locator(".row").first.wait_for()
    if pane == "detail":
        page.locator(".row").first.click()
    page.locator("#live[data-state=live]").wait_for()
    page.locator(".message").first.wait_for(state="attached")
    page.locator("#rows").focus()
    page.mouse.move(0, 0)  # nothing is hovered in the picture
    page.wait_for_timeout(400)  # until the scroll bars have faded
    page.screenshot(path=DOCS / name)
    context.close()


def main() -> None:
    """Make all pictures."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "agents.db"
        build(str(store))
        log_svg(store)
        with sync_playwright() as playwright, running_inspector(store) as served:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            inspector_png(browser, served, "inspector.png", width=1440, height=860, scheme="light", pane="detail")
            inspector_png(browser, served, "inspector-dark.png", width=1440, height=860, scheme="dark", pane="detail")
            inspector_png(browser, served, "inspector-phone.png", width=390, height=780, scheme="dark", pane="history")
            browser.close()


if __name__ == "__main__":
    main()
