"""docs/architecture.md is checked against the code: its picture against the import rules, its paths against a trace."""

from __future__ import annotations

import itertools
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import backtrail

ROOT = Path(__file__).parents[1]
PACKAGE = Path(backtrail.__file__).parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MESSAGES = [{"role": "user", "content": f"message {number}"} for number in range(50)]


def section(title: str) -> str:
    """The text under a heading, up to the next heading of the same level."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/architecture.md has no section {title!r}"
    return found[1]


def layers() -> list[list[str]]:
    """The layers that import-linter enforces, top first."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contract = next(one for one in config["tool"]["importlinter"]["contracts"] if one["type"] == "layers")
    assert contract["exhaustive"], "a module that no layer names must be refused"
    return [re.split(r"\s*[|:]\s*", layer) for layer in contract["layers"]]


def traced(call: Callable[[], Any]) -> list[str]:
    """The files of the package that a call runs through, in the order in which it first enters them."""
    entered: dict[str, None] = {}

    def profile(frame: FrameType, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(PACKAGE):
            entered.setdefault(file.relative_to(PACKAGE).as_posix())

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(entered)


@pytest.fixture
def thread(tmp_path: Path) -> Any:
    """A thread on SQLite that has been saved to before, as those of a running agent have."""
    store = backtrail.open(tmp_path / "s.db")
    thread = store.thread("t")
    for number in range(5):
        thread.save({"messages": MESSAGES[: 40 + number], "turn": number})
    yield thread
    store.close()


def test_the_picture_shows_the_layers_that_the_import_rules_enforce() -> None:
    picture = re.search(r"```mermaid\n(.*?)```", section("The layers"), re.DOTALL)
    assert picture is not None
    shown = [re.split(r"\s*·\s*", row) for row in re.findall(r'^\s*\w+\["(.+?)"\]$', picture[1], re.MULTILINE)]
    assert shown == layers()
    nodes = re.findall(r"^\s*(\w+)\[", picture[1], re.MULTILINE)
    assert re.findall(r"(\w+) --> (\w+)", picture[1]) == list(itertools.pairwise(nodes))


def test_every_module_of_the_package_stands_in_a_layer() -> None:
    modules = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert modules - {"__init__"} == {name for layer in layers() for name in layer}


def test_every_file_that_the_page_names_exists() -> None:
    for name in re.findall(r"`([\w/]+\.(?:py|sql|lua))`", PAGE):
        assert (PACKAGE / name).exists() or (ROOT / name).exists(), f"{name} is named, but does not exist"


def test_a_save_takes_the_way_that_the_page_describes(thread: Any) -> None:
    way = traced(lambda: thread.save({"messages": MESSAGES[:46], "turn": 9}))
    assert way == re.findall(r"^\d+\. `([\w/]+\.py)`", section("The way of a save"), re.MULTILINE)


def test_a_load_takes_the_way_that_the_page_describes(thread: Any) -> None:
    way = traced(thread.load)
    assert way == re.findall(r"^\d+\. `([\w/]+\.py)`", section("The way of a load"), re.MULTILINE)
