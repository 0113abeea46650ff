"""The files of a snapshot in the browser: browsed, opened, downloaded and restored; nothing in them is markup."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

import backtrail
from fix_inspector import Inspector, inspector

from .conftest import PICTURES, Open
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


def test_files_are_shown_and_restored_with_the_conversation(open_page: Open, tmp_path: Path) -> None:
    file = tmp_path / "app.py"
    file.write_text("import this\n<b>bold</b>\n")
    with backtrail.open("memory:") as store:
        workspace = store.workspace(tmp_path, cache=False)
        thread: backtrail.Thread[Any] = store.thread("coder")
        thread.save({"messages": []}, files=workspace)
        thread.append("messages", [{"role": "user", "content": "change it"}])
        file.write_text("import that\n<b>bold</b>\n")
        (tmp_path / "new.py").write_text("x = 1\n")
        thread.append("messages", [{"role": "assistant", "content": "changed"}], files=workspace)
        (tmp_path / ".backtrailignore").write_text("*.log\n")
        (tmp_path / "x<i>.log").write_text("ignored\n")
        with inspector(store) as served:
            page = open_page(served)
            _choose(page, "coder")
            page.get_by_role("tab", name="Files").click()
            expect(page.locator(".changes .change")).to_have_count(2)
            expect(page.locator("#view")).to_contain_text("2 files changed since step 1")
            expect(page.locator(".lines ins").first).to_have_text("+import that")
            expect(page.locator("#view")).to_contain_text("<b>bold</b>")
            page.keyboard.press("j")
            expect(page.get_by_role("tab", name="Files")).to_have_count(0)
            page.keyboard.press("j")
            page.keyboard.press("r")
            dialog = page.get_by_role("dialog")
            expect(dialog).to_contain_text("1 file will change; 2 files will be removed, and come back with undo.")
            expect(dialog).to_contain_text("− new.py")
            expect(dialog).to_contain_text("− .backtrailignore in no snapshot yet, kept in a safety snapshot")
            dialog.get_by_text("1 file will be kept").click()
            expect(dialog).to_contain_text("x<i>.log ignored by rule")
            PICTURES.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=PICTURES / "rewind-files.png")
            dialog.get_by_label("Keep files that no snapshot holds").check()
            expect(dialog).to_contain_text("1 file will change; 1 file will be removed")
            dialog.get_by_text("2 files will be kept").click()
            expect(dialog).to_contain_text(".backtrailignore in no snapshot")
            dialog.get_by_label("Restore the directory as well").uncheck()
            expect(dialog.get_by_text("will be removed")).to_be_hidden()
            dialog.get_by_label("Restore the directory as well").check()
            dialog.get_by_label("Keep files that no snapshot holds").uncheck()
            expect(dialog).to_contain_text("2 files will be removed")
            page.locator("dialog .primary").click()
            expect(page.locator(".toast")).to_contain_text("1 file changed, 2 files removed, 1 file kept")
            expect(page.locator("#facts .badge")).to_have_text("head")
            assert file.read_text() == "import this\n<b>bold</b>\n"
            assert not (tmp_path / "new.py").exists()
            page.locator("#toasts").get_by_role("button", name="Undo").click()
            expect(page.get_by_role("dialog")).to_contain_text("3 files will change")
            page.locator("dialog .primary").click()
            expect(page.locator("#facts .step")).to_have_text("Step 3")
    assert file.read_text() == "import that\n<b>bold</b>\n"
    assert (tmp_path / "new.py").exists()


def test_files_of_a_store_from_elsewhere_are_shown_and_not_restored(open_page: Open, tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    with backtrail.open(tmp_path / "theirs.db") as store:
        for number in range(2):
            (root / "app.py").write_text(f"{number}\n")
            store.thread("coder").save({"messages": [], "n": number}, files=store.workspace(root))
    (tmp_path / "theirs.db").rename(tmp_path / "ours.db")
    with backtrail.open(tmp_path / "ours.db") as store, inspector(store) as served:
        page = open_page(served)
        _choose(page, "coder")
        page.get_by_role("tab", name="Files").click()
        expect(page.locator("#view")).to_contain_text("1 file changed since step 1.")
        page.keyboard.press("j")
        page.keyboard.press("r")
        expect(page.get_by_role("dialog")).to_contain_text("A store never chooses a directory")
        expect(page.get_by_role("checkbox")).to_have_count(0)
        page.locator("dialog .primary").click()
        expect(page.locator("#facts .badge")).to_have_text("head")
    assert (root / "app.py").read_text() == "1\n"
