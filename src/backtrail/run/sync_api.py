"""`Run`: a thread seen as a resumable job. Inside `with`, a thread renews the lease: iterations may be long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any

from backtrail.engines.coroutines import finish
from backtrail.errors import Unavailable
from backtrail.history.thread_lock import POLL
from backtrail.model import At, Checkpoint
from backtrail.run.run_core import TTL, RunCore
from backtrail.thread import Thread
from backtrail.thread.views import ThreadView
from backtrail.typing import Files

Raised = type[BaseException] | None


class Attributes:
    """The state of a run as plain attributes, for `Run` and `AsyncRun`."""

    _core: RunCore

    @property
    def id(self) -> str:
        """The name of the run."""
        return self._core.id

    @property
    def task(self) -> str:
        """The task of the run, "" if it has none."""
        return self._core.task

    @property
    def iteration(self) -> int:
        """The number of iterations that were saved."""
        return self._core.iteration

    @property
    def messages(self) -> list[Any]:
        """The conversation; it may be changed in place, and is saved by the next checkpoint."""
        return self._core.messages

    @messages.setter
    def messages(self, messages: list[Any]) -> None:
        self._core.messages = messages

    @property
    def system_prompt(self) -> str:
        """The system prompt; a new one is saved by the next checkpoint."""
        return self._core.system_prompt

    @system_prompt.setter
    def system_prompt(self, text: str) -> None:
        self._core.system_prompt = text

    @property
    def input_tokens(self) -> int:
        """The total of input tokens; a new one is saved by the next checkpoint."""
        return self._core.input_tokens

    @input_tokens.setter
    def input_tokens(self, total: int) -> None:
        self._core.input_tokens = total

    @property
    def output_tokens(self) -> int:
        """The total of output tokens; a new one is saved by the next checkpoint."""
        return self._core.output_tokens

    @output_tokens.setter
    def output_tokens(self, total: int) -> None:
        self._core.output_tokens = total

    @property
    def custom(self) -> dict[str, Any]:
        """Other fields of the run: a model's name, the first prompt, a count of errors."""
        return self._core.custom


class Run(Attributes, ThreadView):
    """A thread seen as a resumable job: `with` resumes it, deletes it on success and keeps it on failure.

    with store.run("run-7", task="nightly") as run:
        while run.iteration < 10:
            run.messages.append(step(run.messages))
            run.checkpoint()
    """

    def __init__(self, core: RunCore, timeout: float = 0.0) -> None:
        self._core = core
        self.thread: Thread[dict[str, Any]] = Thread(core.thread)  #: the same run, as checkpoints
        self._timeout = timeout
        self._done = threading.Event()
        self._heart: threading.Thread | None = None

    def exists(self) -> bool:
        """True if there is a checkpoint to resume from."""
        return finish(self._core.exists())

    def resume(self) -> Checkpoint:
        """Fill the attributes with the last checkpoint, and return it.

        `ThreadNotFound` is raised if there is none, `LockTimeout` if a process is working on the run, and `Corrupt` for
        a damaged one, which is never mistaken for a new run.
        """
        return finish(self._core.resume())

    def checkpoint(
        self,
        /,
        messages: list[Any] | tuple[Any, ...] | None = None,
        *,
        iteration: int | None = None,
        system_prompt: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        label: str | None = None,
        tags: Iterable[str] = (),
        files: Files | None = None,
        **custom: Any,
    ) -> Checkpoint:
        """Save the run after an iteration; values that are not given are taken from the attributes.

            run.checkpoint(input_tokens=1200, model="small")

        The iteration goes up by one. Token counts are totals; `label`, `tags` and `files` are as in `thread.save`, and
        other keywords are kept in `run.custom`.
        """
        return finish(
            self._core.checkpoint(
                messages,
                iteration=iteration,
                system_prompt=system_prompt,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                label=label,
                tags=tags,
                files=files,
                **custom,
            )
        )

    def rewind(self, at: At) -> Checkpoint:
        """Go back to a checkpoint of the run, and fill the attributes with it; `LockTimeout` if a process works on it.

        run.rewind("@~2")
        """
        return finish(self._core.rewind(at))

    def undo(self) -> Checkpoint:
        """Take back the last checkpoint or rewind, and fill the attributes with the one before."""
        return finish(self._core.undo())

    def redo(self) -> Checkpoint:
        """Do again what the last `undo` took back, and fill the attributes with it."""
        return finish(self._core.redo())

    def finish(self) -> None:
        """Delete the run, because it succeeded; a missing run is not an error."""
        finish(self._core.finish())

    def __enter__(self) -> Run:
        start = time.monotonic()
        while (taken := finish(self._core.acquire())) is not None:
            waited = time.monotonic() - start
            if waited >= self._timeout:
                raise self._core.refused(round(waited, 2), taken)
            time.sleep(min(POLL, self._timeout - waited))
        try:
            finish(self._core.start())
        except BaseException:
            finish(self._core.release())
            raise
        self._done.clear()
        self._heart = threading.Thread(target=self._beat, name=f"backtrail run {self.id}", daemon=True)
        self._heart.start()
        return self

    def _beat(self) -> None:
        """Renew the lease until the run is done, or another owner has it: then the next checkpoint is refused."""
        while not self._done.wait(TTL / 3):
            try:
                if not finish(self._core.renew()):
                    return
            except Unavailable:
                continue  # the store may come back before the lease runs out

    def __exit__(self, kind: Raised, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done.set()
        if self._heart is not None:
            self._heart.join()
        try:
            if kind is None:
                finish(self._core.finish())
        finally:
            finish(self._core.release())

    def __repr__(self) -> str:
        return f"<backtrail.Run {self.id!r} iteration {self.iteration}>"
