"""Durable runs for the inspector: their steps as a timeline, what waits for an answer, and the answers."""

from __future__ import annotations

from backtrail import InvalidInput, Store, ThreadNotFound
from backtrail.render.json_records import PendingJson, failure_json, pending_json, step_json, thread_json, time_json
from backtrail.render.jsonable import from_json, to_json, truncate
from backtrail.server import requests, responses

_SHOWN_VALUE = 20_000  # characters of a result
_SHOWN_STEPS = 2_000


class Runs:
    """Reads runs of one store, and answers their questions."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self, request: requests.ThreadRequest) -> responses.RunResponse:
        """A run: how it stands, its steps, and what it waits for. `status` is null if the thread is no run."""
        info = next((one for one in self._store.threads(request.thread, limit=1) if one.id == request.thread), None)
        if info is None:
            raise ThreadNotFound(request.thread)
        if info.kind != "run":
            return {
                "status": None,
                "task": "",
                "result": None,
                "error": None,
                "due_at": None,
                "steps": [],
                "steps_total": 0,
                "questions": [],
            }
        run = self._store.run(request.thread)
        outcome, steps = run.outcome(), run.steps()
        task = self._store.thread(request.thread).pick(["task"]).get("task")
        return {
            "status": outcome.status,
            "task": task if isinstance(task, str) else "",
            "result": truncate(to_json(outcome.result), _SHOWN_VALUE),
            "error": failure_json(outcome.error),
            "due_at": time_json(outcome.due_at),
            "steps": [truncate(step_json(step), _SHOWN_VALUE) for step in steps[-_SHOWN_STEPS:]],
            "steps_total": len(steps),
            "questions": [one for one in self._pending(request.thread) if one["run_id"] == request.thread],
        }

    def pending(self, request: requests.PendingRequest) -> responses.PendingResponse:
        """Questions that wait for an answer, newest first."""
        return {"questions": self._pending(request.prefix, request.limit)}

    def _pending(self, prefix: str, limit: int = 1000) -> list[PendingJson]:
        return [truncate(pending_json(one), _SHOWN_VALUE) for one in self._store.pending(prefix, limit=limit)]

    def answer(self, request: requests.AnswerRequest) -> responses.RunResponse:
        """Answer a question of a run. The first answer counts; `digest` is that of the question that was shown."""
        self._store.answer(request.thread, request.name, from_json(request.value), by=request.by, digest=request.digest)
        return self.run(requests.ThreadRequest(thread=request.thread))

    def fork_at(self, request: requests.RunForkRequest) -> responses.ForkResponse:
        """Start a new run that has all steps before one."""
        made = self._store.run(request.thread).fork(request.to, step=request.step)
        info = self._store.threads(made.id, limit=1)[0]
        return {"thread": thread_json(info)}

    def resubmit(self, request: requests.ThreadRequest) -> responses.RunResponse:
        """Make a failed run ready again, for a worker to take up."""
        if self.run(request)["status"] is None:
            raise InvalidInput(f"thread {request.thread!r} is no run")
        self._store.resubmit(request.thread)
        return self.run(request)
