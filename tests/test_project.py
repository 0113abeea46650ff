"""The files around the code agree with it: metadata, CONTRIBUTING, SECURITY, the workflow, the figures."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
import tomllib
from pathlib import Path

import pytest

import backtrail
from bench import page
from bench.summary import dumps

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))
WORKFLOW = (ROOT / ".github/workflows/ci.yml").read_text()
GUIDES = [ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / ".github/PULL_REQUEST_TEMPLATE.md"]
VERSIONS = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.fullmatch(r"Programming.*:: 3\.\d+", name)]


def test_the_version_is_written_in_one_place() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert "version" not in PROJECT
    assert importlib.metadata.version("backtrail") == backtrail.__version__
    written = [path for path in (ROOT / "src").rglob("*.py") if f'"{backtrail.__version__}"' in path.read_text()]
    assert written == [ROOT / "src/backtrail/__init__.py"]


def test_the_license_is_there_and_named() -> None:
    assert PROJECT["license"] == "MIT"
    assert (ROOT / "LICENSE").read_text().startswith("MIT License\n")
    assert PROJECT["license-files"] == ["LICENSE"]


def test_the_python_versions_are_the_same_everywhere() -> None:
    assert PROJECT["requires-python"] == f">={VERSIONS[0]}"
    for listed in re.findall(r"python: \[(.*)\]", WORKFLOW):
        assert re.findall(r"\d\.\d+", listed) == VERSIONS


@pytest.mark.parametrize("text", [*GUIDES, ROOT / ".github/workflows/ci.yml"], ids=lambda path: str(path.name))
def test_every_make_target_that_is_named_exists(text: Path) -> None:
    named = re.findall(r"(?:`|\$ |run: )make ([a-z][a-z -]*)", text.read_text())
    assert {target for line in named for target in line.split()} <= TARGETS


def test_make_help_names_every_target() -> None:
    told = set(re.findall(r'echo "make ([a-z-]+) ', MAKEFILE))
    assert told == TARGETS - {"help", "browser", "axe", "shells"}


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: str(path.name))
def test_every_path_and_link_that_is_named_exists(guide: Path) -> None:
    text = guide.read_text()
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text)]
    paths = re.findall(r"`((?:src|tests|docs|examples|bench)/[^` ]*|[\w.-]+\.(?:md|toml|txt))`", text)
    for path in (*links, *paths):
        pattern = re.sub(r"<\w+>", "*", path.rstrip("/"))  # tests/engines/test_<name>.py
        assert list(ROOT.glob(pattern)), f"{guide.name} names {path}"


def test_the_engine_of_contributing_is_bound_as_it_says() -> None:
    block = re.search(r"class TestMsgpack.*?\n\n", (ROOT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    assert block is not None
    lines = [line.strip() for line in block[0].splitlines() if line.strip() not in ("", "```")]
    bound = [line.strip() for line in (ROOT / "tests/engines/test_msgpack_engine.py").read_text().splitlines()]
    assert lines == bound[bound.index(lines[0]) :][: len(lines)]
    assert len(bound) <= 25


def test_hooks_fetch_nothing() -> None:
    assert re.findall(r"repo: (.*)", (ROOT / ".pre-commit-config.yaml").read_text()) == ["local"]


def test_no_stored_byte_can_become_code() -> None:
    forbidden = {"pickle", "shelve", "dill", "cloudpickle", "yaml", "code"}
    calls = {"eval", "exec", "compile", "__import__"}
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name.partition(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [(node.module or "").partition(".")[0]]
            assert not forbidden.intersection(names), path
            called = node.func if isinstance(node, ast.Call) else None
            assert not (isinstance(called, ast.Name) and called.id in calls), path
            # marshal.dumps makes a key for a comparison; nothing is ever read back with it.
            assert not (isinstance(called, ast.Attribute) and ast.unparse(called).startswith("marshal.load")), path


def test_the_figures_in_the_docs_are_those_of_the_summary() -> None:
    kept = (ROOT / "bench/summary.json").read_text()
    summary = json.loads(kept)
    assert dumps(summary) + "\n" == kept
    assert kept.count("\n") < 600
    frames = json.loads((ROOT / "bench/adapters.json").read_text())["targets"]
    assert page.figures(summary, frames) in (ROOT / "docs/performance.md").read_text()


def test_the_growth_in_the_docs_is_the_one_that_was_measured() -> None:
    kept = (ROOT / "bench/growth.json").read_text()
    growth = json.loads(kept)
    assert dumps(growth) + "\n" == kept
    assert page.growth(growth) in (ROOT / "docs/performance.md").read_text()
    last = {(curve["of"], curve["what"]): curve["n"][-1] for curve in growth["curves"] if curve["key"] == "append"}
    assert last == {
        (of, what): n for of, n in (("steps", 300_000), ("threads", 1_000_000)) for what in ("save", "read", "bytes")
    }


def test_whoever_decodes_bytes_catches_all_that_a_decoder_raises() -> None:
    """msgspec raises its own errors, UnicodeDecodeError and RecursionError: `errors.DECODE_ERRORS` has all of them."""
    narrow = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler) and node.type is not None:
                caught = ast.unparse(node.type)
                if re.search(r"msgspec\.(DecodeError|MsgspecError)", caught):
                    narrow.append(f"{path.relative_to(ROOT)}:{node.lineno} {caught}")
    assert narrow == []
