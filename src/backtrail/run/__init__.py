"""A run: a thread seen as a resumable job. `core` says what that means, `doors` and `awaited` say it in two colours."""

from backtrail.run.core import RunCore, RunInfo, list_runs
from backtrail.run.sync import Run

__all__ = ["Run", "RunCore", "RunInfo", "list_runs"]
