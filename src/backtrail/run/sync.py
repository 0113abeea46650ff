"""The blocking door of a run. Inside `with`, a thread renews the lease: an iteration may take as long as it likes."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from backtrail.engines.drive import finish
from backtrail.errors import Unavailable
from backtrail.history.lock import POLL
from backtrail.run.core import TTL, RunCore
from backtrail.runner import blocking

if TYPE_CHECKING:
    from backtrail.store import Thread

Raised = type[BaseException] | None


class Attributes:
    """What both doors have: the state of the run as plain attributes."""

    core: RunCore

    @property
    def id(self) -> str:
        """The name of the run."""
        return self.core.id

    @property
    def task(self) -> str:
        """What the run is for, "" if it has no name."""
        return self.core.task

    @property
    def iteration(self) -> int:
        """How many iterations were saved."""
        return self.core.iteration

    @property
    def messages(self) -> list[Any]:
        """The conversation; it may be added to in place, and is saved by the next checkpoint."""
        return self.core.messages

    @messages.setter
    def messages(self, messages: list[Any]) -> None:
        self.core.messages = messages

    @property
    def system_prompt(self) -> str:
        """The system prompt; setting it is saved by the next checkpoint."""
        return self.core.system_prompt

    @system_prompt.setter
    def system_prompt(self, text: str) -> None:
        self.core.system_prompt = text

    @property
    def input_tokens(self) -> int:
        """Tokens read so far."""
        return self.core.input_tokens

    @input_tokens.setter
    def input_tokens(self, total: int) -> None:
        self.core.input_tokens = total

    @property
    def output_tokens(self) -> int:
        """Tokens written so far."""
        return self.core.output_tokens

    @output_tokens.setter
    def output_tokens(self, total: int) -> None:
        self.core.output_tokens = total

    @property
    def custom(self) -> dict[str, Any]:
        """Whatever else belongs to the run: a model's name, the first prompt, a count of errors."""
        return self.core.custom


class Run(Attributes):
    """A thread seen as a resumable job: `with` resumes it, deletes it on success and keeps it on failure.

    with store.run("run-7", task="nightly") as run:
        while run.iteration < 10:
            run.messages.append(step(run.messages))
            run.checkpoint()
    """

    def __init__(self, core: RunCore, thread: Thread[Any], timeout: float = 0.0) -> None:
        self.core = core
        self.thread = thread  #: the same run, as checkpoints
        self._timeout = timeout
        self._done = threading.Event()
        self._heart: threading.Thread | None = None

    exists = blocking(RunCore.exists)
    resume = blocking(RunCore.resume)
    checkpoint = blocking(RunCore.checkpoint)
    finish = blocking(RunCore.finish)

    def __enter__(self) -> Run:
        start = time.monotonic()
        while (taken := finish(self.core.take())) is not None:
            waited = time.monotonic() - start
            if waited >= self._timeout:
                raise self.core.refused(round(waited, 2), taken)
            time.sleep(min(POLL, self._timeout - waited))
        try:
            finish(self.core.start())
        except BaseException:
            finish(self.core.release())
            raise
        self._done.clear()
        self._heart = threading.Thread(target=self._beat, name=f"backtrail run {self.id}", daemon=True)
        self._heart.start()
        return self

    def _beat(self) -> None:
        """Renew the lease until the run is done, or another has it: then the next checkpoint is refused."""
        while not self._done.wait(TTL / 3):
            try:
                if not finish(self.core.renew()):
                    return
            except Unavailable:
                continue  # the store may come back before the lease runs out

    def __exit__(self, kind: Raised, error: BaseException | None, trace: TracebackType | None) -> None:
        self._done.set()
        if self._heart is not None:
            self._heart.join()
        try:
            if kind is None:
                finish(self.core.finish())
        finally:
            finish(self.core.release())

    def __repr__(self) -> str:
        return f"<backtrail.Run {self.id!r} iteration {self.iteration}>"
