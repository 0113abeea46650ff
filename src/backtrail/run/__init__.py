"""A run: a thread seen as a resumable job. `run_core` has its operations as coroutines, `sync_api` and `async_api` the
facades."""

from backtrail.run.listing import RUNS, RunInfo
from backtrail.run.run_core import RunCore
from backtrail.run.sync_api import Run

__all__ = ["RUNS", "Run", "RunCore", "RunInfo"]
