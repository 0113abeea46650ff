"""The files of a snapshot in the browser: browsed, opened and downloaded; nothing in them is markup."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import backtrail
from fix_inspector import Inspector, inspector

from .conftest import Open
from .test_addresses import _choose

EVIL = "<img src=x onerror=alert(1)>"
LARGE = os.urandom(300_000)


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Inspector]:
    """A thread with two snapshots of a directory."""
    root = tmp_path / "project"
    (root / "src" / "deep").mkdir(parents=True)
    (root / "src" / "app.py").write_text("def main():\n    return 1\n")
    (root / "src" / "deep" / f"{EVIL.replace('/', '')}.html").write_text(EVIL)
    (root / "large.bin").write_bytes(LARGE)
    (root / "picture.dat").write_bytes(b"\0\1\2")
    (root / "link").symlink_to("src")
    with backtrail.open(tmp_path / "s.db") as store:
        workspace = store.workspace(root)
        thread: backtrail.Thread[Any] = store.thread("t")
        thread.save({"messages": [{"role": "user", "content": "one"}]}, files=workspace)
        (root / "src" / "app.py").write_text("def main():\n    return 2\n")
        (root / "large.bin").unlink()
        thread.append("messages", [{"role": "assistant", "content": "two"}], files=workspace)
        with inspector(store) as served:
            yield served


def _tree(page: Any, step: str) -> Any:
    _choose(page, "t")
    page.locator(".row", has_text=step).first.click()
    page.get_by_role("tab", name="Files").click()
    page.get_by_text("All files of this snapshot").click()
    return page.locator(".tree.files")


def test_a_tree_is_browsed_and_a_file_opened(project: Inspector, open_page: Open) -> None:
    page = open_page(project)
    tree = _tree(page, "two")
    expect(page.locator(".change.changed ins")).to_contain_text("return 2")
    expect(tree.locator("> li .key")).to_have_text(["src/", "link", "picture.dat"])
    tree.get_by_text("src/").click()
    tree.get_by_text("app.py").click()
    expect(tree.locator("pre.code")).to_contain_text("return 2")
    expect(tree.locator(".t-keyword").first).to_have_text("def")
    tree.get_by_text("deep/").click()
    tree.get_by_text(EVIL.replace("/", "")).click()
    expect(tree.locator("pre.code").first).to_have_text(EVIL)
    assert tree.locator("img").count() == 0
    tree.get_by_text("picture.dat").click()
    expect(tree).to_contain_text("Not text.")


def test_an_older_snapshot_has_the_files_as_they_were_and_any_can_be_downloaded(
    project: Inspector, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(project)
    tree = _tree(page, "one")
    tree.get_by_text("src/").click()
    tree.get_by_text("app.py").click()
    expect(tree.locator("pre.code")).to_contain_text("return 1")
    tree.get_by_text("large.bin").click()
    expect(tree).to_contain_text("Too large to be shown.")
    with page.expect_download() as download:
        tree.get_by_role("button", name="Download").last.click()
    assert download.value.suggested_filename == "large.bin"
    download.value.save_as(tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == LARGE


def test_the_keyboard_reaches_the_tree(project: Inspector, open_page: Open) -> None:
    page = open_page(project)
    page.evaluate("location.hash = 'thread=t&view=files'")
    page.locator(".browse > summary").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".tree.files > li")).to_have_count(3)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".tree.files")).to_contain_text("app.py")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".tree.files pre.code")).to_contain_text("return 2")
