"""The project's former name is nowhere in the tree: neither in a file's name nor in its content."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FORMER = "".join(("c", "lew"))  # in two parts, or this file would fail its own test
SKIPPED = {".git", ".hypothesis", "__pycache__", "build", "dist"}


def _tracked() -> list[Path] | None:
    """The files that git tracks; None for a tree without git."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        return None
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    paths = (ROOT / os.fsdecode(name) for name in listed.split(b"\0") if name)
    return [path for path in paths if path.is_file()]


def _walked() -> Iterator[Path]:
    """All files outside of virtual environments, caches and builds."""
    for directory, children, files in os.walk(ROOT):
        children[:] = [
            child
            for child in children
            if child not in SKIPPED
            and not child.endswith((".egg-info", "_cache"))
            and not Path(directory, child, "pyvenv.cfg").exists()
        ]
        yield from (Path(directory, file) for file in files)


def _mentions_former_name(content: bytes) -> bool:
    if b"\0" in content:  # in compressed data four letters of mixed case may stand next to each other by chance
        return any(name.encode() in content for name in (FORMER, FORMER.title(), FORMER.upper()))
    return FORMER.encode() in content.lower()


def test_the_former_name_is_nowhere_in_the_tree() -> None:
    files = _tracked() or [*_walked()]
    assert Path(__file__) in files
    assert [path for path in files if FORMER in str(path.relative_to(ROOT)).lower()] == []
    assert [path for path in files if _mentions_former_name(path.read_bytes())] == []


def test_a_mention_is_found_in_text_of_any_case_and_in_binary_files() -> None:
    assert _mentions_former_name(f"import {FORMER[0].upper()}{FORMER[1:3]}{FORMER[3].upper()}Saver".encode())
    assert _mentions_former_name(b"\x89PNG\0" + FORMER.upper().encode() + b"\xff")
    assert not _mentions_former_name(b"backtrail\0backtrail")
