"""The real programs and their hooks, killed at every point of a turn: what was saved stays, and work goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from .gates import EVENTS, DoomedHook, Gate, kill_everything, wait_until
from .model_server import ModelServer
from .programs import AGENTS, AgentHome, prompt_command
from .test_going_back import MakeHome, backtrail, contents, newest_session, turns_of

Agent = subprocess.Popen[str]
COMMAND = "echo half > a.txt; echo new > b.txt"
BEGUN = f"touch ../begun; sleep 900; {COMMAND}"
WROTE = f"{COMMAND}; touch ../begun; sleep 900"

#: Where the agent is, and what the second turn's shell command is.
MOMENTS = {
    "session start": ("start before", COMMAND),
    "prompt hook begun": ("prompt before", COMMAND),
    "prompt hook ended": ("prompt after", COMMAND),
    "model asked": ("asked PROMPT-two", COMMAND),
    "tool begun": ("tool", BEGUN),
    "tool wrote": ("tool", WROTE),
    "model asked again": (f"asked ran {COMMAND}", COMMAND),
    "end hook begun": ("end before", COMMAND),
    "end hook ended, between turns": ("end after", COMMAND),
    "leaving": ("leave before", COMMAND),
}
UNKNOWN = ("session start", "prompt hook begun")  # moments at which nobody has told backtrail of the turn
EMPTIED = ("gemini", "session start")  # it empties its transcript, and fills it again when the hook has ended
CASES = [
    (agent, moment)
    for agent in AGENTS
    for moment, (place, _) in MOMENTS.items()
    if EVENTS[agent].get(place.partition(" ")[0], "") is not None and (agent, moment) != EMPTIED
]


def play_until(home: AgentHome, agent: str, session: str, moment: str, model: ModelServer, gate: Gate) -> Agent:
    """Begin the second turn, and come to a moment of it."""
    place, command = MOMENTS[moment]
    kind, _, rest = place.partition(" ")
    event = EVENTS[agent].get(kind)
    if event is not None:
        gate.close(event, rest)
    elif kind == "asked":
        model.hold = rest
    process = home.start(*prompt_command(agent, f"PROMPT-two RUN:{command} ENDRUN", session))
    reached = {"asked": model.holding.is_set, "tool": (home.project.parent / "begun").exists}.get(kind, gate.reached)
    wait_until(reached, process)
    return process


def check_that_work_goes_on(home: AgentHome, agent: str, session: str, model: ModelServer, *, known: bool) -> None:
    """The store is whole, so is the first turn, the next prompt is captured, and a rewind brings back both halves."""
    thread = f"{agent}/{session}"
    home.run("backtrail", "verify", "-s", str(home.home / ".local/share/backtrail/agents.db"))
    assert [change["path"] for change in backtrail(home, "diff", thread, "1")["files"]] == ["a.txt"]
    on_disk = contents(home)
    home.prompt(agent, "PROMPT-next RUN:echo next > c.txt ENDRUN", session)
    assert model.last_shown("PROMPT-next")[:2] == ["PROMPT-one", "ran echo one > a.txt"]
    prompts = turns_of(home)
    assert prompts in (["PROMPT-one", "PROMPT-two", "PROMPT-next"], ["PROMPT-one", "PROMPT-next"])
    assert not known or len(prompts) == 3
    done = backtrail(home, "rewind", "2", "--yes")
    assert done["resume"], done["notes"]
    assert contents(home) == ({"a.txt": "one\n"} if len(prompts) == 3 else on_disk)
    assert turns_of(home) == ["PROMPT-one"]


@pytest.mark.parametrize(("agent", "moment"), CASES)
def test_everything_is_killed_at_a_moment_of_a_turn(
    agent: str, moment: str, make_home: MakeHome, model: ModelServer
) -> None:
    home = make_home(agent)
    gate = Gate(home, agent)
    home.prompt(agent, "PROMPT-one RUN:echo one > a.txt ENDRUN")
    session = newest_session(home)
    process = play_until(home, agent, session, moment, model, gate)
    kill_everything(home)
    process.communicate()
    model.release()
    gate.open()
    check_that_work_goes_on(home, agent, session, model, known=moment not in UNKNOWN)


def test_what_gemini_loses_if_it_is_killed_while_it_resumes_a_session_is_in_the_store(
    make_home: MakeHome, model: ModelServer
) -> None:
    home = make_home("gemini")
    gate = Gate(home, "gemini")
    home.prompt("gemini", "PROMPT-one RUN:echo one > a.txt ENDRUN")
    session = newest_session(home)
    process = play_until(home, "gemini", session, EMPTIED[1], model, gate)
    kill_everything(home)
    process.communicate()
    gate.open()
    home.run("backtrail", "verify", "-s", str(home.home / ".local/share/backtrail/agents.db"))
    shown = backtrail(home, "show", f"gemini/{session}", "1")
    assert "PROMPT-one" in json.dumps(shown) and "reply number" in json.dumps(shown)
    home.prompt("gemini", "PROMPT-next RUN:echo next > c.txt ENDRUN")
    assert turns_of(home) == ["PROMPT-next"]
    backtrail(home, "rewind", "1", "--files-only", "--yes")
    assert contents(home) == {"a.txt": "one\n"}


@pytest.mark.parametrize("moment", ["prompt hook begun", "end hook begun"])
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_is_killed_while_its_hook_goes_on(
    agent: str, moment: str, make_home: MakeHome, model: ModelServer
) -> None:
    home = make_home(agent)
    gate = Gate(home, agent)
    home.prompt(agent, "PROMPT-one RUN:echo one > a.txt ENDRUN")
    session = newest_session(home)
    process = play_until(home, agent, session, moment, model, gate)
    os.killpg(process.pid, signal.SIGKILL)
    gate.open()
    process.communicate()
    check_that_work_goes_on(home, agent, session, model, known=moment not in UNKNOWN)


@pytest.mark.parametrize("agent", AGENTS)
def test_hooks_killed_at_any_of_their_calls_cost_their_own_events_and_nothing_else(
    agent: str, make_home: MakeHome, model: ModelServer
) -> None:
    home = make_home(agent)
    home.prompt(agent, "PROMPT-one RUN:echo one > a.txt ENDRUN")
    session = newest_session(home)
    hook = DoomedHook(home, agent)
    calls = (0, 2, 5, 10, 18, 30, 48, 75)
    for number in calls:
        hook.die_after(number)
        home.prompt(agent, f"PROMPT-killed RUN:echo {number} > a.txt ENDRUN", session)
        home.run("backtrail", "verify", "-s", str(home.home / ".local/share/backtrail/agents.db"))
    hook.die_after(None)
    home.prompt(agent, "PROMPT-last RUN:echo last > a.txt ENDRUN", session)
    prompts = turns_of(home)
    assert (prompts[0], prompts[-1]) == ("PROMPT-one", "PROMPT-last")
    backtrail(home, "rewind", str(backtrail(home, "log")["turns"][0]["number"]), "--yes")
    assert contents(home) == {"a.txt": f"{calls[-1]}\n"}
    home.prompt(agent, "PROMPT-after", newest_session(home))
    shown = [item for item in model.last_shown("PROMPT-after") if item.startswith("PROMPT")]
    assert shown == ["PROMPT-one", *["PROMPT-killed"] * len(calls), "PROMPT-after"]
