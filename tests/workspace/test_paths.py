"""Paths: which names are safe, what is above a path, and how undecodable bytes become text."""

from __future__ import annotations

import os

import pytest

from backtrail.errors import UnsafePath
from backtrail.workspace.paths import all_parents, check_names, folder_of, parents, to_text, to_utf8


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"a\0b", b"a" * 256, b".git", b".GIT", b"_darcs"])
def test_a_name_that_is_unsafe_is_refused_among_safe_ones(name: bytes) -> None:
    with pytest.raises(UnsafePath, match="a forged tree"):
        check_names([b"safe", name, b"z"], "a forged tree")


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
