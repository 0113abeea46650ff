"""Measures the inspector in a real Chromium: first useful paint, another step, a live event, memory, many threads.

    python -m bench.inspector [--steps 10000] [--threads 100000] [--events 2000]

Needs `backtrail[ui]`, playwright and a Chromium. Prints a table; nothing is written.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the tests' way to run a server

import backtrail
from fix_inspector import Inspector, inspector

_CHROMIUM = os.environ.get("BACKTRAIL_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
_ROUNDS = 5


def main() -> None:
    """Measure everything, on a SQLite store in a temporary directory."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=100_000)
    parser.add_argument("--events", type=int, default=2_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        with backtrail.open(Path(directory) / "steps.db", durability="normal") as store:
            thread: backtrail.Thread[Any] = store.thread("long")
            for number in range(given.steps):
                role = "user" if number % 6 == 0 else "assistant"
                thread.append("messages", [{"role": role, "content": f"message {number}: " + "some words of it " * 20}])
            with inspector(store) as served:
                _measure_thread(browser, served, given.events)
        with backtrail.open(Path(directory) / "threads.db", durability="normal") as store:
            for number in range(given.threads):
                store.thread(f"agents/{number:07}").save({"messages": [{"role": "user", "content": f"task {number}"}]})
            with inspector(store) as served:
                _measure_threads(browser, served, given.threads)
        browser.close()


def _open(browser: Any, served: Inspector, fragment: str) -> Any:
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.goto(f"{served.link()}&{fragment}")
    return page


def _measure_thread(browser: Any, served: Inspector, events: int) -> None:
    thread: backtrail.Thread[Any] = served.store.thread("long")
    _print(f"a thread of {thread.step:,} steps")
    paints = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        page = _open(browser, served, "thread=long")
        page.locator(".message").last.wait_for()
        paints.append(time.perf_counter() - began)
        page.context.close()
    _print("  first useful paint (the newest message), from the link on", *paints)
    page = _open(browser, served, "thread=long")
    page.locator(".message").last.wait_for()
    changes = []
    for key in ["j"] * 8 + ["G", "g"]:
        shown = page.locator("#facts .step").inner_text()
        began = time.perf_counter()
        page.keyboard.press(key)
        page.wait_for_selector(f"#facts .step:not(:text-is('{shown}'))")
        changes.append(time.perf_counter() - began)
    _print("  another step, also the oldest", *changes)
    page.keyboard.press("g")
    arrivals = []
    for number in range(_ROUNDS):
        began = time.perf_counter()
        thread.append("messages", [{"role": "assistant", "content": f"event {number}"}])
        page.get_by_text(f"event {number}", exact=True).last.wait_for()
        arrivals.append(time.perf_counter() - began)
    _print("  a live event, from the save to the page (the server polls twice a second)", *arrivals)
    session = page.context.new_cdp_session(page)
    before = _heap(session)
    for number in range(events):
        thread.append("messages", [{"role": "assistant", "content": f"much more {number} " + "words " * 50}])
        time.sleep(0.002)
    page.wait_for_timeout(3000)
    after = _heap(session)
    nodes = page.evaluate("document.querySelectorAll('*').length")
    _print(f"  memory after {events:,} live events: {before / 1e6:.1f} MB -> {after / 1e6:.1f} MB, {nodes:,} elements")
    page.context.close()


def _measure_threads(browser: Any, served: Inspector, count: int) -> None:
    _print(f"a store of {count:,} threads")
    paints = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        page = _open(browser, served, "")
        page.locator(".thread").first.wait_for()
        paints.append(time.perf_counter() - began)
        page.context.close()
    _print("  the list, from the link on", *paints)
    page = _open(browser, served, "")
    page.locator(".thread").first.wait_for()
    scrolls = []
    for number in range(20):
        began = time.perf_counter()
        page.locator("#thread-list").evaluate("node => { node.scrollTop = node.scrollHeight; }")
        wanted = f"agents/{count - 1 - 100 * (number + 1):07}"
        page.locator(f'[data-thread="{wanted}"]').wait_for(state="attached")
        scrolls.append(time.perf_counter() - began)
    _print("  a further page of the list", *scrolls)
    polls = []
    for _ in range(20):
        began = time.perf_counter()
        served.store.threads(limit=100, newest_first=True)
        polls.append(time.perf_counter() - began)
    _print("  the newest hundred, as the server polls them", *polls)
    page.context.close()


def _heap(session: Any) -> float:
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"])


def _print(what: str, *seconds: float) -> None:
    figures = f": {statistics.median(seconds) * 1000:,.0f} ms (at most {max(seconds) * 1000:,.0f})" if seconds else ""
    sys.stdout.write(f"{what}{figures}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
