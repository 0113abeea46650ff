"""The MCP server, as a client sees it: the official one, over the stdio of a real process."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

import backtrail
from backtrail.agents import session_tools
from backtrail.agents.import_sessions import import_sessions
from backtrail.agents.sessions import session_of
from fix_captured import CapturedSession
from fix_transcripts import PROMPTS, SESSIONS, put_session

mcp = pytest.importorskip("mcp")

READ_ONLY = {"list", "show", "diff", "find"}
CHANGING = {"restore_files", "revert_turn", "undo"}
MARKING = {"checkpoint", "label", "rewind_conversation"}


class Agent:
    """A client of the server, as an agent in the project starts it."""

    def __init__(self, tmp_path: Path, session: CapturedSession) -> None:
        self.project = session.project
        self.session = session
        self.variables = {
            "HOME": str(tmp_path / "home"),
            "XDG_DATA_HOME": str(tmp_path / "data"),
            "BACKTRAIL_AGENTS_STORE": str(tmp_path / "agents.db"),
        }
        self.arguments = ["-m", "backtrail.cli", "mcp"]
        self._portal: Any = None
        self._client: Any = None

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Connect a client for as long as the block lasts."""
        parameters = mcp.StdioServerParameters(
            command=sys.executable, args=self.arguments, env=self.variables, cwd=self.project
        )
        with start_blocking_portal() as portal, portal.wrap_async_context_manager(mcp.Client(parameters)) as client:
            self._portal, self._client = portal, client
            yield
        self._client = None

    def tools(self) -> Any:
        """The tools that the server offers."""
        return self._portal.call(self._client.list_tools).tools

    def call(self, tool: str, meta: Any = None, fails: bool = False, **arguments: Any) -> str:
        """The text that a tool answers with."""
        if self._client is None:
            with self.connected():
                return self.call(tool, meta, fails, **arguments)
        result = self._portal.call(partial(self._client.call_tool, tool, arguments, meta=meta))
        text = "\n".join(part.text for part in result.content)
        assert bool(result.is_error) == fails, text
        return text


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[backtrail.Store]:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with backtrail.open(tmp_path / "agents.db") as opened:
        yield opened


@pytest.fixture
def agent(store: backtrail.Store, tmp_path: Path) -> Agent:
    """An agent after the three first turns of a session of Claude Code."""
    session = CapturedSession(store, "claude", tmp_path / "home", tmp_path / "project")
    session.play(1, 3)
    return Agent(tmp_path, session)


@pytest.fixture
def connected(agent: Agent) -> Iterator[Agent]:
    """The same, with one server for all calls of the test."""
    with agent.connected():
        yield agent


def token_in(text: str) -> str:
    found = re.search(r"token='([0-9a-f]+)'", text)
    assert found is not None, text
    return found[1]


def test_read_only_tools_are_marked_so_and_the_others_are_not(connected: Agent) -> None:
    tools = connected.tools()
    assert {tool.name for tool in tools} == READ_ONLY | CHANGING | MARKING
    assert {tool.name for tool in tools if tool.annotations.read_only_hint} == READ_ONLY
    assert {tool.name for tool in tools if tool.annotations.destructive_hint} == CHANGING
    assert all(tool.description for tool in tools)


def test_the_turns_are_listed_and_shown(connected: Agent) -> None:
    listed = connected.call("list")
    assert [prompt in listed for prompt in PROMPTS["claude"]] == [True, True, True, False]
    shown = connected.call("show", turn=2)
    assert "Bash(" in shown and "reply number 4" in shown and "tokens: 20 read" in shown and "~ a.txt" in shown
    assert "THIRD" in connected.call("show")
    assert "has no turn 9" in connected.call("show", turn=9, fails=True)


def test_a_turn_and_all_since_it_are_compared(connected: Agent) -> None:
    assert "-one\n+two" in connected.call("diff", turn=2)
    (connected.project / "mine.txt").write_text("mine\n")
    since = connected.call("diff", turn=2, until_now=True)
    assert "+two" in since and "+three" in since and "+mine" in since


def test_a_checkpoint_is_saved_labelled_and_listed(connected: Agent, store: backtrail.Store) -> None:
    before = store.thread(connected.session.thread_id).head
    assert before is not None
    assert "before the refactoring" in connected.call("checkpoint", label="before the refactoring")
    head = store.thread(connected.session.thread_id).head
    assert head is not None and head.files is not None and head.label == "before the refactoring"
    assert head.custom["turn"] == before.custom["turn"]
    assert "before the refactoring" in connected.call("list")
    connected.call("label", at="turn 2", text="good")
    assert store.thread(connected.session.thread_id).get("good").custom["turn"] == 2
    prompt = store.thread(connected.session.thread_id).history()[0]
    assert "is a prompt" in connected.call("label", at=prompt.id, text="x", fails=True)


