"""`backtrail hook AGENT`: the process that an agent starts at each event. It never harms the agent.

Two processes share the work. The first one, which the agent waits for, only starts the second and waits for it, at most
for the time limit; it imports next to nothing, so there is little that can go wrong in it. The second one, in a session
of its own and with none of the agent's pipes, reads the event and saves it (`hook_worker`). It lets the first one go by
closing a pipe: at once if the agent need not wait, when the files are saved if it must. What it writes there first says
that all is well, or is an answer for the agent, or a failure to be told; if it is killed, the pipe has nothing.

The exit code is 0, or 1 if the capture failed: 2 would stop the prompt. Standard output has an answer, or nothing.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

LIMIT_VARIABLE = "BACKTRAIL_HOOK_SECONDS"
DEFAULT_LIMIT = 10.0  #: seconds that an agent waits at most
WORK_LIMIT = 600.0  #: seconds after which the second process ends, whatever it is doing
MAX_ANSWER = 2**20  #: bytes
DONE, ANSWER, FAILURE = b".", b"o", b"e"  #: the first byte in the pipe
PATIENT = b"w"  #: before any of them, up to a NUL: what to print if the answer takes even longer than `PATIENT_LIMIT`
PATIENT_LIMIT = 25.0  #: seconds for a command that was typed as a prompt; agents end the hook after 30


def main(arguments: Sequence[str]) -> NoReturn:
    """Handle one event, and end the process."""
    code = 1
    try:
        _open_standard_streams()
        code = _handle(arguments, time_limit())
    except BaseException as error:  # noqa: BLE001  # whatever it is, the agent must get 0 or 1
        _tell(f"{type(error).__name__}: {error}")
    finally:
        os._exit(code)  # nothing that is left could print, or change the code


def time_limit() -> float:
    """Seconds that an agent waits at most."""
    try:
        seconds = float(os.environ.get(LIMIT_VARIABLE, ""))
    except ValueError:
        return DEFAULT_LIMIT
    return seconds if 0 < seconds <= WORK_LIMIT else DEFAULT_LIMIT


def _handle(arguments: Sequence[str], limit: float) -> int:
    deadline = time.monotonic() + limit
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(reader)
        _work(arguments, writer, deadline)
    os.close(writer)
    told, instead, complete = b"", None, False
    while len(told) <= MAX_ANSWER and select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(reader, 65536)
        if not part:
            complete = True
            break
        told += part
        if told[:1] == PATIENT and b"\0" in told:
            instead, _, told = told[1:].partition(b"\0")
            deadline += max(0.0, PATIENT_LIMIT - limit)
    if complete and told[:1] == ANSWER:
        _write_all(1, told[1:])
    elif instead is not None:
        _write_all(1, instead)
    elif not complete:
        _tell(f"saving takes longer than {limit:g} seconds, and goes on in the background")
        return 1
    elif told[:1] != DONE:
        _tell(told[1:].decode(errors="replace") or "the process that saves was killed")
        return 1
    return 0


def _work(arguments: Sequence[str], pipe: int, deadline: float) -> NoReturn:
    """The second process."""
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)  # an agent waits until nobody has its pipes
        os.dup2(null, 2)
        for name in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(name, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, WORK_LIMIT)
        gc.disable()  # it looks for cycles in ten thousand new objects again and again, and this process ends soon
        _import_msgspec()
        from backtrail.agents.hook_worker import work

        work(arguments, pipe, deadline)
    except BaseException as error:  # noqa: BLE001  # as above: an extra that cannot be imported, a full memory, …
        _write_all(pipe, FAILURE + f"{type(error).__name__}: {error}".encode(errors="replace"))
    finally:
        os._exit(0)


def _import_msgspec() -> None:
    """Import msgspec without `typing_extensions`: it looks there for three names that `typing` has as well, and that
    module, with what it imports, is the largest part of it. Nothing else runs in this process yet."""
    if "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # as documented: it cannot be imported
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


def _open_standard_streams() -> None:
    """Open what the agent has closed: else a pipe of ours could get the number of standard output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _tell(message: str) -> None:
    """Say on standard error that something was not captured: agents show it to the person, and go on."""
    line = " ".join("".join(each if each.isprintable() else " " for each in message).split())
    _write_all(2, f"backtrail: {line[:1000]}; `backtrail agents status` tells more\n".encode(errors="replace"))


def _write_all(handle: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(handle, data) :]
    except OSError as error:
        if handle == 1:  # an answer that nobody reads; of a message on standard error nothing is left to tell
            sys.stderr.write(f"backtrail: {error.strerror}\n")
