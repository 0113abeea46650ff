"""Everything a person can do in the inspector, done in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import backtrail
from fix_inspector import Inspector, inspector

from .conftest import Open

TALK = "team/talk"


def _choose(page: Any, thread: str = TALK) -> None:
    page.locator(f"[data-thread={json.dumps(thread)}]").click()
    expect(page.locator("#history-head h1")).to_have_text(thread)
    expect(page.locator("#checkpoint")).to_be_visible()


def test_a_thread_opens_at_its_head_with_its_conversation(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    expect(page.locator(".thread")).to_have_count(2)
    _choose(page)
    expect(page.locator(".row")).to_have_count(7)
    expect(page.locator(".row[aria-selected=true] .step")).to_have_text("Step 6")
    expect(page.locator(".message")).to_have_count(5)
    expect(page.locator(".message").last).to_contain_text("a token bucket")
    expect(page.locator(".said code")).to_have_text("token")
    expect(page.locator("#live")).to_contain_text("live")


def test_a_link_is_used_up_and_leaves_nothing_in_the_address(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    expect(page.locator(".thread")).to_have_count(2)
    assert page.url == f"{served.url}/"
    page.reload()
    expect(page.locator(".thread")).to_have_count(2)


def test_a_second_tab_of_the_page_has_access(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    expect(page.locator(".thread")).to_have_count(2)
    second = page.context.new_page()
    second.goto(served.url)
    expect(second.locator(".thread")).to_have_count(2)


def test_without_the_token_the_page_says_what_to_do(served: Inspector, open_page: Open) -> None:
    page = open_page(served, link=False)
    expect(page.locator("#banner")).to_contain_text("backtrail ui")
    expect(page.locator(".thread")).to_have_count(0)


def test_keys_step_through_the_history_and_the_views(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    _choose(page)
    page.keyboard.press("j")
    expect(page.locator("#facts .step")).to_have_text("Step 5")
    page.keyboard.press("j")
    expect(page.locator("#facts .badge.old")).to_have_text("left behind")
    page.keyboard.press("G")
    expect(page.locator("#facts .step")).to_have_text("Step 1")
    expect(page.locator(".message")).to_have_count(1)
    page.keyboard.press("g")
    expect(page.locator("#facts .step")).to_have_text("Step 6")
    page.keyboard.press("k")
    expect(page.locator("#facts .step")).to_have_text("Step 6")
    page.keyboard.press("2")
    expect(page.locator(".tree .key").first).to_have_text("messages")
    page.keyboard.press("3")
    expect(page.locator(".change code").first).to_have_text("mode")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("search threads")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_search_by_keyboard_finds_and_opens_a_thread(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    expect(page.locator(".thread")).to_have_count(2)
    page.keyboard.press("/")
    page.keyboard.type("OTH")
    expect(page.locator(".thread")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page.locator("#history-head h1")).to_have_text("other")


def test_a_tool_call_is_folded_and_opens(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    _choose(page)
    call = page.locator(".fold.call")
    expect(call.locator("pre.output")).to_be_hidden()
    call.locator("summary").click()
    expect(call.locator("pre.output")).to_have_text("import this")


def test_any_two_checkpoints_can_be_compared(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    _choose(page)
    page.get_by_role("tab", name="Changes").click()
    expect(page.locator(".changes .change")).to_have_count(1)
    expect(page.locator(".change .old")).to_have_text("plan")
    expect(page.locator(".change .new")).to_have_text("build")
    page.get_by_label("Compare with").fill("start")
    page.get_by_label("Compare with").press("Enter")
    expect(page.locator(".changes .change")).to_have_count(5)
    page.get_by_label("Compare with").fill("no such thing")
    page.locator("#view").get_by_role("button", name="Compare").click()
    expect(page.locator(".hint.bad")).to_contain_text("no such thing")


def test_a_checkpoint_is_labelled_and_forked(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    _choose(page)
    page.get_by_role("button", name="Label").click()
    page.locator("dialog input[name=label]").fill("good one")
    page.locator("dialog input[name=tags]").fill("green fast")
    page.get_by_role("button", name="Save").click()
    expect(page.locator("#facts .label")).to_have_text("good one")
    expect(page.locator(".row .tag").first).to_have_text("green")
    page.keyboard.press("f")
    page.locator("dialog input[name=to]").fill("team/second")
    page.locator("dialog .primary").click()
    expect(page.locator("#history-head h1")).to_have_text("team/second")
    expect(page.locator("#history-head")).to_contain_text("forked from team/talk at 6")
    head = served.store.thread(TALK).head
    assert head is not None
    assert (head.label, head.tags) == ("good one", ("green", "fast"))
    assert served.store.thread("team/second").load() == served.store.thread(TALK).load()


def test_a_thread_with_many_forks_says_how_many_are_not_shown(served: Inspector, open_page: Open) -> None:
    thread = served.store.thread(TALK).fork("team/forked")
    for number in range(105):
        thread.fork(f"team/fork {number:03}")
    thread.update({"note": "the newest of them all"})
    page = open_page(served)
    _choose(page, "team/forked")
    expect(page.locator("#history-head")).to_contain_text("forked from team/talk at ")
    expect(page.locator("#history-head")).to_contain_text("and 5 more forks that are not shown")


def test_a_rewind_says_what_it_leaves_behind_and_can_be_undone(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    _choose(page)
    page.locator(".row").last.click()
    page.get_by_role("button", name="Rewind").click()
    expect(page.get_by_role("dialog")).to_contain_text("5 checkpoints will be left behind")
    page.get_by_role("button", name="Cancel").click()
    assert served.store.thread(TALK).step == 6
    page.get_by_role("button", name="Rewind").click()
    page.locator("dialog .primary").click()
    expect(page.locator("#facts .badge")).to_have_text("head")
    assert served.store.thread(TALK).step == 1
    page.locator("#toasts").get_by_role("button", name="Undo").click()
    expect(page.get_by_role("dialog")).to_contain_text("from step 1 to step 6")
    page.locator("dialog .primary").click()
    expect(page.locator("#facts .step")).to_have_text("Step 6")
    assert served.store.thread(TALK).step == 6


def test_a_running_agent_is_followed_live(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    _choose(page)
    expect(page.locator("#live")).to_contain_text("live")
    served.store.thread(TALK).append("messages", [{"role": "user", "content": "and now by Redis"}])
    expect(page.locator("#facts .step")).to_have_text("Step 7")
    expect(page.locator(".message").last).to_contain_text("and now by Redis")
    page.keyboard.press("j")
    expect(page.locator("#facts .step")).to_have_text("Step 6")
    served.store.thread(TALK).append("messages", [{"role": "assistant", "content": "done"}])
    expect(page.locator(".row")).to_have_count(9)
    expect(page.locator("#facts .step")).to_have_text("Step 6")
    served.store.thread("newcomer").save({})
    expect(page.locator(".thread").first).to_contain_text("newcomer")


def test_hostile_content_is_text_wherever_it_is_shown(served: Inspector, open_page: Open) -> None:
    evil = '<img src=x onerror="window.owned=1"><script>window.owned=1</script>'
    thread = served.store.thread(f"evil {evil}")
    thread.save(
        {"messages": [{"role": evil, "content": evil}], evil: evil, "deep": {evil: [evil]}}, label=evil, tags=[evil]
    )
    thread.append("messages", [{"role": "user", "content": f"```html\n{evil}\n```"}], custom={evil: evil})
    page = open_page(served)
    _choose(page, thread.id)
    expect(page.locator(".message").first).to_contain_text(evil)
    for key in ("2", "3"):
        page.keyboard.press(key)
        expect(page.locator("#view")).to_contain_text("onerror")
    page.keyboard.press("G")
    page.keyboard.press("l")
    page.keyboard.press("Escape")
    page.keyboard.press("r")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert page.evaluate("window.owned") is None
    assert page.locator("img[src=x], #view script, main script").count() == 0


def test_the_content_security_policy_stops_injected_scripts_and_markup(served: Inspector, open_page: Open) -> None:
    page = open_page(served)
    expect(page.locator(".thread")).to_have_count(2)
    ran = page.evaluate(
        """() => {
          const script = document.createElement('script');
          try { script.textContent = 'window.owned = 1'; } catch { return 'refused'; }
          document.body.append(script);
          return window.owned ?? null;
        }"""
    )
    assert ran in (None, "refused")
    assert (
        page.evaluate("() => { try { document.body.innerHTML = '<p>x'; return 'set'; } catch { return 'refused'; } }")
        == "refused"
    )


def test_a_long_history_and_a_large_state_are_loaded_in_pages(open_page: Open) -> None:
    with backtrail.open("memory:") as store:
        thread: backtrail.Thread[Any] = store.thread("long")
        thread.save({"notes": {f"key {i}": "n" * 4000 for i in range(2500)}, "messages": []})
        for i in range(9_999):
            thread.append("messages", [{"role": "user", "content": f"message {i}"}])
        sizes: list[int] = []
        with inspector(store) as served:
            page = open_page(served)
            page.on("response", lambda response: sizes.append(int(response.headers.get("content-length", 0))))
            _choose(page, "long")
            expect(page.locator(".message")).to_have_count(50)
            page.locator("#view").evaluate("node => { node.scrollTop = 0; }")
            expect(page.locator(".message")).to_have_count(100)
            assert page.locator(".row").count() < 60
            page.locator("#rows").evaluate("node => { node.scrollTop = node.scrollHeight / 2; }")
            expect(page.locator(".row .step").first).to_have_text(re.compile(r"^Step [45]\d{3}$"))
            assert page.locator(".row").count() < 60
            page.keyboard.press("G")
            expect(page.locator("#facts .step")).to_have_text("Step 1")
            page.keyboard.press("2")
            page.locator(".tree summary", has_text="notes").click()
            expect(page.locator(".tree details[open] li")).to_have_count(101)
            expect(page.locator(".tree .more")).to_contain_text("2,400 more")
    assert max(sizes) < 1_000_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_one_pane_is_shown_at_a_time_and_nothing_overflows(
    served: Inspector, open_page: Open, scheme: str
) -> None:
    page = open_page(served, width=360, height=740, scheme=scheme)
    page.locator(".thread", has_text="talk").click()
    expect(page.locator("#rows")).to_be_visible()
    expect(page.locator("#threads")).to_be_hidden()
    page.locator(".row").nth(1).click()
    expect(page.locator("#view")).to_be_visible()
    expect(page.locator("#history")).to_be_hidden()
    for tab in ("State", "Changes", "Conversation"):
        page.get_by_role("tab", name=tab).click()
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        assert page.locator("#view").evaluate("node => node.scrollWidth <= node.clientWidth")
    page.get_by_role("button", name="Back").click()
    page.get_by_role("button", name="Back").click()
    expect(page.locator("#threads")).to_be_visible()


def test_read_only_offers_nothing_that_changes(open_page: Open) -> None:
    with backtrail.open("memory:") as store:
        store.thread("t").save({"messages": []})
        store.thread("t").append("messages", [{"role": "user", "content": "x"}])
        with inspector(store, read_only=True) as served:
            page = open_page(served)
            _choose(page, "t")
            expect(page.locator("#store")).to_contain_text("read-only")
            for name in ("Label", "Fork", "Rewind"):
                expect(page.get_by_role("button", name=name)).to_be_disabled()
            page.keyboard.press("f")
            expect(page.get_by_role("dialog")).to_have_count(0)
            expect(page.get_by_role("button", name="Export")).to_be_enabled()


def test_a_checkpoint_is_downloaded(served: Inspector, open_page: Open, tmp_path: Path) -> None:
    page = open_page(served)
    _choose(page)
    page.keyboard.press("e")
    page.get_by_label("The conversation to read").check()
    with page.expect_download() as download:
        page.locator("dialog .primary").click()
    assert download.value.suggested_filename == "team-talk-6.md"
    download.value.save_as(tmp_path / "talk.md")
    assert "build a rate limiter" in (tmp_path / "talk.md").read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_works_for_screen_readers_and_has_enough_contrast(
    served: Inspector, open_page: Open, scheme: str
) -> None:
    page = open_page(served, scheme=scheme)
    _choose(page)
    for role, name in (
        ("navigation", "Threads"),
        ("region", "History"),
        ("grid", "Checkpoints"),
        ("tablist", "Views"),
    ):
        expect(page.get_by_role(role, name=name)).to_be_visible()
    expect(page.get_by_role("row", name="Step 6 the head")).to_have_attribute("aria-selected", "true")
    active = page.locator("#rows").get_attribute("aria-activedescendant")
    expect(page.locator(f"#{active}")).to_have_attribute("aria-rowindex", "1")
    nameless = page.locator("button:visible, input:visible").evaluate_all(
        "nodes => nodes.filter(n => !(n.textContent.trim() || n.ariaLabel || n.labels?.length)).length"
    )
    assert nameless == 0
    weak = page.evaluate(_CONTRAST)
    assert not weak


_CONTRAST = """() => {
  const css = getComputedStyle(document.documentElement);
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const light = (name) => {
    canvas.fillStyle = css.getPropertyValue(name); canvas.fillRect(0, 0, 1, 1);
    const linear = (v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((v) => linear(v / 255));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const weak = [];
  for (const ink of ['--ink', '--soft', '--faint', '--blue', '--green', '--violet', '--amber', '--thread-ink']) {
    for (const paper of ['--paper', '--panel', '--raised', '--wash']) {
      const [a, b] = [light(ink), light(paper)].sort((x, y) => y - x);
      const ratio = (a + .05) / (b + .05);
      if (ratio < 4.5) weak.push(`${ink} on ${paper}: ${ratio.toFixed(2)}`);
    }
  }
  return weak;
}"""
