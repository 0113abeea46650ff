"""docs/guarantees.md: every guarantee names tests, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/guarantees.md").read_text()
NAMED = re.findall(r"`((?:tests|src)/[\w/]+\.py)::(\w+)`", PAGE)
#: The one line that guarantees nothing, and the one whose proof is that of the line above.
UNPROVEN = ("`append` repeated by your program after `Unavailable`, without an id", 'SQLite, `durability="normal"`')


@cache
def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED)), ids=lambda part: str(part).rpartition("/")[2])
def test_every_named_test_exists(path: str, name: str) -> None:
    assert name.startswith("test_")
    assert name in functions_of(path)


def test_every_line_of_a_table_names_a_test() -> None:
    tables = re.findall(r"^\|.*proven by \|\n\|[-| ]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()]
    assert len(tables) >= 8
    assert len(lines) >= 50
    for line in lines:
        assert "::test_" in line or any(f"| {part} |" in line for part in UNPROVEN), line


def test_no_other_page_names_a_test_that_does_not_exist() -> None:
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for path, name in re.findall(r"`((?:tests|src)/[\w/]+\.py)::(\w+)`", page.read_text()):
            assert name in functions_of(path), page.name
