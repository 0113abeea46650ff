"""The workloads: one file each, with `run(context) -> Outcome`.

A workload has a short label, under which `--only` takes it and its numbers are kept; W1 to W4 are the labels of the
tables. The order here is the order of the report.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from bench.measure import Outcome
from bench.run_context import RunContext

_MODULES = {
    "w1": "long_conversation",
    "where": "append_breakdown",
    "disk": "bytes_on_disk",
    "w2": "many_threads",
    "w3": "concurrent_writers",
    "w4": "chat",
    "sessions": "sessions",
    "reads": "reads",
    "cold": "cold_append",
    "command": "command_line",
    "memory": "memory_per_thread",
    "servers": "long_conversation_on_servers",
    "keeping": "codecs_prune_copy",
    "mirror": "mirror_cost",
    "runs": "durable_runs",
    "pending": "pending_questions",
    "files": "workspace_vs_git",
    "hook": "agent_hook",
    "scale": "ten_times_larger",
}
NAMES = tuple(_MODULES)
FULL = tuple(name for name in NAMES if name != "scale")  #: those of a full run; `scale` only on request
#: Those of a quick run. Files, and many runs, take long even at a quarter of their number.
QUICK = tuple(name for name in FULL if name not in ("files", "pending"))


def load(name: str) -> Callable[[RunContext], Outcome]:
    """The workload with that label. It is imported only when it runs, so that one can be run alone."""
    run: Callable[[RunContext], Outcome] = import_module(f"bench.workloads.{_MODULES[name]}").run
    return run
