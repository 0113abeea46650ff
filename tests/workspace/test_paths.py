"""Paths: which names are safe, what is above a path, and how undecodable bytes become text."""

from __future__ import annotations

import os

import pytest

from backtrail.errors import UnsafePath
from backtrail.workspace.paths import all_parents, check_names, folder_of, is_version_control, parents, to_text, to_utf8


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"a\0b", b"a" * 256, b".git", b".GIT", b"_darcs"])
def test_a_name_that_is_unsafe_is_refused_among_safe_ones(name: bytes) -> None:
    with pytest.raises(UnsafePath, match="a forged tree"):
        check_names([b"safe", name, b"z"], "a forged tree")


LOOK_ALIKES = [
    ".git",
    ".GIT",
    ".Git",
    ".git.",
    ".git ",
    ".git. . ",
    "git~1",
    "GIT~1",
    "GiT~1 ",
    "git~1.",
    ".git::$INDEX_ALLOCATION",
    ".git:x",
    ".git :x",
    ".git\\config",
    "a\\.git",
    "a\\git~1\\hooks",
    "\u200c.git",
    ".g\u200dit",
    ".git\u200e",
    ".\u200fgit",
    ".gi\u202at",
    ".git\u202e",
    ".g\u206ai\u206ft",
    ".git\ufeff",
    ".G\u200cIT. ",
    ".hg",
    ".HG.",
    "hg~1",
    ".svn ",
    "SVN~1",
    ".jj:",
    "_DARCS",
    "_darcs.",
    ".pijul\u200c",
    "bzr~1",
    ".sl ",
]
ORDINARY = [
    ".gitignore",
    ".gitattributes",
    ".github",
    "git",
    "git~",
    "git~2",
    "agit~1",
    "x.git",
    ".gi",
    ".git-x",
    ".git~1",
    "..git",
    " .git",
    ".git_",
    "hg",
    ".hgignore",
    "darcs",
    ".svnx",
    "_darcs2",
    ".g\u200bit",
    ".gït",
    ".git\u2060",
    "\u4f60\u597d",
    "a:b",
    "a b",
]


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_a_name_that_some_file_system_takes_for_version_control_is_refused(name: str) -> None:
    assert is_version_control(name.encode())
    for names in ([name], ["a", name, "z"], ["safe", "other", name]):
        with pytest.raises(UnsafePath, match="version control"):
            check_names([each.encode() for each in names], "a forged tree")


@pytest.mark.parametrize("name", [".claude", ".codex", ".gemini", ".opencode", ".CLAUDE", ".claude.", "CLAUDE~1"])
def test_a_name_that_is_a_coding_agents_is_refused(name: str) -> None:
    for names in ([name], ["a", name, "z"]):
        with pytest.raises(UnsafePath, match="belongs to a coding agent"):
            check_names([each.encode() for each in names], "a forged tree")


@pytest.mark.parametrize("name", [".claude.json", "CLAUDE.md", "claude", ".claudeignore", "opencode.json", "gemini"])
def test_a_name_that_only_resembles_a_coding_agents_is_an_ordinary_one(name: str) -> None:
    check_names([b"a", name.encode(), b"z"], "a tree")


@pytest.mark.parametrize("name", ORDINARY)
def test_a_name_that_only_resembles_version_control_is_an_ordinary_one(name: str) -> None:
    assert not is_version_control(name.encode())
    check_names([b"a", name.encode(), b"z"], "a tree")


def test_unusual_but_safe_names_are_accepted() -> None:
    check_names([], "a tree")
    check_names([b"...", b".gitignore", b"git", b"a\nb", b"\xff", b"a" * 255], "a tree")


def test_the_folder_of_a_path_ends_in_a_slash_unless_it_is_the_root() -> None:
    assert [folder_of(path) for path in (b"", b"a", b"a/", b"a/b", b"a/b/")] == [b"", b"", b"", b"a/", b"a/"]


def test_parents_are_listed_outermost_first() -> None:
    assert list(parents(b"a/b/c")) == [b"a", b"a/b"]
    assert all_parents([b"a/b/c", b"a/d", b"e"]) == {b"a", b"a/b"}


def test_undecodable_bytes_survive_as_text_and_are_escaped_as_utf8() -> None:
    assert os.fsencode(to_text(b"\xff.txt")) == b"\xff.txt"
    assert to_utf8(b"\xff.txt") == "\\xff.txt"
