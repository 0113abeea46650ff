"""The public classes as a type checker sees them. The files in `tests/types` are never run, only checked: by mypy here,
and by mypy and pyright in `make types`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from mypy import api

import backtrail
import backtrail.aio
from backtrail.engines import STORE_OPTIONS
from backtrail.engines.base import Engine
from backtrail.engines.jsonl import JSONLEngine
from backtrail.engines.memory import MemoryEngine
from backtrail.engines.postgres import PostgresEngine
from backtrail.engines.redis import RedisEngine
from backtrail.engines.sqlite import SQLiteEngine
from backtrail.factory import MIRROR_OPTIONS
from backtrail.options import FileOptions, MirrorOptions, Options, PostgresOptions, RedisOptions, StoreOptions
from backtrail.replicate.settings import Settings
from backtrail.replicate.status import Status

ROOT = Path(__file__).parents[1]
ENGINES: list[tuple[type[Engine], type]] = [
    (SQLiteEngine, FileOptions),
    (JSONLEngine, FileOptions),
    (RedisEngine, RedisOptions),
    (PostgresEngine, PostgresOptions),
]


def hints(options: Any) -> dict[str, Any]:
    return get_type_hints(options, localns={"Status": Status})


def keywords(engine: type[Engine]) -> set[str]:
    """The options of an engine, as `backtrail.engines.connect` finds them."""
    parameters = inspect.signature(engine).parameters.values()
    return {each.name for each in parameters if each.kind is each.KEYWORD_ONLY} - {"asynchronous"}


@pytest.mark.slow
def test_right_calls_are_accepted_and_wrong_calls_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # where the settings of mypy are
    told, failed, status = api.run(["--strict", "--no-error-summary", "tests/types"])
    assert (status, told, failed) == (0, "", "")


def test_open_takes_the_options_of_all_engines_and_no_other() -> None:
    assert hints(StoreOptions).keys() == STORE_OPTIONS
    assert hints(MirrorOptions).keys() == MIRROR_OPTIONS
    for engine, options in ENGINES:
        assert keywords(engine) <= hints(options).keys(), engine
    known = set().union(*(keywords(engine) for engine, _ in ENGINES), keywords(MemoryEngine))
    assert hints(Options).keys() == STORE_OPTIONS | MIRROR_OPTIONS | known


@pytest.mark.parametrize(("engine", "options"), ENGINES)
def test_an_option_has_the_type_that_its_engine_gives_it(engine: type[Engine], options: type) -> None:
    given = get_type_hints(engine.__init__)
    assert {name: hints(options)[name] for name in keywords(engine)} == {name: given[name] for name in keywords(engine)}


def test_an_option_of_a_mirror_has_the_type_of_its_setting() -> None:
    given = get_type_hints(Settings)
    for name in MIRROR_OPTIONS - {"replica", "on_change", "spool"}:  # what on_change is called with is Any there
        assert hints(MirrorOptions)[name] == given[name], name
    assert hints(MirrorOptions)["spool"] | Engine == given["spool"]  # an open engine is for tests of the mirror itself


@pytest.mark.parametrize("open", [backtrail.open, backtrail.aio.open])
def test_open_shows_its_options_to_an_editor(open: Any) -> None:
    assert inspect.signature(open).parameters["options"].annotation == "Unpack[Options]"
