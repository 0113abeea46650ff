"""Going back with the real programs: what the model is shown next, and what the files are."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from .model_server import ModelServer
from .programs import AGENTS, AgentHome

MakeHome = Callable[..., AgentHome]


def backtrail(home: AgentHome, *arguments: str) -> Any:
    """Run a command of backtrail in the project; its data."""
    return json.loads(home.run("backtrail", *arguments, "--json").stdout)["data"]


def turns_of(home: AgentHome) -> list[str]:
    """The prompts of the newest session, oldest first; `opencode run` puts those with spaces in quotes."""
    return [turn["prompt"].strip('"').partition(" ")[0] for turn in reversed(backtrail(home, "log")["turns"])]


def newest_session(home: AgentHome) -> str:
    name: str = backtrail(home, "log")["session"]
    return name.partition("/")[2]


def contents(home: AgentHome) -> dict[str, str]:
    files = (path for path in home.project.rglob("*") if path.is_file())
    return {str(path.relative_to(home.project)): path.read_text() for path in files}


def three_turns(home: AgentHome, agent: str) -> str:
    """A session of three turns; the shell of each writes files."""
    (home.project / "own.txt").write_text("mine\n")
    (home.project / ".gitignore").write_text(".env\n")
    (home.project / ".env").write_text("SECRET=1\n")
    home.prompt(agent, "PROMPT-one RUN:echo one > a.txt ENDRUN")
    session = newest_session(home)
    home.prompt(agent, "PROMPT-two RUN:echo two > a.txt; mkdir d; echo new > d/b.txt ENDRUN", session)
    (home.project / "own.txt").write_text("mine, edited between turns\n")
    home.prompt(agent, "PROMPT-three RUN:echo three > a.txt; rm own.txt; echo x > .env ENDRUN", session)
    assert turns_of(home) == ["PROMPT-one", "PROMPT-two", "PROMPT-three"]
    return session


FIRST = ["PROMPT-one", "ran echo one > a.txt"]
SECOND = ["PROMPT-two", "ran echo two > a.txt; mkdir d; echo new > d/b.txt"]
THIRD = ["PROMPT-three", "ran echo three > a.txt; rm own.txt; echo x > .env"]


def without_replies(shown: list[str]) -> list[str]:
    return [item for item in shown if not item.startswith("reply")]


@pytest.mark.parametrize("agent", AGENTS)
def test_a_rewind_brings_back_files_and_conversation_and_undo_takes_both_back(
    agent: str, make_home: MakeHome, model: ModelServer
) -> None:
    home = make_home(agent)
    old = three_turns(home, agent)
    after_three = contents(home)
    planned = backtrail(home, "rewind", "3", "--dry-run")
    assert contents(home) == after_three
    done = backtrail(home, "rewind", "3", "--yes")
    assert (done["files"], done["kept"]) == (planned["files"], planned["kept"])
    assert {change["path"] for change in done["files"]} == {"a.txt", "own.txt"}
    assert {kept["path"] for kept in done["kept"]} == {".env"}
    assert contents(home) == {
        "a.txt": "two\n",
        "d/b.txt": "new\n",
        "own.txt": "mine, edited between turns\n",
        ".gitignore": ".env\n",
        ".env": "x\n",
    }
    new = newest_session(home)
    assert new != old
    assert turns_of(home) == ["PROMPT-one", "PROMPT-two"]

    home.prompt(agent, "PROMPT-other RUN:echo other > a.txt ENDRUN", new)
    shown = model.last_shown("PROMPT-other")
    assert without_replies(shown) == [*FIRST, *SECOND, "PROMPT-other"]
    assert sum(item.startswith("reply") for item in shown) == 2
    assert turns_of(home) == ["PROMPT-one", "PROMPT-two", "PROMPT-other"]
    assert newest_session(home) == new

    backtrail(home, "undo", "--yes")
    assert contents(home) == after_three | {".env": "x\n"}
    assert newest_session(home) == old
    home.prompt(agent, "PROMPT-four", old)
    assert without_replies(model.last_shown("PROMPT-four")) == [*FIRST, *SECOND, *THIRD, "PROMPT-four"]
    assert turns_of(home) == ["PROMPT-one", "PROMPT-two", "PROMPT-three", "PROMPT-four"]


@pytest.mark.parametrize("agent", AGENTS)
def test_a_session_that_was_rewound_can_be_rewound_again_before_and_after_its_next_turn(
    agent: str, make_home: MakeHome, model: ModelServer
) -> None:
    home = make_home(agent)
    three_turns(home, agent)
    backtrail(home, "rewind", "3", "--yes")
    backtrail(home, "rewind", "2", "--yes")
    new = newest_session(home)
    assert (home.project / "a.txt").read_text() == "one\n"
    home.prompt(agent, "PROMPT-again RUN:echo again > a.txt ENDRUN", new)
    assert without_replies(model.last_shown("PROMPT-again")) == [*FIRST, "PROMPT-again"]
    home.prompt(agent, "PROMPT-more RUN:echo more > a.txt ENDRUN", new)
    backtrail(home, "rewind", "3", "--yes")
    assert (home.project / "a.txt").read_text() == "again\n"
    newer = newest_session(home)
    home.prompt(agent, "PROMPT-last", newer)
    assert without_replies(model.last_shown("PROMPT-last")) == [
        *FIRST,
        "PROMPT-again",
        "ran echo again > a.txt",
        "PROMPT-last",
    ]


@pytest.mark.parametrize("agent", AGENTS)
def test_a_turn_is_reverted_and_later_work_is_kept(agent: str, make_home: MakeHome) -> None:
    home = make_home(agent)
    lines = [f"{number}\n" for number in range(20)]
    (home.project / "text").write_text("".join(lines))
    home.prompt(agent, "PROMPT-one RUN:sed -i s/^3$/three/ text; echo made > made ENDRUN")
    session = newest_session(home)
    home.prompt(agent, "PROMPT-two RUN:sed -i s/^15$/fifteen/ text; echo kept > kept ENDRUN", session)
    done = backtrail(home, "revert", "--turn", "1", "--yes")
    assert done["merged"] == ["text"]
    lines[15] = "fifteen\n"
    assert contents(home) == {"text": "".join(lines), "kept": "kept\n"}
    assert newest_session(home) == session
    backtrail(home, "undo", "--yes")
    lines[3] = "three\n"
    assert contents(home) == {"text": "".join(lines), "kept": "kept\n", "made": "made\n"}


def test_two_agents_in_one_directory_have_sessions_of_their_own(make_home: MakeHome, model: ModelServer) -> None:
    home = make_home("claude", "gemini")
    home.prompt("claude", "PROMPT-c1 RUN:echo c1 > c.txt ENDRUN")
    claude = newest_session(home)
    home.prompt("gemini", "PROMPT-g1 RUN:echo g1 > g.txt ENDRUN")
    home.prompt("claude", "PROMPT-c2 RUN:echo c2 > c.txt ENDRUN", claude)
    home.prompt("gemini", "PROMPT-g2 RUN:echo g2 > other.txt ENDRUN")
    assert turns_of(home) == ["PROMPT-g2"]
    done = backtrail(home, "rewind", f"claude/{claude}", "2", "--yes")
    assert any("gemini/" in note and "worked in this directory since then" in note for note in done["notes"])
    assert contents(home) == {"c.txt": "c1\n", "g.txt": "g1\n"}
    new = newest_session(home)
    home.prompt("claude", "PROMPT-c3", new)
    assert without_replies(model.last_shown("PROMPT-c3")) == ["PROMPT-c1", "ran echo c1 > c.txt", "PROMPT-c3"]
    backtrail(home, "undo", "--yes")
    assert contents(home) == {"c.txt": "c2\n", "g.txt": "g1\n", "other.txt": "g2\n"}
