"""A run: a thread seen as a durable job.

`run_core` has its state and its commits as coroutines, `recording` the steps it has done, `steps` and `questions` what
a step, a question and a sleep do; `sync_api` and `async_api` are the facades.
"""

from backtrail.run.commands import step_key
from backtrail.run.listing import RUNS, RunInfo
from backtrail.run.model import Done, Failure, Outcome, Pending, Retry, StepInfo
from backtrail.run.questions import answer
from backtrail.run.replaying import Divergence, Replayed
from backtrail.run.run_core import RunCore
from backtrail.run.sync_api import Run

__all__ = [
    "RUNS",
    "Divergence",
    "Done",
    "Failure",
    "Outcome",
    "Pending",
    "Replayed",
    "Retry",
    "Run",
    "RunCore",
    "RunInfo",
    "StepInfo",
    "answer",
    "step_key",
]
