"""Measures the inspector in a real Chromium: a long thread, an hour of live events, a large state, many threads.

    python -m bench.inspector [--steps 10000] [--events 3600] [--threads 100000 1000000] [--stores DIRECTORY]

Times are taken in the browser, from the click or the link to what a reader waits for. While lists scroll, the longest
gap between two frames is taken as well: that is a stutter. Needs `backtrail[ui]`, playwright and a Chromium. Prints a
table and the load of the machine; nothing is written. `--stores` keeps the stores, and uses those that are there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the tests' way to run a server

import backtrail
from fix_inspector import Inspector, inspector

_CHROMIUM = os.environ.get("BACKTRAIL_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
_ROUNDS = 5
_PER_SECOND = 20  # live events: an hour of one a second is played in three minutes
_FRAMES = """() => { window.gap = 0; let last = performance.now();
  const frame = (now) => { window.gap = Math.max(window.gap, now - last); last = now; requestAnimationFrame(frame); };
  requestAnimationFrame(frame); }"""


def main() -> None:
    """Measure everything, on SQLite stores."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--events", type=int, default=3_600)
    parser.add_argument("--threads", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--stores", type=Path)
    given = parser.parse_args()
    _print(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        folder = given.stores or Path(directory)
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        with _served(folder / f"steps-{given.steps}.db", lambda store: _long_thread(store, given.steps)) as served:
            _measure_thread(browser, served)
            _measure_hour(browser, served, given.events)
        with _served(folder / "state.db", _large_states) as served:
            _measure_states(browser, served)
        for count in given.threads:
            with _served(folder / f"threads-{count}.db", lambda store, n=count: _many_threads(store, n)) as served:
                _measure_threads(browser, served, count)
        browser.close()
    _print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")


@contextmanager
def _served(path: Path, fill: Callable[[backtrail.Store], None]) -> Iterator[Inspector]:
    """An inspector of a store, which is made unless it is there."""
    there = path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with backtrail.open(path, durability="normal") as store:
        if not there:
            fill(store)
        with inspector(store) as served:
            yield served


# -- stores ------------------------------------------------------------------------------------------------------------


def _long_thread(store: backtrail.Store, steps: int) -> None:
    thread: backtrail.Thread[Any] = store.thread("long")
    for number in range(steps):
        thread.append("messages", [_message(number)], label="release" if number == steps // 2 else None)


def _message(number: int) -> dict[str, Any]:
    """Prompts, tool calls, results, of which one in a thousand failed, and answers with Markdown."""
    if number % 8 == 0:
        return {"role": "user", "content": f"prompt {number}: " + "some words of it " * 20}
    if number % 8 in (2, 4):
        use = {"type": "tool_use", "id": f"c{number}", "name": "bash", "input": {"command": f"make test-{number}"}}
        return {"role": "assistant", "content": [use]}
    if number % 8 in (3, 5):
        result = {"type": "tool_result", "tool_use_id": f"c{number - 1}", "content": "a line of output\n" * 30}
        return {"role": "user", "content": [result | {"is_error": number % 1000 == 3}]}
    code = "```python\ndef limit(rate: int) -> bool:\n    return rate > 10\n```"
    return {"role": "assistant", "content": f"message {number}: **done**, see `app.py`\n\n{code}\n\n- one\n- two\n"}


def _large_states(store: backtrail.Store) -> None:
    store.thread("wide").save({"notes": {f"key {n:06}": {"n": n, "text": "x" * 20} for n in range(100_000)}})
    large = {
        "messages": [{"role": "user", "content": "look at the state"}],
        "text": "a line of a long report\n" * 125_000,
        "numbers": list(range(500_000)),
        "files": {f"src/module_{n}.py": "def f():\n    return 1\n" * 20 for n in range(10_000)},
    }
    store.thread("large").save(large)


def _many_threads(store: backtrail.Store, count: int) -> None:
    for number in range(count):
        store.thread(f"agents/{number:07}").save({"messages": [{"role": "user", "content": f"task {number}"}]})


# -- what is measured --------------------------------------------------------------------------------------------------


def _measure_thread(browser: Any, served: Inspector) -> None:
    thread: backtrail.Thread[Any] = served.store.thread("long")
    steps = thread.step
    _print(f"a thread of {steps:,} steps")
    paints = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        page = _open(browser, served, "thread=long")
        page.locator(".message").last.wait_for()
        paints.append(time.perf_counter() - began)
        page.context.close()
    _print("  first useful paint (the newest message), from the link on", paints)
    page = _open(browser, served, "thread=long")
    page.locator(".message").last.wait_for()
    changes = []
    for key in ["j"] * 8 + ["G", "g"]:
        shown = page.locator("#facts .step").inner_text()
        began = time.perf_counter()
        page.keyboard.press(key)
        page.wait_for_selector(f"#facts .step:not(:text-is('{shown}'))")
        changes.append(time.perf_counter() - began)
    _print("  another step, also the oldest", changes)
    page.keyboard.press("g")
    arrivals = []
    for number in range(_ROUNDS):
        began = time.perf_counter()
        thread.append("messages", [{"role": "assistant", "content": f"event {number}"}])
        page.get_by_text(f"event {number}", exact=True).last.wait_for()
        arrivals.append(time.perf_counter() - began)
    _print("  a live event, from the save to the page (the server polls twice a second)", arrivals)
    _print("  scrolling the steps", [], _scrolled(page, "#rows"))
    for what, fragment, done in (
        ("the newest steps that a filter by tool keeps", "tool=bash", "#kept .row"),
        ("all steps that failed, of all", "failed=1", "#kept-note:has-text('steps of')"),
        ("the turns, all of them", "list=turns", ".turn"),
    ):
        began = time.perf_counter()
        page.evaluate("(place) => { location.hash = place; }", f"thread=long&{fragment}")
        page.locator(done).first.wait_for()
        _print(f"  {what}", [time.perf_counter() - began])
    page.context.close()


def _measure_hour(browser: Any, served: Inspector, events: int) -> None:
    thread: backtrail.Thread[Any] = served.store.thread("long")
    page = _open(browser, served, "thread=long")
    page.locator(".message").last.wait_for()
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    before = _memory(session)
    _print(f"{events:,} live events, {_PER_SECOND} a second, while the page follows them")
    _print(f"  before: {before}")
    page.evaluate(_FRAMES)
    began = time.perf_counter()
    for number in range(events):
        thread.append("messages", [_message(number)])
        pause = began + (number + 1) / _PER_SECOND - time.perf_counter()
        if pause > 0:
            page.wait_for_timeout(1000 * pause)
        if (number + 1) % max(1, events // 3) == 0:
            _print(f"  after {number + 1:,}: {_memory(session)}")
    page.wait_for_timeout(3000)
    _print(f"  at the end: {_memory(session)}; longest gap between frames {page.evaluate('window.gap'):,.0f} ms")
    page.context.close()


def _measure_states(browser: Any, served: Inspector) -> None:
    size = served.store.threads("large", limit=1)[0].size
    _print(f"a state of {size / 1e6:.1f} MB")
    page = _open(browser, served, "thread=large&view=state")
    _timed("  its tree, from the link on", page, lambda: None, ".tree .key")
    for key, shown in (("numbers", ".key.index"), ("files", ".key:text-is('src/module_0.py')"), ("text", ".v.str")):
        opened = page.locator(f".tree > li:has(> details > summary > .key:text-is('{key}'))")
        _timed(f"  {key} opened", page, opened.locator("summary").first.click, shown)
    page.context.close()
    _print("a dict of 100,000 keys")
    page = _open(browser, served, "thread=wide&view=state")
    page.locator(".tree .key").first.wait_for()
    opened = page.locator(".tree summary").first
    _timed("  opened, the first hundred", page, opened.click, ".key:text-is('key 000099')")
    _timed("  the next hundred", page, page.locator(".tree .more").click, ".key:text-is('key 000199')")
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
    _print("  the list, from the link on", paints)
    page = _open(browser, served, "")
    page.locator(".thread").first.wait_for()
    page.evaluate(_FRAMES)
    scrolls = []
    for _ in range(20):
        began = time.perf_counter()
        height = page.locator("#thread-list").evaluate(
            "node => { const height = node.scrollHeight; node.scrollTop = height; return height; }"
        )
        page.wait_for_function("(height) => document.getElementById('thread-list').scrollHeight > height", arg=height)
        scrolls.append(time.perf_counter() - began)
    _print("  a further page of the list", scrolls, page.evaluate("window.gap"))
    for what, typed, found in (
        ("a filter by name, of a new thread", f"{count - 50:07}", f"agents/{count - 50:07}"),
        ("a filter by name, of the oldest: all are looked at", f"{1:07}", f"agents/{1:07}"),
        ("a filter by the beginning of the name", "prefix:agents/00000", None),
        ("a filter by date", "since:2020-01-01", None),
    ):
        page.get_by_label("Search threads").fill("no such name")
        page.locator(".list .none").wait_for()
        page.evaluate("window.gap = 0")
        began = time.perf_counter()
        page.get_by_label("Search threads").fill(typed)
        page.locator(f'[data-thread="{found}"]' if found else ".thread").first.wait_for(timeout=300_000)
        _print(f"  {what}", [time.perf_counter() - began], page.evaluate("window.gap"))
    page.get_by_label("Search threads").fill("")
    page.locator(f'[data-thread="agents/{count - 1:07}"]').wait_for(state="attached")
    arrivals = []
    for number in range(_ROUNDS):
        began = time.perf_counter()
        served.store.thread(f"new/{time.time_ns()}-{number}").save({"messages": [{"role": "user", "content": "new"}]})
        page.locator(".thread", has_text=f"-{number}").first.wait_for()
        arrivals.append(time.perf_counter() - began)
    _print("  a new thread, from the save to the list (the server polls twice a second)", arrivals)
    polls = []
    for _ in range(20):
        began = time.perf_counter()
        served.store.threads(limit=100, newest_first=True)
        polls.append(time.perf_counter() - began)
    _print("  the newest hundred, as the server polls them", polls)
    page.context.close()


# -- how it is measured ------------------------------------------------------------------------------------------------


def _open(browser: Any, served: Inspector, fragment: str) -> Any:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(120_000)
    page = context.new_page()
    page.goto(f"{served.link()}&{fragment}")
    return page


def _timed(what: str, page: Any, act: Callable[[], object], shown: str) -> None:
    began = time.perf_counter()
    act()
    page.locator(shown).first.wait_for()
    _print(what, [time.perf_counter() - began])


def _scrolled(page: Any, box: str) -> float:
    """The longest gap between two frames while a list is scrolled through in a hundred strides."""
    page.evaluate(_FRAMES)
    for number in range(100):
        page.locator(box).evaluate("(node, at) => { node.scrollTop = node.scrollHeight * at; }", number / 100)
        page.wait_for_timeout(30)
    return float(page.evaluate("window.gap"))


def _memory(session: Any) -> str:
    """What the page's scripts hold once garbage was collected, and its elements and listeners."""
    session.send("HeapProfiler.collectGarbage")
    used = session.send("Runtime.getHeapUsage")["usedSize"]
    found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return f"{used / 1e6:.1f} MB, {found['Nodes']:,.0f} nodes, {found['JSEventListeners']:,.0f} listeners"


def _print(what: str, seconds: list[float] | None = None, gap: float | None = None) -> None:
    figures = []
    if seconds:
        most = f" (at most {max(seconds) * 1000:,.0f})" if len(seconds) > 1 else ""
        figures.append(f"{statistics.median(seconds) * 1000:,.0f} ms{most}")
    if gap is not None:
        figures.append(f"longest gap between frames {gap:,.0f} ms")
    sys.stdout.write(f"{what}{': ' if figures else ''}{', '.join(figures)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
