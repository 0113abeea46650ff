"""What a conversation looks like: prose, code, tables, images, tools with their results, whoever wrote the messages."""

from __future__ import annotations

import base64
import contextlib
import sqlite3
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Error, Page, expect

import backtrail
from fix_inspector import Inspector, inspector

from .conftest import Open
from .test_addresses import _choose


def _png(width: int, height: int) -> bytes:
    rows = b"".join(b"\0" + bytes(3 * width) for _ in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


PICTURE = base64.b64encode(_png(20, 10)).decode()
IMAGES = {
    "anthropic": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
    "openai": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
    "responses": {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"},
    "gemini": {"inline_data": {"mime_type": "image/png", "data": PICTURE}},
    "langchain": {"type": "image", "source_type": "base64", "mime_type": "image/png", "data": PICTURE},
    "vercel": {"type": "image", "image": PICTURE, "mediaType": "image/png"},
}
CALLS: dict[str, list[Any]] = {
    "openai": [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"path": "a.py"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "what it saw"},
    ],
    "responses": [
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": '{"path": "a.py"}'},
        {"type": "function_call_output", "call_id": "1", "output": "what it saw"},
    ],
    "anthropic": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "look", "input": {"path": "a.py"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "what it saw"}]},
    ],
    "gemini": [
        {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {"path": "a.py"}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"output": "what it saw"}}}]},
    ],
    "langchain": [
        {"type": "ai", "data": {"content": "", "tool_calls": [{"id": "1", "name": "look", "args": {"path": "a.py"}}]}},
        {"type": "tool", "data": {"content": "what it saw", "tool_call_id": "1"}},
    ],
    "claude code": [
        {
            "type": "assistant",
            "uuid": "a",
            "message": {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "1", "name": "look", "input": {"path": "a.py"}}],
            },
        },
        {
            "type": "user",
            "uuid": "b",
            "message": {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "1", "content": "what it saw"}],
            },
        },
    ],
}


def _show(served: Inspector, open_page: Open, *messages: Any) -> Any:
    served.store.thread("shown").save({"messages": list(messages)})
    page = open_page(served)
    _choose(page, "shown")
    expect(page.locator(".message").first).to_be_attached()
    return page


def test_markdown_becomes_elements(served: Inspector, open_page: Open) -> None:
    text = (
        "## Plan\n\nfirst *this*, then **that** with `code`\n\n1. one\n2. two\n\n- [x] done\n\n> quoted\n\n"
        "| a | b |\n| --- | ---: |\n| 1 | 2 |\n\n```python\ndef f():\n    return 'x'\n```\n\n[docs](https://example.com)"
    )
    page = _show(served, open_page, {"role": "assistant", "content": text})
    said = page.locator(".said")
    for selector in ("h4", "em", "strong", "ol li", "blockquote", "table td.right", ".tasks", "p code"):
        expect(said.locator(selector).first).to_be_visible()
    expect(said.locator("pre .t-keyword").first).to_have_text("def")
    expect(said.locator("a")).to_have_attribute("rel", "noopener noreferrer")


def test_a_diff_is_shown_in_colours(served: Inspector, open_page: Open) -> None:
    text = "```diff\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-old = 1\n+new = 1\n```"
    page = _show(served, open_page, {"role": "assistant", "content": text})
    expect(page.locator(".lines ins")).to_have_text("+new = 1")
    expect(page.locator(".lines del")).to_have_text("-old = 1")


@pytest.mark.parametrize("shape", CALLS)
def test_a_call_and_its_result_are_one_unit_in_every_shape(served: Inspector, open_page: Open, shape: str) -> None:
    page = _show(served, open_page, {"role": "user", "content": "look"}, *CALLS[shape])
    unit = page.locator(".fold.call")
    expect(unit).to_have_count(1)
    expect(unit.locator("summary b")).to_have_text("look")
    expect(unit.locator("summary .args")).to_have_text("a.py")
    expect(unit.locator(".mark")).to_have_text("done")
    expect(page.locator(".message:visible")).to_have_count(2)
    unit.locator("summary").click()
    expect(unit.locator(".output")).to_have_text("what it saw")


