"""One file per workload. Each has `run(setting) -> Outcome`; the order here is the order of the report."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from bench.measure import Outcome
from bench.setting import Setting

NAMES = (
    "w1",
    "where",
    "disk",
    "w2",
    "w3",
    "w4",
    "sessions",
    "reads",
    "cold",
    "command",
    "memory",
    "servers",
    "keeping",
    "mirror",
    "files",
)


def load(name: str) -> Callable[[Setting], Outcome]:
    """The workload of that name; imported when it is run, so that one of them can be tried alone."""
    run: Callable[[Setting], Outcome] = import_module(f"bench.workloads.{name}").run
    return run
