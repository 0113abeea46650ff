"""Each program in examples/ runs by itself, offline, and prints what it says; tests/adapters has the frameworks'."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fix_examples import EXAMPLES, FRAMEWORKS, SHOWS, promised, run_offline

README = EXAMPLES[0].with_name("README.md")
PLAIN = [path for path in SHOWS if path not in FRAMEWORKS]


def test_there_are_ten_examples_besides_the_demo_and_the_engine() -> None:
    assert len(SHOWS) == 10
    assert len(FRAMEWORKS) == 5


def test_every_example_is_listed_with_the_extra_that_it_needs() -> None:
    listed = dict(re.findall(r"^\| \[`([\w.]+)`\].*\| `?([\w-]*)`? ?\|$", README.read_text(), re.MULTILINE))
    assert set(listed) == {path.name for path in EXAMPLES}
    for path in SHOWS:
        extra = listed[path.name]
        assert not extra or f"the extra `{extra}`" in " ".join(path.read_text().split()), path.name
        assert bool(extra) == (path in FRAMEWORKS or path.stem == "web_chat")


@pytest.mark.slow
@pytest.mark.parametrize("program", PLAIN, ids=lambda path: path.stem)
def test_an_example_prints_what_it_says(program: Path, tmp_path: Path) -> None:
    assert run_offline(program, tmp_path) == promised(program)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_demo_tells_of_a_killed_agent_that_lost_nothing(tmp_path: Path) -> None:
    said = run_offline(next(path for path in EXAMPLES if path.stem == "demo"), tmp_path)
    assert "nothing it reported is lost" in said


@pytest.mark.parametrize("program", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_small_and_needs_no_other_file_of_ours(program: Path) -> None:
    text = program.read_text()
    assert len(text.splitlines()) <= 150 or program.stem == "msgpack_engine"
    assert not any(f"import {other.stem}" in text for other in EXAMPLES)
