"""Child processes for tests: forked, so that hundreds of them start within a second; or scripts that are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable


class Child:
    """A forked process that runs `work`, and what it sends back through a pipe."""

    def __init__(self, work: Callable[[Callable[[bytes], None]], None], *, user: int | None = None) -> None:
        self._out, into = os.pipe()
        with warnings.catch_warnings():
            # Newer Pythons warn of forks beside threads, which is just what some tests are about.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid:
            os.close(into)
            return
        status = 1
        try:
            os.close(self._out)
            if user is not None and os.geteuid() == 0:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            work(lambda data: _send(into, data))
            status = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode())
            raise
        finally:
            os._exit(status)

    def read(self, size: int) -> bytes:
        """The next bytes that the child sends; fewer at its end."""
        found = b""
        while len(found) < size and (more := os.read(self._out, size - len(found))):
            found += more
        return found

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it; nothing happens if it has ended."""
        os.kill(self.pid, number)  # until `end`, nobody else gets its number

    def ended(self) -> bool:
        """Whether it has ended; `end` still has to be called."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def kill(self) -> bytes:
        """SIGKILL, then everything it had still sent."""
        self.signal(signal.SIGKILL)
        return self.end()[1]

    def end(self) -> tuple[int, bytes]:
        """Wait; the exit status and everything it had still sent."""
        sent = b""
        while more := os.read(self._out, 1 << 16):
            sent += more
        os.close(self._out)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1]), sent


def _send(into: int, data: bytes) -> None:
    while data:
        data = data[os.write(into, data) :]


def run(work: Callable[[Callable[[bytes], None]], None], *, user: int | None = None) -> bytes:
    """Run `work` in a child to its end, which must be a good one; what it sent."""
    status, sent = Child(work, user=user).end()
    assert status == 0, f"the child ended with {status}: see its traceback above"
    return sent


def kill_at_work(script: str, *arguments: list[str]) -> None:
    """Run a script in several processes at once, each with its arguments, and kill them all when each of them has
    printed that it is busy."""
    children = [subprocess.Popen([sys.executable, "-c", script, *given], stdout=subprocess.PIPE) for given in arguments]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == b"busy\n"
    for child in children:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()
