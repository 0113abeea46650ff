"""The recorded payloads, mutated in every field, through the whole hook: 0 or 1, no traceback, nothing on stdout.

The hook is run as an agent runs it, but for the start of Python: it is forked off this process, so that hundreds of
payloads take seconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from backtrail.agents import capture, hook, hook_worker
from backtrail.agents.events import AGENTS, HOOK_EVENTS, Agent
from backtrail.agents.sessions import AgentSession
from backtrail.agents.user_store import open_user_store

from .conftest import PAYLOADS, FakeAgent, wait_for_events

__all__ = ["capture", "hook_worker"]  # imported once, and not in each fork

HUGE = "x" * 2_000_000
DEEP: Any = json.loads("[" * 500 + "]" * 500)
ODD_VALUES: list[Any] = [
    None,
    True,
    -1,
    1e308,
    10**40,
    "",
    "\0",
    "\ud800",
    HUGE,
    [],
    ["a"],
    {},
    {"a": {"b": [1]}},
    DEEP,
]
NAMES: list[Any] = ["NoSuchEvent", "stop", "Stop\n", "PreToolUse", "__class__", 3, None, ["Stop"]]


class Ran(NamedTuple):
    code: int
    out: bytes
    err: bytes


def forked_hook(agent: Agent, payload: bytes, folder: Path) -> Ran:
    """Run the hook in a fork of this process, with `folder` as its directory, and wait for both of its processes."""
    streams = [folder.parent / f"std{number}" for number in range(3)]
    streams[0].write_bytes(payload)
    ended, alive = os.pipe()  # nobody has its other end any more when both processes are gone
    if not (child := os.fork()):
        os.chdir(folder)
        for number, path in enumerate(streams):
            os.dup2(os.open(path, os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        hook.main([agent])
    os.close(alive)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.read(ended, 1)
    os.close(ended)
    return Ran(code, streams[1].read_bytes(), streams[2].read_bytes())


def recorded(agent: Agent, folder: Path) -> list[dict[str, Any]]:
    """One payload of each event, as it was recorded, with paths of this test; opencode's are those of our plugin."""
    place = {"cwd": str(folder), "transcript_path": str(folder.parent / "transcript.jsonl")}
    if agent == "opencode":
        said = {"info": {"id": "msg_1", "role": "user"}, "parts": [{"type": "text", "text": "hello"}]}
        common = {
            "session_id": "ses_1",
            "cwd": str(folder),
            "messages": [said],
            "prompt": "do it",
            "message_id": "msg_1",
        }
        return [{**common, "hook_event_name": name} for name in HOOK_EVENTS["opencode"]]
    lines = [json.loads(line) for line in (PAYLOADS / f"{agent}.jsonl").read_text().splitlines()]
    first = {line["hook_event_name"]: {**line, **place} for line in reversed(lines)}
    return [first[name] for name in sorted(first)]


def mutated(payload: dict[str, Any]) -> Iterator[bytes]:
    """The payload with each field missing, of other types, huge; with other events; cut, and with bytes in between."""
    whole = json.dumps(payload).encode()
    for key in payload:
        yield json.dumps({other: value for other, value in payload.items() if other != key}).encode()
        yield from (json.dumps({**payload, key: odd}).encode() for odd in ODD_VALUES)
    yield from (json.dumps({**payload, "hook_event_name": name}).encode() for name in NAMES)
    yield json.dumps({**payload, **{f"new_field_{n}": [n, HUGE[:1000]] for n in range(100)}}).encode()
    yield from (whole[:length] for length in range(0, len(whole), len(whole) // 7))
    yield from (whole[: len(whole) // 2] + bytes(noise) + whole[len(whole) // 2 :] for noise in ([0], [255, 254], [10]))
    yield json.dumps([payload]).encode()
    yield b"\xef\xbb\xbf" + whole
    yield whole.decode().encode("utf-16")


def check_harmless(ran: Ran, payload: bytes) -> None:
    shown = payload[:300]
    assert ran.code in (0, 1), (ran, shown)
    assert ran.out == b"", (ran, shown)
    assert b"Traceback" not in ran.err and ran.err.count(b"\n") == ran.code, (ran, shown)


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_a_mutated_payload_does_no_harm_and_the_next_turn_is_captured(agent: Agent, tmp_path: Path) -> None:
    folder = FakeAgent(tmp_path, agent, "after-all").project
    with open_user_store():
        pass  # so that this process has imported what each fork needs
    payloads = recorded(agent, folder)
    tried = 0
    for number, payload in enumerate(payloads):
        for odd in list(mutated(payload))[number :: len(payloads)]:  # each mutation at one event or another
            check_harmless(forked_hook(agent, odd, folder), odd)
            tried += 1
    assert tried > 100
    good = FakeAgent(tmp_path, agent, "after-all")
    begins, ends = (next(n for n, kind in HOOK_EVENTS[agent].items() if kind == k) for k in ("prompt", "turn_end"))
    for name in (begins, ends):
        whole = good.payload(name, prompt="go on", prompt_id="id-1")
        assert forked_hook(agent, whole, folder) == Ran(0, b"", b"")
    with open_user_store() as store:
        found = store.verify()
        assert found.ok, found
        (turn,) = AgentSession(store, agent, "after-all").turns()
        assert (turn.prompt, turn.interrupted) == ("go on", False)
    assert "error" not in wait_for_events(2)[-1]


@pytest.mark.parametrize("agent", AGENTS)
def test_recorded_payloads_as_they_are_end_with_0(agent: Agent, tmp_path: Path) -> None:
    folder = FakeAgent(tmp_path, agent).project
    for payload in recorded(agent, folder):
        whole = json.dumps(payload).encode()
        assert forked_hook(agent, whole, folder) == Ran(0, b"", b""), payload["hook_event_name"]