def test_a_failed_tool_and_one_without_a_result_say_so_with_the_duration(served: Inspector, open_page: Open) -> None:
    page = _show(
        served,
        open_page,
        {
            "role": "assistant",
            "timestamp": "2026-11-17T09:00:00Z",
            "content": [
                {"type": "tool_use", "id": "1", "name": "bash", "input": {"command": "make"}},
                {"type": "tool_use", "id": "2", "name": "bash", "input": {"command": "sleep"}},
            ],
        },
        {
            "role": "user",
            "timestamp": "2026-11-17T09:00:02Z",
            "content": [{"type": "tool_result", "tool_use_id": "1", "content": "no", "is_error": True}],
        },
    )
    expect(page.locator(".fold.failed .outcome")).to_have_text("2.0 sfailed")
    expect(page.locator(".fold.waiting .outcome")).to_have_text("no result")


def test_an_edit_of_a_tool_is_shown_as_a_difference(served: Inspector, open_page: Open) -> None:
    edit = {"file_path": "a.py", "old_string": "a = 1\nb = 2\n", "new_string": "a = 1\nb = 3\n"}
    page = _show(
        served,
        open_page,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "edit", "input": edit}]},
    )
    page.locator(".fold.call summary").click()
    expect(page.locator(".lines del")).to_have_text("− b = 2")
    expect(page.locator(".lines ins")).to_have_text("+ b = 3")


@pytest.mark.parametrize("shape", IMAGES)
def test_an_image_in_a_message_is_shown_in_every_shape(served: Inspector, open_page: Open, shape: str) -> None:
    key = "parts" if shape == "gemini" else "content"
    page = _show(served, open_page, {"role": "user", key: [IMAGES[shape]]})
    expect(page.locator(".picture")).to_have_js_property("naturalWidth", 20)


def test_no_image_is_loaded_from_elsewhere(served: Inspector, open_page: Open) -> None:
    asked: list[str] = []
    page = open_page(served)
    page.on("request", lambda request: asked.append(request.url))
    served.store.thread("shown").save(
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "https://elsewhere.example/a.png"}}],
                },
                {"role": "assistant", "content": "![b](https://elsewhere.example/b.png)"},
            ]
        }
    )
    _choose(page, "shown")
    expect(page.locator(".unloaded")).to_have_count(2)
    page.wait_for_timeout(300)
    assert not [url for url in asked if "elsewhere.example" in url]


def test_a_message_can_be_copied_and_read_as_it_is_stored(served: Inspector, open_page: Open) -> None:
    page = _show(served, open_page, {"role": "assistant", "content": "**bold**", "odd": {"field": [1]}})
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(page.locator(".toast")).to_contain_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "**bold**"
    page.get_by_role("button", name="Raw").click()
    expect(page.locator(".raw")).to_contain_text('"odd"')
    expect(page.locator(".said")).to_be_hidden()
    page.get_by_role("button", name="Rendered").click()
    expect(page.locator(".said")).to_be_visible()


def test_a_long_output_is_shown_whole_when_asked_for(served: Inspector, open_page: Open) -> None:
    long = "x" * 30_000 + "the end"
    page = _show(
        served,
        open_page,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "cat", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": long}]},
    )
    page.locator(".fold.call summary").click()
    expect(page.locator(".output")).not_to_contain_text("the end")
    page.get_by_role("button", name="Show all 30,007 characters").click()
    expect(page.locator(".output")).to_contain_text("the end")


def test_a_saved_embedding_is_not_a_message(served: Inspector, open_page: Open) -> None:
    thread: backtrail.Thread[Any] = served.store.thread("vectors")
    thread.save({"items": [0.25] * 40, "name": "e5"})
    thread.append("items", [0.5])
    page = open_page(served)
    _choose(page, "vectors")
    expect(page.locator(".row .role")).to_have_count(0)
    expect(page.locator(".row .preview").first).to_have_text("+1 item")
    expect(page.locator(".message")).to_have_count(0)


def test_a_thread_without_messages_opens_its_state(served: Inspector, open_page: Open) -> None:
    served.store.thread("plain").save({"count": 1, "name": "x"})
    page = open_page(served)
    _choose(page, "plain")
    expect(page.get_by_role("tab", name="State")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("tab", name="Conversation")).to_have_count(0)
    expect(page.locator(".tree .key").first).to_have_text("count")


