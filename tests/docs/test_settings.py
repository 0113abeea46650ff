"""docs/settings.md: every option, variable and limit in its tables is that of the code, and none is missing."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backtrail import options
from backtrail.engines.jsonl import JSONLEngine
from backtrail.engines.postgres import PostgresEngine
from backtrail.engines.redis import RedisEngine
from backtrail.engines.sqlite import SQLiteEngine
from backtrail.replicate.settings import Settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/settings.md").read_text()
OPTIONS = {
    "Of every store": options.StoreOptions,
    "Of a store with a replica": options.MirrorOptions,
    "Of SQLite and JSONL": options.FileOptions,
    "Of Redis": options.RedisOptions,
    "Of PostgreSQL": options.PostgresOptions,
}
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
LIMITS: list[tuple[str, str, str]] = re.findall(
    r"^\| .* \| (\d+)(?: (\w+))? \| `(backtrail\.[\w.]+)` \|$", PAGE, re.MULTILINE
)


def rows(title: str) -> dict[str, str]:
    """The first two cells of each line of the table under a heading."""
    section = re.search(rf"^### {title}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None, title
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section[1], re.MULTILINE))


def written(value: Any) -> str:
    """A default, as the tables have it."""
    if value is None or value == "":
        return "none"
    if isinstance(value, bool) or (isinstance(value, str) and value):
        return f"`{value}`"
    return f"{value:g}"


@pytest.mark.parametrize("title", OPTIONS)
def test_the_options_are_those_of_the_code(title: str) -> None:
    declared = inspect.get_annotations(OPTIONS[title])
    if title in ("Of Redis", "Of PostgreSQL"):
        declared = {**inspect.get_annotations(options.ServerOptions), **declared}
    assert set(rows(title)) == set(declared)


def test_the_defaults_of_a_mirror_are_those_of_the_code() -> None:
    defaults = {field.name: field.default for field in msgspec.structs.fields(Settings)}
    shown = rows("Of a store with a replica")
    assert {name: shown[name] for name in defaults} == {name: written(value) for name, value in defaults.items()}


@pytest.mark.parametrize(
    ("title", "engines"),
    [
        ("Of SQLite and JSONL", (SQLiteEngine, JSONLEngine)),
        ("Of Redis", (RedisEngine,)),
        ("Of PostgreSQL", (PostgresEngine,)),
    ],
    ids=["files", "Redis", "PostgreSQL"],
)
def test_the_defaults_of_engines_are_those_of_the_code(title: str, engines: tuple[type, ...]) -> None:
    parameters = {
        name: parameter.default
        for engine in engines
        for name, parameter in inspect.signature(engine).parameters.items()
        if name in rows(title)
    }
    assert {name: written(value) for name, value in parameters.items()} == rows(title)


def test_the_variables_are_those_of_the_code() -> None:
    table = PAGE.partition("## Environment variables")[2].partition("## Limits")[0]
    sources = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    ours = set(re.findall(r"(?<![A-Z_])BACKTRAIL_[A-Z_]*[A-Z]", sources))
    assert set(re.findall(r"^\| `(BACKTRAIL_\w+)`", table, re.MULTILINE)) == ours
    for name in re.findall(r"`(XDG_\w+)`", table):
        assert name in sources


@pytest.mark.parametrize(
    ("number", "unit", "name"), LIMITS, ids=[name.removeprefix("backtrail.") for *_, name in LIMITS]
)
def test_every_limit_is_that_of_the_code(number: str, unit: str, name: str) -> None:
    module, _, constant = name.rpartition(".")
    if module.rpartition(".")[2][0].isupper():  # a field of a class
        module, _, owner = module.rpartition(".")
        fields = msgspec.structs.fields(getattr(importlib.import_module(module), owner))
        value = next(field.default for field in fields if field.name == constant)
    else:
        value = getattr(importlib.import_module(module), constant)
    assert value == int(number) * UNITS.get(unit, 1)


def test_no_line_of_the_limits_is_left_out_of_the_comparison() -> None:
    limits = PAGE.partition("## Limits")[2]
    lines = [line for line in re.findall(r"^\| .*", limits, re.MULTILINE) if not re.match(r"\| (what|---)", line)]
    assert len(lines) == len(LIMITS) >= 25
