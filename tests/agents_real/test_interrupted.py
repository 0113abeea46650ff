"""The real programs, killed in the middle of a turn, beside each other, and with a hook that is killed."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from .model_server import ModelServer
from .programs import AGENTS, PATIENCE, prompt_command
from .test_going_back import MakeHome, backtrail, contents, newest_session, turns_of, without_replies


@pytest.mark.parametrize("moment", ["PROMPT-two", "ran echo half > a.txt; echo new > b.txt"])
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_that_was_killed_in_a_turn_goes_back_to_before_it(
    agent: str, moment: str, make_home: MakeHome, model: ModelServer
) -> None:
    home = make_home(agent)
    home.prompt(agent, "PROMPT-one RUN:echo one > a.txt ENDRUN")
    session = newest_session(home)
    model.hold = moment
    process = home.start(*prompt_command(agent, "PROMPT-two RUN:echo half > a.txt; echo new > b.txt ENDRUN", session))
    assert model.holding.wait(PATIENCE)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    model.release()
    assert turns_of(home) == ["PROMPT-one", "PROMPT-two"]
    done = backtrail(home, "rewind", "2", "--yes")
    assert done["resume"], done["notes"]
    assert contents(home) == {"a.txt": "one\n"}
    home.prompt(agent, "PROMPT-three", newest_session(home))
    assert without_replies(model.last_shown("PROMPT-three")) == ["PROMPT-one", "ran echo one > a.txt", "PROMPT-three"]
    assert turns_of(home) == ["PROMPT-one", "PROMPT-three"]


def test_codex_tells_of_an_interrupted_turn_and_what_a_person_edits_then_is_in_no_turn(
    make_home: MakeHome, model: ModelServer
) -> None:
    home = make_home("codex")
    home.prompt("codex", "PROMPT-one RUN:echo one > a.txt ENDRUN")
    session = newest_session(home)
    model.hold = "ran echo half > a.txt"
    process = home.start(*prompt_command("codex", "PROMPT-two RUN:echo half > a.txt ENDRUN", session))
    assert model.holding.wait(PATIENCE)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    model.release()
    log = (home.home / ".local/share/backtrail/hook.log").read_text().splitlines()
    told = {entry["event"]: entry for entry in map(json.loads, log)}
    assert told["Interrupt"]["checkpoint"]
    assert backtrail(home, "log")["turns"][0]["interrupted"]
    (home.project / "mine.txt").write_text("mine\n")
    home.prompt("codex", "PROMPT-three RUN:echo three > a.txt ENDRUN", session)
    for turn in ("2", "3"):
        assert [change["path"] for change in backtrail(home, "diff", turn)["files"]] == ["a.txt"]
    backtrail(home, "rewind", "3", "--yes")
    assert contents(home) == {"a.txt": "half\n", "mine.txt": "mine\n"}


@pytest.mark.parametrize("agent", AGENTS)
def test_two_sessions_of_one_agent_at_once_do_not_mix(agent: str, make_home: MakeHome, model: ModelServer) -> None:
    home = make_home(agent)
    if agent == "gemini":
        home.keep_gemini_sessions()
    home.prompt(agent, "PROMPT-left RUN:echo left > left.txt ENDRUN")
    left = newest_session(home)
    home.prompt(agent, "PROMPT-right RUN:echo right > right.txt ENDRUN")
    right = newest_session(home)
    assert left != right
    with ThreadPoolExecutor() as pool:
        for done in [
            pool.submit(home.prompt, agent, "PROMPT-left-two RUN:echo two > left.txt ENDRUN", left),
            pool.submit(home.prompt, agent, "PROMPT-right-two RUN:echo two > right.txt ENDRUN", right),
        ]:
            done.result()
    for session, side in ((left, "left"), (right, "right")):
        turns = backtrail(home, "log", f"{agent}/{session}")["turns"]
        assert [turn["prompt"].strip('"').split()[0] for turn in turns] == [f"PROMPT-{side}-two", f"PROMPT-{side}"]
    backtrail(home, "rewind", f"{agent}/{left}", "2", "--conversation", "--yes")
    home.prompt(agent, "PROMPT-after", newest_session(home))
    assert without_replies(model.last_shown("PROMPT-after")) == [
        "PROMPT-left",
        "ran echo left > left.txt",
        "PROMPT-after",
    ]


def test_a_hook_that_is_killed_costs_its_own_event_and_nothing_else(make_home: MakeHome, model: ModelServer) -> None:
    home = make_home("claude")
    home.prompt("claude", "PROMPT-one RUN:echo one > a.txt ENDRUN")
    session = newest_session(home)
    settings = home.home / ".claude/settings.json"
    installed = settings.read_text()
    for delay in ("0.02", "0.1", "0.2", "0.4"):
        settings.write_text(installed.replace('"command": "', f'"command": "timeout -s KILL {delay} '))
        home.prompt("claude", f"PROMPT-killed RUN:echo {delay} > a.txt ENDRUN", session)
    settings.write_text(installed)
    home.prompt("claude", "PROMPT-last RUN:echo last > a.txt ENDRUN", session)
    prompts = turns_of(home)
    assert (prompts[0], prompts[-1]) == ("PROMPT-one", "PROMPT-last")
    backtrail(home, "rewind", str(backtrail(home, "log")["turns"][0]["number"]), "--yes")
    assert contents(home) == {"a.txt": "0.4\n"}
    home.prompt("claude", "PROMPT-after", newest_session(home))
    shown = [item for item in model.last_shown("PROMPT-after") if item.startswith("PROMPT")]
    assert shown == ["PROMPT-one", *["PROMPT-killed"] * 4, "PROMPT-after"]
