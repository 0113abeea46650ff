"""A live agent, seen in the other tabs: what is open stays open, what was typed is there, and nothing jumps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import backtrail
from fix_inspector import Inspector, inspector

from .conftest import Open
from .test_addresses import _choose


def _top(page: Any) -> float:
    return float(page.locator("#view").evaluate("node => node.scrollTop"))


def test_the_tree_of_the_state_stays_open_and_in_place(served: Inspector, open_page: Open) -> None:
    thread: backtrail.Thread[Any] = served.store.thread("live")
    plan = {f"task {i}": {"words": "w" * 3000, "done": [False, {"by": "x" * 3000}]} for i in range(150)}
    thread.save({"messages": [{"role": "user", "content": "go"}], "plan": plan, "count": 0})
    page = open_page(served)
    _choose(page, "live")
    page.get_by_role("tab", name="State").click()
    tree = page.locator(".tree").first
    tree.get_by_text("plan", exact=True).click()
    page.get_by_role("button", name="50 more").click()
    expect(tree.get_by_text("task 149", exact=True)).to_be_visible()
    task = tree.locator("details", has=page.get_by_text("task 120", exact=True)).last
    task.locator("summary").first.click()
    task.get_by_text("done", exact=True).click()
    expect(task.locator(".key.index").first).to_be_visible()
    page.locator("#view").evaluate("node => { node.scrollTop = node.scrollHeight / 2; }")
    before = _top(page)
    plan["task 120"]["done"][0] = True
    thread.update({"plan": plan, "count": 1})
    expect(page.locator("#facts .step")).to_have_text("Step 2")
    expect(task).to_contain_text("true")
    expect(tree.get_by_text("task 149", exact=True)).to_be_visible()
    assert before > 1000
    assert _top(page) == before


def _look_and_ask(run: backtrail.Run) -> None:
    run.step("look", lambda: {"sum": 42})
    run.ask("what?", "What?", {"type": "string"})


def test_an_answer_that_is_being_typed_stays_while_the_run_goes_on(open_page: Open) -> None:
    with backtrail.open("memory:") as store:
        with pytest.raises(backtrail.Suspended), store.run("fill") as run:
            _look_and_ask(run)
        with inspector(store) as served:
            page = open_page(served)
            _choose(page, "fill")
            page.locator(".timeline summary").click()
            expect(page.locator(".timeline pre")).to_contain_text("42")
            field = page.get_by_label("Answer")
            field.fill("half an ans")
            store.thread("fill").annotate("@", label="looked at")
            expect(page.locator("#facts .label")).to_have_text("looked at")
            step = store.thread("fill").update({"note": "from elsewhere"}).step
            expect(page.locator("#facts .step")).to_have_text(f"Step {step}")
            expect(field).to_be_focused()
            page.keyboard.type("wer")
            expect(field).to_have_value("half an answer")
            expect(page.locator(".timeline pre")).to_be_visible()


def test_files_stay_open_and_a_file_has_a_link(tmp_path: Path, open_page: Open) -> None:
    root = tmp_path / "project"
    (root / "src" / "deep").mkdir(parents=True)
    for number in range(40):
        (root / "src" / "deep" / f"module_{number:02}.py").write_text(f"NUMBER = {number}\n")
    with backtrail.open(tmp_path / "s.db") as store:
        workspace = store.workspace(root)
        thread: backtrail.Thread[Any] = store.thread("t")
        thread.save({"messages": [{"role": "user", "content": "one"}]}, files=workspace)
        with inspector(store) as served:
            page = open_page(served)
            _choose(page, "t")
            page.get_by_role("tab", name="Files").click()
            page.get_by_text("All files of this snapshot").click()
            for name in ("src/", "deep/", "module_39.py"):
                page.locator(".tree.files").get_by_text(name).click()
            code = page.locator(".tree.files pre.code")
            expect(code).to_have_text("NUMBER = 39\n")
            (root / "src" / "deep" / "module_39.py").write_text("NUMBER = 40\n")
            thread.append("messages", [{"role": "assistant", "content": "two"}], files=workspace)
            expect(page.locator("#facts .step")).to_have_text("Step 2")
            expect(code).to_have_text("NUMBER = 40\n")
            page.reload()
            expect(code).to_have_text("NUMBER = 40\n")
            expect(code).to_be_in_viewport()
            assert page.evaluate("new URLSearchParams(location.hash.slice(1)).get('path')") == "src/deep/module_39.py"
            page.evaluate("location.hash = '#thread=t&view=files&path=src/gone.py'")
            expect(page.locator(".hint", has_text="there is no src/gone.py")).to_be_visible()


def test_a_search_in_all_threads_is_not_covered_by_a_live_thread(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    _choose(page)
    page.get_by_role("tab", name="State").click()
    page.locator("#search").fill("text:limiter")
    expect(page.locator("#page .results li").first).to_be_visible()
    served.store.thread("team/talk").append("messages", [{"role": "user", "content": "and more"}])
    expect(page.locator("#history-head")).to_contain_text("8 checkpoints", use_inner_text=False)
    page.wait_for_timeout(500)
    expect(page.locator("#page")).to_be_visible()
    expect(page.locator("#checkpoint")).to_be_hidden()


def test_a_reader_far_up_is_left_there(served: Inspector, open_page: Open) -> None:
    thread: backtrail.Thread[Any] = served.store.thread("long")
    thread.save({"messages": [{"role": "user", "content": f"message {i}"} for i in range(1000)]})
    page = open_page(served)
    _choose(page, "long")
    page.evaluate("location.hash = '#thread=long&message=300'")
    expect(page.locator("#message-300")).to_be_in_viewport()
    before = _top(page)
    thread.append("messages", [{"role": "assistant", "content": "the news"}])
    expect(page.locator(".pill")).to_have_text("1 new ↓")
    thread.append("messages", [{"role": "assistant", "content": f"more news {i}"} for i in range(300)])
    expect(page.locator(".pill")).to_have_text("301 new ↓")
    expect(page.locator("#message-300")).to_be_in_viewport()
    assert _top(page) == before
    page.locator(".pill").click()
    expect(page.locator(".message").last).to_contain_text("more news 299")
    expect(page.locator(".message").last).to_be_in_viewport()
