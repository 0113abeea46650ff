"""Ignore rules: they include exactly the files that git itself would add."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backtrail.workspace.exclusions import ScanRoot
from backtrail.workspace.ignore_files import Rules
from backtrail.workspace.ignore_patterns import parse
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


PIECES = [
    "*", "**", "***", "?", "a", "b", "ab", "/", "[ab]", "[!a]", "[^b]", "[a-b]", "[]", "[", "]", "[[:alpha:]]",
    "[[:x:]]", "[[:", "[a-", "[-a]", "[a\\]b]", "[\\a-b]", "\\", "\\*", "\\/", "!", "#", " ", "\\ ", ".", "-", "^", "c",
    "foo", "**/", "/**", "/**/", "*/", "[[:alpha:]b]", "[]a]", "[!]a]", "[a-]", "[b-a]", "[/]", "[!/]", "\r", "\t",
    "[[a]", "[[:a]",
]  # fmt: skip
NAMES = [
    "a", "b", "c", "ab", "foo", "a b", "x*", "[", "]", "!", "#", "a-b", "^", "a ", "A", "foo.b", "d/a", "d/ab", "d/e/a",
    "d/e/foo", "d/e/f/b", "foo1/a", "foo1/bar/b", "foob", "b1/a/b", "ab1/a", "a1/foo/b", "-",
]  # fmt: skip


@pytest.mark.slow
def test_random_patterns_mean_what_they_mean_to_git(tmp_path: Path) -> None:
    """One directory for each pattern, and one run of git for all of them."""
    chosen = random.Random(7)
    root = tmp_path / "root"
    patterns = {}
    for number in range(150):
        folder = root / f"t{number}"
        for name in NAMES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
        lines = ["".join(chosen.choices(PIECES, k=chosen.randint(1, 6))) for _ in range(chosen.choice([1, 1, 2]))]
        (folder / ".gitignore").write_text("\n".join(lines) + chosen.choice(["", "\n"]))
        patterns[folder.name] = lines
    wrong = {path.partition("/")[0] for path in kept_by_backtrail(root) ^ kept_by_git(root)}
    assert {name: patterns[name] for name in wrong} == {}


HOSTILE = {
    "stars": (lambda n: b"*a" * n + b"b", lambda n: b"a" * 4 * n),
    "question marks": (lambda n: b"*?" * n + b"b", lambda n: b"a" * 4 * n),
    "sets": (lambda n: b"*[ab]" * n + b"c", lambda n: b"a" * 4 * n),
    "directories": (lambda n: b"**/a/" * n + b"b", lambda n: b"/".join([b"a"] * 4 * n)),
    "stars in directories": (lambda n: b"/**/*a*a*/" * n + b"b", lambda n: b"/".join([b"aaaa"] * 4 * n)),
    "anything": (lambda n: b"x/" + b"**\\/" * n + b"b", lambda n: b"x" + b"/" * 4 * n),
    "all of them": (lambda n: b"**/*a*[a]?*/**/" * n + b"b", lambda n: b"/".join([b"aaaaaa"] * 4 * n)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_pattern_takes_longer_than_its_length_times_that_of_the_path(name: str) -> None:
    """Twice of both may take four times as long. Where the ways to match multiply, it would be a million times."""
    pattern, path = HOSTILE[name]

    def seconds(size: int) -> float:
        rules, subject = Rules([pattern(size)]), path(size)
        assert not rules.ignores(b"something else", False)  # compiles it
        taken = []
        for _ in range(5):
            start = time.process_time()
            for _ in range(20):
                assert not rules.ignores(subject, False)
            taken.append(time.process_time() - start)
        return min(taken)

    assert seconds(80) <= 32 * max(seconds(20), 1e-5) + 0.01  # 16 times, if it is quadratic


def test_a_pattern_that_is_longer_than_any_path_is_not_even_compiled() -> None:
    assert not Rules([b"*a" * 10_000, b"a/" + b"*a" * 10_000, b"**/a/" * 10_000 + b"b"]).groups


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


def test_a_set_of_characters_takes_few_bytes_however_many_it_stands_for() -> None:
    for line in (b"[!a]", b"[a-z]", b"[[:alnum:]]", b"[!a-y]"):
        pattern = parse(line)
        assert pattern is not None
        assert len(pattern.regex) < 64, pattern.regex
