"""Ignore rules: they include exactly the files that git itself would add."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtrail.workspace.exclusions import ScanRoot
from backtrail.workspace.ignore_files import Rules
from backtrail.workspace.walk import walk

PATTERNS = [
    "*.log", "!keep.log", "build/", "/top.txt", "docs/*.md", "**/cache", "a/**/z", "foo/**", "!foo/keep", "*", "!*/",
    "!*.py", "data[0-9].txt", "sub/dir/", "# comment", "", "   ", "\\#hash", "\\!bang", "name ", "*.[oa]", "x?z",
    "/a/b", "b", "[", "a/", "!a/", "/*", "!/a", "*/c", "**/b/c", "c/**",
]  # fmt: skip
PATHS = [
    "a.log", "keep.log", "build/x.o", "sub/build/y.o", "top.txt", "sub/top.txt", "docs/a.md", "docs/b/c.md",
    "cache/1", "q/cache/2", "a/z", "a/b/z", "a/b/c/z", "foo/keep", "foo/drop", "m.py", "sub/m.py", "data1.txt",
    "sub/dir/f", "other/sub/dir/f", "#hash", "!bang", "xyz", "x.o", "a/b/c/d", "b/c/e", "c/f", "name", "e",
]  # fmt: skip


def kept_by_backtrail(root: Path) -> set[str]:
    walked = walk(ScanRoot(os.fsencode(root)), None)
    start = len(os.fsencode(root)) + 1
    folders = {os.path.dirname(path) for path in walked.index.paths[1:]}
    skipped = {os.path.join(os.fsencode(root), path) for path, _ in walked.index.skipped()}
    return {
        os.fsdecode(path[start:])
        for path in walked.index.paths[1:]
        if path not in folders and path not in skipped and not os.path.isdir(path)
    }


def kept_by_git(root: Path) -> set[str]:
    env = {
        **os.environ,
        "GIT_DIR": str(root.parent / "git"),
        "GIT_WORK_TREE": str(root),
        "GIT_CONFIG_GLOBAL": "/dev/null",
    }
    subprocess.run(["git", "init", "-q"], env=env, cwd=root, check=True)
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--others", "--exclude-standard"], env=env, cwd=root, check=True, capture_output=True
    )
    return {os.fsdecode(name) for name in listing.stdout.split(b"\0") if name}


def plant(root: Path, rules: dict[str, list[str]]) -> None:
    for path in PATHS:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    for folder, lines in rules.items():
        (root / folder / ".gitignore").write_text("\n".join(lines) + "\n")


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    top=st.lists(st.sampled_from(PATTERNS), max_size=5),
    nested=st.dictionaries(st.sampled_from(["a", "foo", "sub"]), st.lists(st.sampled_from(PATTERNS), max_size=3)),
)
def test_backtrail_keeps_exactly_the_files_that_git_would_add(
    tmp_path_factory: pytest.TempPathFactory, top: list[str], nested: dict[str, list[str]]
) -> None:
    root = tmp_path_factory.mktemp("ignore") / "root"
    root.mkdir()
    plant(root, {"": top, **nested})
    assert kept_by_backtrail(root) == kept_by_git(root)


def test_one_bad_pattern_does_not_hide_the_rest() -> None:
    rules = Rules([b"*.log", b"!", b"///", b"*.tmp"])
    assert rules.ignores(b"a.log", False)
    assert rules.ignores(b"a.tmp", False)
    assert not rules.ignores(b"a.txt", False)


def test_names_with_newlines_and_broken_utf8_are_matched_whole() -> None:
    rules = Rules([b"*.log", b"\xff*"])
    assert rules.ignores(b"two\nlines/x.log", False)
    assert rules.ignores(b"\xffname", False)
    assert not rules.ignores(b"x.log\n", False)
