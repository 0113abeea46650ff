"""A run: a thread seen as a resumable job. `sync` and `aio` are the public classes, `core` does the work."""

from backtrail.run.core import RunCore, RunInfo, list_runs
from backtrail.run.sync import Run

__all__ = ["Run", "RunCore", "RunInfo", "list_runs"]