@pytest.mark.parametrize("column", ["payload", "root", "meta"])
def test_a_damaged_step_leaves_all_others_readable(open_page: Open, tmp_path: Path, column: str) -> None:
    path = tmp_path / "damaged.db"
    with backtrail.open(path) as store:
        for i in range(90):
            store.thread("t").append("messages", [{"role": "user", "content": f"message {i} is here"}])
    db = sqlite3.connect(path)
    db.execute(f"UPDATE steps SET {column} = zeroblob(length({column})) WHERE step = 85")
    db.commit()
    db.close()
    with backtrail.open(path) as store, inspector(store) as served:
        page = open_page(served)
        _choose(page, "t")
        expect(page.locator(".message").last).to_contain_text("message 89 is here")
        for _ in range(5):
            page.keyboard.press("j")
        expect(page.locator("#facts .step")).to_have_text("Step 85")
        page.keyboard.press("j")
        expect(page.locator("#facts .step")).to_have_text("Step 84")
        expect(page.locator(".message").last).to_contain_text("message 83 is here")
        page.keyboard.press("G")
        expect(page.locator("#facts .step")).to_have_text("Step 1")
        expect(page.locator(".row .preview").last).to_contain_text("message 0 is here")


def test_a_wide_dict_is_opened_and_paged(served: Inspector, open_page: Open) -> None:
    served.store.thread("wide").save({"notes": {f"key {i}": {"n": i} for i in range(30_000)}})
    page = open_page(served)
    _choose(page, "wide")
    page.locator(".tree summary", has_text="notes").click()
    expect(page.locator(".tree details[open] li")).to_have_count(101)
    page.get_by_role("button", name="29,900 more").click()
    expect(page.locator(".tree details[open] li")).to_have_count(201)


EVIL = '<img src=x onerror="window.owned=1"><script>window.owned=1</script>[a](javascript:window.owned=1)'


def _open_dialog(page: Page, key: str) -> None:
    """Press a key until its dialog is there: while the page draws a step anew, there is none to act on."""
    dialog = page.get_by_role("dialog")
    for _ in range(10):
        page.keyboard.press(key)
        with contextlib.suppress(Error):
            dialog.wait_for(timeout=3_000)
            break
    expect(dialog, key).to_be_visible()


def test_hostile_content_in_every_field_is_text(served: Inspector, open_page: Open) -> None:
    thread: backtrail.Thread[Any] = served.store.thread(f"evil {EVIL}")
    call = {"type": "tool_use", "id": EVIL, "name": EVIL, "input": {"command": EVIL, "file_path": EVIL, EVIL: EVIL}}
    result = {"type": "tool_result", "tool_use_id": EVIL, "content": f"{EVIL}\n{EVIL}", "is_error": True}
    thread.save(
        {"messages": [{"role": "user", "content": EVIL}], EVIL: EVIL}, label=EVIL, tags=[EVIL], custom={EVIL: EVIL}
    )
    thread.append(
        "messages",
        [
            {
                "role": EVIL,
                "content": f"# {EVIL}\n\n| {EVIL} |\n| --- |\n| {EVIL} |\n\n```{EVIL}\n{EVIL}\n```\n\n- {EVIL}",
            },
            {
                "role": "assistant",
                "model": EVIL,
                "usage": {"input_tokens": 1, "output_tokens": 1},
                "content": [{"type": "thinking", "thinking": EVIL}, call],
            },
            {"role": "user", "content": [result, {"type": "image_url", "image_url": {"url": f"https://x/{EVIL}"}}]},
            {
                "role": "assistant",
                "content": f"```diff\n@@ -1 +1 @@\n-{EVIL}\n+{EVIL}\n```\n![{EVIL}](data:text/html,{EVIL})",
            },
        ],
        label=EVIL,
    )
    thread.fork(f"fork {EVIL}")
    page = open_page(served)
    _choose(page, thread.id)
    expect(page.locator(".message").first).to_contain_text("onerror")
    page.evaluate("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    for key in ("2", "3"):
        page.keyboard.press(key)
        expect(page.locator("#view")).to_contain_text("onerror")
    page.keyboard.press("1")
    page.keyboard.press("t")
    expect(page.locator(".turn").first).to_contain_text("onerror")
    page.locator("#find").fill("onerror")
    page.locator("#find").press("Enter")
    expect(page.locator("#found li").first).to_be_visible()
    page.locator("#find").blur()
    for key in ("l", "f", "p", "c", "u"):
        _open_dialog(page, key)
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
    page.evaluate("(name) => { location.hash = new URLSearchParams({ search: `text:onerror` }); }", "")
    expect(page.locator(".results li").first).to_contain_text("onerror")
    page.evaluate("location.hash = 'page=health'")
    expect(page.locator("#page")).to_contain_text("Health")
    assert page.evaluate("window.owned") is None
    assert page.locator("img[src=x], main script, nav script, a[href^='javascript']").count() == 0
