"""The second process of the hook: reads the event, lets the agent go on when it may, and saves the event.

An agent must wait at a prompt, until the files are saved as they were before it, and before it compacts its
conversation. It need not wait at the end of a turn, and at the start and the end of a session: it goes on as soon as
this process holds the session, and the next event waits for that (`session_lock`).
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Sequence

from backtrail.agents import hook_log, prompt_commands
from backtrail.agents.events import MAX_PAYLOAD, Event, check_agent, read_event
from backtrail.agents.hook import ANSWER, DONE, FAILURE, PATIENT, WORK_LIMIT
from backtrail.agents.session_lock import session_lock
from backtrail.errors import BacktrailError, InvalidInput

_NO_ANSWER = "backtrail takes too long, or has failed: look with `backtrail log` in a terminal"
WAITS = ("prompt", "compact")  #: events at which the agent waits until they are saved
_PATIENCE = 300.0  # seconds to wait for the process that handles the event before, if the agent has gone on


def work(arguments: Sequence[str], pipe: int, deadline: float) -> None:
    """Handle one event; `pipe` lets the agent go on, at `deadline` it goes on by itself."""
    started = time.monotonic()
    told: dict[str, object] = {"agent": " ".join(arguments)[:40]}
    outcome: dict[str, object] = {}
    event: Event | None = None
    try:
        if len(arguments) != 1:
            raise InvalidInput("use it as `backtrail hook AGENT`, with the event on standard input")
        event = read_event(check_agent(arguments[0]), _read_input(deadline))
        if event is None:
            _release(pipe, DONE)
            return
        told = {"agent": event.agent, "event": event.name, "session": event.session_id}
        outcome = _save(event, pipe, deadline)
    except (BacktrailError, OSError) as error:
        outcome = {"error": f"{type(error).__name__}: {error}"}
        if event is not None and prompt_commands.parse(event.prompt) is not None:
            _release(pipe, ANSWER, prompt_commands.decision(event, str(error)))
        else:
            _release(pipe, FAILURE, f"this event was not captured: {error}")
    except BaseException as error:
        outcome = {"error": f"{type(error).__name__}: {error}"}
        raise
    finally:
        if outcome:
            took, worked = time.monotonic() - started, time.process_time()
            hook_log.write(**told, **outcome, ms=round(1000 * took), cpu_ms=round(1000 * worked))


def _save(event: Event, pipe: int, deadline: float) -> dict[str, object]:
    """Answer or capture the event; returns what the log says of it."""
    command = prompt_commands.parse(event.prompt)
    if command is not None:
        os.write(pipe, PATIENT + prompt_commands.decision(event, _NO_ANSWER).encode() + b"\0")
    with session_lock(event.thread_id, _PATIENCE):
        waits = event.kind in WAITS
        if not waits:
            _release(pipe, DONE)
        from backtrail.agents.capture import capture  # the agent has gone on, if it may, before this is imported
        from backtrail.agents.user_store import open_user_store

        with open_user_store() as store:
            if command is not None:
                _release(pipe, ANSWER, prompt_commands.answer(store, event, command))
                return {"answered": command.verb}
            captured = capture(store, event, deadline if waits else None)
    _release(pipe, DONE)
    saved = captured.checkpoint
    outcome: dict[str, object] = {"checkpoint": None if saved is None else saved.id}
    if captured.files_missing is not None:
        outcome["files_missing"] = captured.files_missing
    if captured.behind:
        outcome["behind"] = captured.behind
    return outcome


def _read_input(deadline: float) -> bytes:
    """Standard input to its end. One that has none is not read for ever: this process ends soon after the agent has
    gone on, and too much of it is refused."""
    signal.setitimer(signal.ITIMER_REAL, max(1.0, deadline + 1.0 - time.monotonic()))
    data = bytearray()
    while len(data) <= MAX_PAYLOAD and (part := os.read(0, 2**20)):
        data += part
    signal.setitimer(signal.ITIMER_REAL, WORK_LIMIT)
    os.dup2(1, 0)  # the agent waits until nobody has its pipes
    return bytes(data)


def _release(pipe: int, what: bytes, text: str = "") -> None:
    """Let the first process go; it does nothing the second time. The number stays taken, so that no other file of this
    process can get it."""
    data = what + text.encode(errors="replace")
    try:
        while data:
            data = data[os.write(pipe, data) :]
    except OSError as error:
        if error.errno != errno.EPIPE:  # else the first one has not waited that long
            raise
    finally:
        os.dup2(1, pipe)
