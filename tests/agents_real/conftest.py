"""Fixtures: the programs in the cache, a model server, and a home for each test with backtrail's hooks installed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .model_server import ModelServer, model_server
from .programs import AGENTS, AgentHome, version


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("agents")


def pytest_report_header() -> str:
    cache = os.environ.get("BACKTRAIL_TEST_PROGRAMS")
    return "" if cache is None else ", ".join(f"{agent} {version(Path(cache), agent)}" for agent in AGENTS)


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server


@pytest.fixture
def make_home(tmp_path: Path, model: ModelServer) -> Callable[..., AgentHome]:
    """Makes a home with the hooks of some agents installed by `backtrail agents install`."""

    def make(*agents: str, hooks: bool = True) -> AgentHome:
        home = AgentHome(tmp_path, Path(os.environ["BACKTRAIL_TEST_PROGRAMS"]), model.url)
        if hooks:
            home.run("backtrail", "agents", "install", *agents, "--yes")
        return home

    return make
