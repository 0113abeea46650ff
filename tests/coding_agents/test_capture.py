"""A session as it is captured: turns, messages and files, and what belongs to nobody."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.agents.capture import capture
from backtrail.agents.events import Agent, read_event
from backtrail.agents.sessions import AgentSession, Turn
from fix_stores import EVERY_ENGINE, open_stores

from .conftest import PAYLOADS, FakeAgent


def changed(session: AgentSession, turn: Turn) -> list[str]:
    """The files that a turn changed."""
    assert turn.before is not None and turn.after is not None
    return [change.path for change in session.workspace().diff(turn.before, turn.after).changes]


def one_turn(agent: FakeAgent, store: backtrail.Store, number: int, write: dict[str, str] | None = None) -> None:
    """A turn in which the agent writes some files."""
    agent.tell(store, "UserPromptSubmit", prompt=f"prompt {number}", prompt_id=f"id-{number}")
    agent.say(f"prompt {number}", f"answer {number}")
    for path, text in (write or {}).items():
        agent.write(path, text)
    agent.tell(store, "Stop", prompt_id=f"id-{number}")


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_turns_messages_and_files_are_captured_on_every_engine(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    agent = FakeAgent(tmp_path)
    for opener in open_stores(engine, "blocking", tmp_path, request):
        store = opener()
        agent.tell(store, "SessionStart", source="startup")
        agent.write("a.txt", "zero")
        one_turn(agent, store, 1, {"a.txt": "one", "b.txt": "new"})
        one_turn(agent, store, 2, {"a.txt": "two"})
        agent.tell(store, "SessionEnd", reason="exit")
        session = agent.read(store)
        assert session.cwd == str(agent.project.resolve())
        assert session.transcript == str(agent.transcript)
        first, second = session.turns()
        assert (first.number, first.turn_id, first.prompt) == (1, "id-1", "prompt 1")
        assert changed(session, first) == ["a.txt", "b.txt"]
        assert changed(session, second) == ["a.txt"]
        texts = [message["text"] for message in session.thread.load()["messages"]]
        assert texts == ["prompt 1", "answer 1", "prompt 2", "answer 2"]
        assert second.before is not None
        assert len(session.thread.load(second.before)["messages"]) == 2  # the conversation before the prompt


@pytest.mark.parametrize("name", ["claude", "codex", "gemini"])
def test_the_recorded_events_of_an_agent_become_its_sessions(
    name: Agent, tmp_path: Path, user_store: backtrail.Store
) -> None:
    agent = FakeAgent(tmp_path, name)
    prompts: dict[str, list[str]] = {}
    for line in (PAYLOADS / f"{name}.jsonl").read_text().splitlines():
        payload = {**json.loads(line), "cwd": str(agent.project)}
        event = read_event(name, json.dumps(payload).encode(), {})
        if event is not None:
            capture(user_store, event)
            prompts.setdefault(event.session_id, []).extend([event.prompt] if event.prompt else [])
    for session_id, texts in prompts.items():
        turns = AgentSession(user_store, name, session_id).turns()
        assert [turn.prompt for turn in turns] == texts
        assert [turn.number for turn in turns] == list(range(1, len(texts) + 1))
        assert all(turn.before and turn.after and not turn.interrupted for turn in turns)


def test_what_a_person_edits_between_turns_is_in_no_turn(agent: FakeAgent, user_store: backtrail.Store) -> None:
    one_turn(agent, user_store, 1, {"agent.txt": "1"})
    agent.write("mine.txt", "by me")
    one_turn(agent, user_store, 2, {"agent.txt": "2"})
    session = agent.read(user_store)
    first, second = session.turns()
    assert changed(session, first) == ["agent.txt"]
    assert changed(session, second) == ["agent.txt"]
    assert first.after is not None and second.before is not None
    between = session.workspace().diff(first.after, second.before)
    assert [change.path for change in between.changes] == ["mine.txt"]


def test_a_turn_that_was_interrupted_is_closed_by_the_next_prompt(
    agent: FakeAgent, user_store: backtrail.Store
) -> None:
    agent.tell(user_store, "UserPromptSubmit", prompt="one", prompt_id="id-1")
    agent.say("one", "half an answer")
    agent.write("half.txt", "half")
    one_turn(agent, user_store, 2)
    session = agent.read(user_store)
    first, second = session.turns()
    assert first.interrupted and not second.interrupted
    assert changed(session, first) == ["half.txt"]
    assert first.after is not None and first.after.custom["closed_by"] == "prompt"
    assert len(session.thread.load(first.after)["messages"]) == 2


def test_a_turn_that_codex_says_was_interrupted_ends_there_and_later_edits_are_in_no_turn(
    tmp_path: Path, user_store: backtrail.Store
) -> None:
    agent = FakeAgent(tmp_path, "codex")
    agent.tell(user_store, "UserPromptSubmit", prompt="one", turn_id="id-1")
    agent.say("one", "half an answer")
    agent.write("half.txt", "half")
    agent.tell(user_store, "Interrupt", turn_id="id-1")
    agent.write("mine.txt", "mine")
    agent.tell(user_store, "UserPromptSubmit", prompt="two", turn_id="id-2")
    agent.write("two.txt", "two")
    agent.tell(user_store, "Stop", turn_id="id-2")
    session = agent.read(user_store)
    first, second = session.turns()
    assert (first.interrupted, second.interrupted) == (True, False)
    assert (changed(session, first), changed(session, second)) == (["half.txt"], ["two.txt"])
    assert first.after is not None and first.after.custom["closed_by"] == "interrupt"
    assert len(session.thread.load(first.after)["messages"]) == 2


@pytest.mark.parametrize("name", ["SessionEnd", "SessionStart"])
def test_a_turn_that_was_interrupted_is_closed_by_the_end_of_the_session_and_by_its_next_start(
    name: str, agent: FakeAgent, user_store: backtrail.Store
) -> None:
    agent.tell(user_store, "UserPromptSubmit", prompt="one", prompt_id="id-1")
    agent.tell(user_store, name, source="resume")
    (turn,) = agent.read(user_store).turns()
    assert turn.interrupted


def test_a_conversation_that_is_compacted_in_a_turn_does_not_end_the_turn(
    agent: FakeAgent, user_store: backtrail.Store
) -> None:
    agent.tell(user_store, "UserPromptSubmit", prompt="one", prompt_id="id-1")
    agent.tell(user_store, "PreCompact", trigger="auto")
    agent.tell(user_store, "SessionStart", source="compact")
    agent.write("a.txt", "after the compaction")
    agent.tell(user_store, "Stop", prompt_id="id-1")
    session = agent.read(user_store)
    (turn,) = session.turns()
    assert not turn.interrupted
    assert changed(session, turn) == ["a.txt"]
    assert [checkpoint.custom["event"] for checkpoint in session.thread.history()] == [
        *("prompt", "compact", "session_start", "turn_end")
    ]


def test_what_a_background_task_writes_after_the_end_is_in_the_next_snapshot(
    agent: FakeAgent, user_store: backtrail.Store
) -> None:
    one_turn(agent, user_store, 1)
    agent.write("late.txt", "by a background task")
    one_turn(agent, user_store, 2)
    session = agent.read(user_store)
    first, second = session.turns()
    assert changed(session, first) == changed(session, second) == []
    assert second.before is not None
    assert "late.txt" in [change.path for change in session.workspace().diff(first.before, second.before).changes]


def test_a_turn_that_no_prompt_began_has_a_number_and_no_beginning(
    agent: FakeAgent, user_store: backtrail.Store
) -> None:
    one_turn(agent, user_store, 1)
    agent.tell(user_store, "Stop", prompt_id="woken")
    one_turn(agent, user_store, 3)
    turns = agent.read(user_store).turns()
    assert [(turn.number, turn.before is None) for turn in turns] == [(1, False), (2, True), (3, False)]


def test_the_end_may_be_told_twice(agent: FakeAgent, user_store: backtrail.Store) -> None:
    one_turn(agent, user_store, 1)
    agent.write("a.txt", "x")
    agent.tell(user_store, "Stop", prompt_id="id-1")
    session = agent.read(user_store)
    (turn,) = session.turns()
    assert changed(session, turn) == ["a.txt"]


def test_a_hook_that_is_installed_twice_captures_a_prompt_once(agent: FakeAgent, user_store: backtrail.Store) -> None:
    assert agent.tell(user_store, "UserPromptSubmit", prompt="one", prompt_id="id-1").checkpoint is not None
    assert agent.tell(user_store, "UserPromptSubmit", prompt="one", prompt_id="id-1").checkpoint is None
    assert len(agent.read(user_store).turns()) == 1


def test_two_agents_and_two_sessions_in_one_directory_do_not_mix(tmp_path: Path, user_store: backtrail.Store) -> None:
    agents = [FakeAgent(tmp_path), FakeAgent(tmp_path, session="session-2"), FakeAgent(tmp_path, "codex")]
    for number in (1, 2):
        for agent in agents:
            agent.tell(user_store, "UserPromptSubmit", prompt=f"{agent.agent} {agent.session_id}", turn_id=f"t{number}")
        for agent in agents:
            agent.say(agent.session_id)
            agent.tell(user_store, "Stop", turn_id=f"t{number}")
    for agent in agents:
        session = agent.read(user_store)
        assert {turn.prompt for turn in session.turns()} == {f"{agent.agent} {agent.session_id}"}
        assert {message["text"] for message in session.thread.load()["messages"]} == {agent.session_id}


def test_sessions_that_run_at_once_are_all_captured(tmp_path: Path, user_store: backtrail.Store) -> None:
    agents = [FakeAgent(tmp_path, session=f"session-{number}") for number in range(4)]
    failed: list[BaseException] = []

    def run(agent: FakeAgent) -> None:
        try:
            for number in range(1, 6):
                one_turn(agent, user_store, number, {f"{agent.session_id}.txt": str(number)})
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=run, args=[agent]) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    for agent in agents:
        assert [turn.number for turn in agent.read(user_store).turns()] == [1, 2, 3, 4, 5]


def test_a_rewritten_transcript_is_a_new_base_and_the_old_one_is_in_the_history(
    agent: FakeAgent, user_store: backtrail.Store
) -> None:
    one_turn(agent, user_store, 1)
    agent.transcript.write_text('{"text": "rewritten"}\n')
    captured = agent.tell(user_store, "UserPromptSubmit", prompt="two", prompt_id="id-2")
    assert captured.checkpoint is not None and captured.checkpoint.custom["rewritten"] is True
    session = agent.read(user_store)
    assert session.thread.load()["messages"] == [{"text": "rewritten"}]
    (first, _) = session.turns()
    assert first.after is not None and len(session.thread.load(first.after)["messages"]) == 2


def test_a_transcript_that_is_gone_leaves_what_was_captured(agent: FakeAgent, user_store: backtrail.Store) -> None:
    one_turn(agent, user_store, 1)
    agent.transcript.unlink()
    agent.tell(user_store, "SessionEnd")
    assert len(agent.read(user_store).thread.load()["messages"]) == 2


def test_lines_that_no_store_takes_are_kept_as_text(agent: FakeAgent, user_store: backtrail.Store) -> None:
    deep = '{"a":' * 200 + "1" + "}" * 200
    agent.transcript.write_text(f'{deep}\n{{"text": "x"}}\nno json\n')
    agent.tell(user_store, "SessionStart")
    kept = agent.read(user_store).thread.load()["messages"]
    assert kept == [{"unparsed": deep}, {"unparsed": '{"text": "x"}'}, {"unparsed": "no json"}]


def test_messages_of_an_agent_without_a_transcript_come_with_the_event(
    tmp_path: Path, user_store: backtrail.Store
) -> None:
    agent = FakeAgent(tmp_path, "opencode", "ses_1")
    messages: list[dict[str, Any]] = []
    for number in (1, 2):
        fields = {"transcript_path": None, "messages": messages}
        agent.tell(user_store, "chat.message", prompt=f"prompt {number}", message_id=f"msg_{number}", **fields)
        messages += [{"info": {"id": f"msg_{number}"}, "parts": []}, {"info": {"id": f"answer_{number}"}, "parts": []}]
        agent.tell(user_store, "session.idle", transcript_path=None, messages=messages)
    session = agent.read(user_store)
    assert [turn.turn_id for turn in session.turns()] == ["msg_1", "msg_2"]
    assert session.thread.load()["messages"] == messages
    assert session.transcript is None
    second = session.turn(2)
    assert second.before is not None and len(session.thread.load(second.before)["messages"]) == 2


def test_the_directory_of_a_session_stays_when_the_agent_goes_further_down(
    agent: FakeAgent, user_store: backtrail.Store
) -> None:
    agent.tell(user_store, "SessionStart")
    agent.write("sub/x.txt", "x")
    agent.tell(user_store, "UserPromptSubmit", prompt="one", cwd=str(agent.project / "sub"))
    assert agent.read(user_store).cwd == str(agent.project.resolve())


def test_a_session_that_goes_on_elsewhere_has_the_other_directory_from_then_on(
    agent: FakeAgent, tmp_path: Path, user_store: backtrail.Store
) -> None:
    agent.tell(user_store, "SessionStart")
    (tmp_path / "elsewhere").mkdir()
    agent.tell(user_store, "SessionStart", cwd=str(tmp_path / "elsewhere"))
    assert agent.read(user_store).cwd == str((tmp_path / "elsewhere").resolve())


def test_a_home_directory_is_not_saved_but_the_conversation_is(
    agent: FakeAgent, home: Path, user_store: backtrail.Store
) -> None:
    agent.say("hello")
    captured = agent.tell(user_store, "UserPromptSubmit", prompt="one", cwd=str(home))
    assert captured.files_missing is not None and "home directory" in captured.files_missing
    session = agent.read(user_store)
    assert session.head.files is None
    assert session.head.custom["files_missing"] == captured.files_missing
    assert len(session.thread.load()["messages"]) == 1


def test_a_directory_that_is_gone_is_named_and_the_conversation_is_captured(
    agent: FakeAgent, tmp_path: Path, user_store: backtrail.Store
) -> None:
    captured = agent.tell(user_store, "UserPromptSubmit", prompt="one", cwd=str(tmp_path / "gone"))
    assert captured.checkpoint is not None and "not a directory" in (captured.files_missing or "")


def test_the_whole_text_of_a_prompt_is_kept(agent: FakeAgent, user_store: backtrail.Store) -> None:
    text = "fix it\n\n" + "all of it " * 1000
    agent.tell(user_store, "UserPromptSubmit", prompt=text, prompt_id="id-1")
    session = agent.read(user_store)
    (turn,) = session.turns()
    assert len(turn.prompt) == 200
    assert session.prompt(turn) == text


def test_a_prompt_that_was_saved_too_late_says_so(agent: FakeAgent, user_store: backtrail.Store) -> None:
    event = read_event("claude", agent.payload("UserPromptSubmit", prompt="one"), {})
    assert event is not None
    captured = capture(user_store, event, deadline=0.0)
    assert captured.checkpoint is not None and captured.checkpoint.custom["late"] is True


def test_a_head_that_a_person_moves_meanwhile_does_not_lose_the_event(
    agent: FakeAgent, user_store: backtrail.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from backtrail.agents import capture as module

    one_turn(agent, user_store, 1)
    read = module.read_new
    moved = []

    def move_first(*args: Any, **options: Any) -> Any:
        if not moved:
            moved.append(user_store.thread("claude/session-1").rewind(1))
        return read(*args, **options)

    monkeypatch.setattr(module, "read_new", move_first)
    agent.say("two")
    captured = agent.tell(user_store, "UserPromptSubmit", prompt="two", prompt_id="id-2")
    assert moved and captured.checkpoint is not None
    assert agent.read(user_store).head.id == captured.checkpoint.id


def test_the_cost_of_a_capture_does_not_grow_with_the_session(agent: FakeAgent, user_store: backtrail.Store) -> None:
    sizes = []
    for number in range(1, 61):
        one_turn(agent, user_store, number)
        sizes.append(agent.read(user_store).head.written)
    assert max(sizes[-10:]) < 2 * max(sizes[:10])