def test_files_are_restored_in_two_steps_and_undone(connected: Agent) -> None:
    plan = connected.call("restore_files", turn=2)
    assert "nothing was done yet" in plan and "~ a.txt" in plan and "- c.txt" in plan
    assert (connected.project / "a.txt").read_text() == "two\n"
    connected.call("restore_files", turn=2, token=token_in(plan))
    assert (connected.project / "a.txt").read_text() == "one\n"
    assert not (connected.project / "c.txt").exists()
    plan = connected.call("undo")
    assert (connected.project / "a.txt").read_text() == "one\n"
    connected.call("undo", token=token_in(plan))
    assert (connected.project / "a.txt").read_text() == "two\n"
    assert (connected.project / "c.txt").read_text() == "three\n"


def test_a_plan_that_is_another_one_by_now_is_refused(connected: Agent) -> None:
    plan = connected.call("restore_files", turn=2)
    (connected.project / "new.txt").write_text("new\n")
    (connected.project / "a.txt").unlink()
    assert "another one by now" in connected.call("restore_files", turn=2, token=token_in(plan), fails=True)
    assert (connected.project / "new.txt").exists()
    assert "another one by now" in connected.call("restore_files", turn=2, token="made up", fails=True)


def test_one_turn_is_taken_back_and_later_work_stays(connected: Agent) -> None:
    plan = connected.call("revert_turn", turn=2)
    connected.call("revert_turn", turn=2, token=token_in(plan))
    assert (connected.project / "a.txt").read_text() == "one\n"
    assert (connected.project / "c.txt").read_text() == "three\n"


def test_a_rewound_conversation_is_a_command_for_the_person(connected: Agent) -> None:
    answer = connected.call("rewind_conversation", turn=2)
    assert "claude --resume" in answer and PROMPTS["claude"][1] in answer
    assert (connected.project / "a.txt").read_text() == "two\n"


def test_a_text_is_found_in_this_session_and_in_others(
    connected: Agent, store: backtrail.Store, tmp_path: Path
) -> None:
    put_session("codex", tmp_path / "home")
    import_sessions(store, ["codex"])
    here = connected.call("find", text="THIRD JUST")
    assert connected.session.thread_id in here and "codex/" not in here
    assert f"codex/{SESSIONS['codex']}" in connected.call("find", text="third just", everywhere=True)
    assert connected.call("find", text="never said") == "nothing found"
    other = connected.call("list", session=f"codex/{SESSIONS['codex']}")
    assert PROMPTS["codex"][2] in other
    assert "was captured" in connected.call("list", session="codex/none", fails=True)


def test_a_search_says_so_if_there_are_sessions_that_it_does_not_look_through(
    agent: Agent, store: backtrail.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_of(store, agent.session.thread_id)
    store.thread("codex/newer").save({"messages": [{"role": "user", "content": "said now"}]})
    assert "said now" in session_tools.find(store, session, "said now", everywhere=True, limit=20)
    monkeypatch.setattr(session_tools, "SEARCHED", 1)
    told = session_tools.find(store, session, PROMPTS["claude"][0], everywhere=True, limit=20).splitlines()
    assert told[0] == "nothing found" and told[1].startswith("looked through the 1 sessions that were used last")
    assert session_tools.find(store, session, "never said", everywhere=False, limit=20) == "nothing found"


def test_the_server_knows_whose_session_it_is(agent: Agent, store: backtrail.Store, tmp_path: Path) -> None:
    other = CapturedSession(store, "codex", tmp_path / "home", agent.project)
    other.play(1, 1)  # the newest in the same directory
    assert other.thread_id in agent.call("list")
    assert agent.session.thread_id in agent.call("list", meta=None, session=agent.session.thread_id)
    agent.arguments += ["--agent", "claude"]
    assert agent.session.thread_id in agent.call("list")
    meta = {"x-codex-turn-metadata": {"session_id": SESSIONS["codex"], "turn_id": "t"}}
    assert other.thread_id in agent.call("list", meta=meta)
    for odd in ({"x-codex-turn-metadata": "{"}, {"x-codex-turn-metadata": {"session_id": "../../x"}}):
        assert agent.session.thread_id in agent.call("list", meta=odd)
    agent.arguments = agent.arguments[:-2]
    agent.variables["CLAUDE_CODE_SESSION_ID"] = SESSIONS["claude"]
    assert agent.session.thread_id in agent.call("list")


def test_what_to_do_is_said_if_nothing_was_captured(agent: Agent, tmp_path: Path) -> None:
    agent.variables["BACKTRAIL_AGENTS_STORE"] = str(tmp_path / "none.db")
    assert "backtrail agents install" in agent.call("list", fails=True)


def test_answers_are_bounded_and_hold_no_control_characters(connected: Agent, store: backtrail.Store) -> None:
    (connected.project / "large.txt").write_text("\x1b[2J long line\n" * 20_000)
    connected.session.end(3)
    answer = connected.call("diff", turn=3)
    assert len(answer) < 50_000 and "\x1b" not in answer
    assert "more characters" in answer
