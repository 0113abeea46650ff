"""Runs an agent's own program for a moment, as a server that is asked something and then ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Timer

from backtrail.agents.conversations.model import CannotFork

ENDING = 5.0  # seconds that the program has to end by itself


@contextmanager
def agent_program(
    program: str, *arguments: str, directory: str | None, patience: float, extra: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """The program, with pipes to it. It ends at the end of the block, or after `patience` seconds, with all that it has
    started: what npm installs is often a small program that starts the real one."""
    path = shutil.which(program)
    if path is None:
        raise CannotFork(f"there is no program {program} on the path, and only it can fork its conversations")
    process = subprocess.Popen(
        [path, *arguments],
        cwd=directory,
        env={**os.environ, **(extra or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    timer = Timer(patience, _signal, (process, signal.SIGKILL))  # whoever reads from one that hangs then goes on
    timer.start()
    try:
        yield process
    finally:
        timer.cancel()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):  # it has ended already, and does not take what is left
                    pipe.close()
        _signal(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDING)
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):  # none of the group is left
        os.killpg(process.pid, number)
