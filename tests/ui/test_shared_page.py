"""A shared page in Chromium, without a network: Markdown and code as in the inspector; nothing that was stored runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import backtrail
from fix_inspector import inspector

EVIL = "<img src=x onerror=alert(1)><script>alert(1)</script>"
TEXT = f"""# The plan

It is **bold**, *soft* and `code`, and {EVIL}

| tool | calls |
| --- | ---: |
| bash | 12 |

1. read
2. write

```python
def limit(rate: int) -> bool:
    return rate > 10  # </script><script>alert(1)</script>
```

```diff
@@ -1 +1 @@
-old {EVIL}
+new
```

[a link](https://example.com) and [a trap](javascript:alert(1)) ![](https://example.com/pixel.png)
"""


class Shared:
    """Opens the exported page of a thread in a browser that has no network."""

    def __init__(self, browser: Any, folder: Path) -> None:
        self.browser, self.folder = browser, folder
        self.contexts: list[Any] = []
        self.errors: list[str] = []
        self.requests: list[str] = []

    def open(self, messages: list[Any], *, scripts: bool = True, **query: Any) -> Any:
        with backtrail.open("memory:") as store:
            thread: backtrail.Thread[Any] = store.thread(EVIL)
            thread.save({"messages": messages})
            thread.fork("fork").append("messages", [{"role": "user", "content": "**another** way"}])
            with inspector(store) as served:
                asked = {"thread": EVIL, "form": "html", **query}
                text = served.client.get("/api/v1/export", params=asked).text
        file = self.folder / "shared.html"
        file.write_text(text)
        context = self.browser.new_context(offline=True, java_script_enabled=scripts, color_scheme="dark")
        self.contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("dialog", lambda dialog: self.errors.append(dialog.message) or dialog.dismiss())
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(file.as_uri())
        return page


@pytest.fixture
def shared(browser: Any, tmp_path: Path) -> Iterator[Shared]:
    opened = Shared(browser, tmp_path)
    yield opened
    for context in opened.contexts:
        context.close()
    assert not opened.errors
    assert [url for url in opened.requests if not url.startswith(("file:", "data:"))] == []


def test_markdown_code_tables_and_diffs_are_rendered_offline(shared: Shared) -> None:
    call = {"id": "1", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    page = shared.open(
        [
            {"role": "user", "content": TEXT},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "content": EVIL},
        ]
    )
    said = page.locator(".said").first
    expect(said.locator("h3")).to_have_text("The plan")
    expect(said.locator("strong")).to_have_text("bold")
    expect(said.locator("td.right")).to_have_text("12")
    expect(said.locator("ol > li")).to_have_count(2)
    expect(said.locator("pre.code .t-keyword").first).to_have_text("def")
    expect(said.locator(".lines ins")).to_contain_text("new")
    expect(said.locator('a[href="https://example.com"]')).to_have_text("a link")
    expect(said.locator("a")).to_have_count(1)
    expect(page.locator("summary")).to_have_text("bash: done")
    expect(page.locator("details .t-property")).to_have_text('"command"')


def test_hostile_content_stays_text(shared: Shared) -> None:
    page = shared.open([{"role": EVIL, "content": TEXT}, {"role": "user", "content": EVIL}])
    expect(page.locator(".rendered")).to_have_count(2)
    expect(page.locator("h1")).to_have_text(EVIL)
    expect(page.locator(".said").last).to_have_text(EVIL)
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    policy = page.locator("meta[http-equiv]").get_attribute("content")
    assert "'unsafe-inline'" not in policy.split("script-src")[1]


def test_a_comparison_is_rendered_too(shared: Shared) -> None:
    page = shared.open([{"role": "user", "content": "the same"}], other="fork")
    expect(page.locator("section strong")).to_have_text("another")


def test_without_scripts_the_page_shows_the_same_text_as_it_is(shared: Shared) -> None:
    page = shared.open([{"role": "user", "content": TEXT}], scripts=False)
    expect(page.locator(".said")).to_contain_text("**bold**")
    expect(page.locator(".said")).to_contain_text(EVIL)
