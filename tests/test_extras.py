"""Every hint that tells people what to install names an extra that the package has, and every extra is documented."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from backtrail.cli.commands import doctor
from backtrail.engines import SCHEMES

ROOT = Path(__file__).parent.parent
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
TEXTS = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "src").rglob("*.py"),
    *(ROOT / "src/backtrail/server/static").glob("*.js"),  # not what others wrote, in vendor/
]
HINT = re.compile(r"(?:backtrail|\.)\[([a-z][a-z,\- ]*)\]")


def named_in_code() -> Iterator[tuple[str, str]]:
    """(file, extra) of each call that turns a missing import into a hint. Only a literal can be checked; the places
    that pass one on are `MissingExtra` itself, `require_extra`, and the table of schemes."""
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in ("MissingExtra", "require_extra"):
                extra = node.args[-1]
                if isinstance(extra, ast.Constant):
                    yield path.name, str(extra.value)
                else:
                    assert path.name in ("optional_import.py", "__init__.py"), ast.unparse(node)


def test_every_missing_import_names_an_extra_of_the_package() -> None:
    found = list(named_in_code())
    assert len(found) >= 10
    assert {extra for _, extra in found} <= EXTRAS
    assert {scheme.extra for scheme in SCHEMES.values() if scheme.extra} <= EXTRAS
    assert set(doctor.EXTRAS) <= EXTRAS


@pytest.mark.parametrize("path", [p for p in TEXTS if HINT.search(p.read_text())], ids=lambda path: str(path.name))
def test_every_hint_to_install_names_extras_of_the_package(path: Path) -> None:
    named = {name.strip() for found in HINT.findall(path.read_text()) for name in found.split(",")}
    assert named <= EXTRAS, path


@pytest.mark.parametrize("extra", sorted(EXTRAS - {"dev"}))
def test_every_extra_is_documented(extra: str) -> None:
    docs = "".join(path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    assert re.search(rf"(?<![\w-]){extra}(?![\w-])", docs)
