"""The thread that renews the lease of a run inside its block, however long a step takes.

For a worker it also marks the run as running, if that has saved nothing for a moment: most runs save that with their
first step, and need no commit of their own for it.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from backtrail.engines.coroutines import finish
from backtrail.errors import BacktrailError, Unavailable
from backtrail.run.lease import TTL
from backtrail.run.run_core import RunCore


class Heartbeat:
    """Renews the lease of a run until the run is done, or another owner has it: then the next checkpoint is refused.
    `writing` is held by whoever writes to the run."""

    def __init__(self, core: RunCore, writing: threading.Lock) -> None:
        self._core = core
        self._writing = writing
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"backtrail run {core.id}", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Renew no more."""
        self._done.set()

    def stop(self) -> None:
        """End, once a renewal that is under way has ended: one that comes later would take the lease again."""
        self.cancel()
        self._thread.join()

    def _beat(self) -> None:
        if self._core.marked_after and not self._done.wait(self._core.marked_after):
            with suppress(BacktrailError), self._writing:  # the next write of the run raises it
                finish(self._core.mark_running())
        while not self._done.wait(TTL / 3):
            try:
                if not finish(self._core.renew()):
                    return
            except Unavailable:
                continue  # the store may come back before the lease runs out
