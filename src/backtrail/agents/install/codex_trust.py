"""Asks Codex whether a person has approved our hook there. Codex skips, without a word, a hook that nobody approved.

Codex tells it by its own server, `codex app-server`, in JSON-RPC over standard input and output. Nothing is approved
here: that is the person's.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from typing import Any, Literal

from backtrail.agents.install.programs import Program, is_our_command

Trust = Literal["trusted", "untrusted", "unknown"]
_SECONDS = 15.0
_MAX_ANSWER = 8 * 2**20
_TRUSTED = {"trusted", "managed"}


def trust(program: Program, directory: str) -> Trust:
    """`trusted` if all of our hooks are; `unknown` if Codex does not tell."""
    answer = _ask(program, "hooks/list", {"cwds": [directory]})
    hooks = [hook for place in _list(answer, "data") for hook in _list(place, "hooks") if isinstance(hook, dict)]
    ours = [hook for hook in hooks if is_our_command(hook.get("command"), "codex")]
    if not ours:
        return "unknown"
    approved = all(hook.get("trustStatus") in _TRUSTED and hook.get("enabled") is not False for hook in ours)
    return "trusted" if approved else "untrusted"


def _list(value: Any, key: str) -> list[Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, list) else []


def _ask(program: Program, method: str, params: dict[str, Any]) -> Any:
    """The result of one request; None if there is none in time."""
    if program.executable is None:
        return None
    try:
        server = subprocess.Popen(
            [program.executable, "app-server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "CODEX_HOME": str(program.home)},
        )
    except OSError:
        return None
    client = {"clientInfo": {"name": "backtrail", "title": "backtrail", "version": "1"}}
    requests = [
        {"id": 0, "method": "initialize", "params": client},
        {"method": "initialized"},
        {"id": 1, "method": method, "params": params},
    ]
    assert server.stdin is not None and server.stdout is not None
    try:
        server.stdin.write(b"".join(json.dumps(each).encode() + b"\n" for each in requests))
        server.stdin.flush()
        return _answer(server.stdout.fileno())
    except OSError:
        return None
    finally:
        server.kill()
        with contextlib.suppress(OSError):
            server.stdin.close()
        server.stdout.close()
        server.wait()


def _answer(handle: int) -> Any:
    """The result of request 1, from what the server writes."""
    deadline = time.monotonic() + _SECONDS
    data = b""
    while len(data) < _MAX_ANSWER and select.select([handle], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(handle, 65536)
        if not part:
            return None
        *lines, data = (data + part).split(b"\n")
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError:
                continue  # a line that is not of the protocol
            if isinstance(message, dict) and message.get("id") == 1:
                return message.get("result")
    return None
