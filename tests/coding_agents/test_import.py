"""Old sessions of the four agents, imported from the directories in which the agents keep them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.agents.capture import capture
from backtrail.agents.events import AGENTS, Event, thread_id
from backtrail.agents.going_back import rewind
from backtrail.agents.import_sessions import import_sessions
from backtrail.agents.sessions import newest_session, session_of
from backtrail.render.agent_turns import find_turns
from fix_captured import CapturedSession
from fix_stores import EVERY_ENGINE, open_stores
from fix_transcripts import PROMPTS, SESSIONS, put_session, recorded_lines

agents = pytest.mark.parametrize("agent", AGENTS)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[backtrail.Store]:
    with backtrail.open(tmp_path / "agents.db") as opened:
        yield opened


def thread_of(store: Any, agent: Any) -> Any:
    return store.thread(thread_id(agent, SESSIONS[agent]))


def outcomes(report: Any) -> dict[str, int]:
    names = ("imported", "updated", "unchanged", "skipped", "failed")
    return {name: len(getattr(report, name)) for name in names if getattr(report, name)}


@agents
def test_a_session_becomes_a_thread_of_its_raw_lines(store: Any, home: Path, agent: Any) -> None:
    put_session(agent, home)
    assert outcomes(import_sessions(store, AGENTS)) == {"imported": 1}
    stored = thread_of(store, agent).load()["messages"]
    assert sorted(map(json.dumps, map(_sorted, stored))) == sorted(map(json.dumps, map(_sorted, recorded_lines(agent))))
    assert store.session(thread_of(store, agent).id).repair() == []


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("engine", EVERY_ENGINE)
def test_sessions_are_imported_into_every_engine(
    engine: str, home: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for agent in AGENTS:
        put_session(agent, home)
    for opener in open_stores(engine, "blocking", tmp_path, request):
        with opener() as store:
            assert outcomes(import_sessions(store, AGENTS)) == {"imported": 4}
            assert outcomes(import_sessions(store, AGENTS)) == {"unchanged": 4}
            sessions = [info for info in store.threads() if info.id.split("/")[0] in AGENTS]  # and not their index
            assert {info.updated_at.day for info in sessions} == {16, 18}
            assert len(thread_of(store, "claude").load()["messages"]) == len(recorded_lines("claude"))


@agents
def test_each_turn_has_a_checkpoint_at_its_prompt_and_one_at_its_end(store: Any, home: Path, agent: Any) -> None:
    put_session(agent, home)
    import_sessions(store, AGENTS)
    session = session_of(store, thread_of(store, agent).id)
    assert session is not None
    turns = session.turns()
    assert [turn.prompt for turn in turns] == PROMPTS[agent]
    assert [session.prompt(turn) for turn in turns] == PROMPTS[agent]
    for number, turn in enumerate(turns, 1):
        assert turn.number == number
        assert turn.before is not None and turn.after is not None
        before = session.thread.pick(["messages"], at=turn.before)["messages"]
        after = session.thread.pick(["messages"], at=turn.after)["messages"]
        assert len(find_turns(before)) == number - 1
        assert len(find_turns(after)) == number


@agents
def test_checkpoints_and_threads_have_the_sessions_own_times(store: Any, home: Path, agent: Any) -> None:
    put_session(agent, home)
    import_sessions(store, AGENTS)
    times = [checkpoint.created_at for checkpoint in thread_of(store, agent).history()]
    assert times == sorted(times)
    day = "2026-11-18" if agent == "opencode" else "2026-11-16"
    assert {f"{time:%Y-%m-%d}" for time in times} == {day}
    [info] = store.threads(f"{agent}/")
    assert f"{info.created_at:%Y-%m-%d}" == f"{info.updated_at:%Y-%m-%d}" == day


@agents
def test_the_directory_of_a_session_is_known(store: Any, home: Path, agent: Any) -> None:
    put_session(agent, home)
    import_sessions(store, AGENTS)
    found = newest_session(store, "/home/user/project")
    assert found is not None and found.thread_id == thread_of(store, agent).id


@agents
def test_a_second_import_changes_nothing(store: Any, home: Path, agent: Any) -> None:
    put_session(agent, home)
    import_sessions(store, AGENTS)
    before = thread_of(store, agent).head
    assert outcomes(import_sessions(store, AGENTS)) == {"unchanged": 1}
    assert thread_of(store, agent).head == before


@agents
def test_a_session_that_went_on_is_continued(store: Any, home: Path, agent: Any) -> None:
    lines = recorded_lines(agent)
    for stop in range(1, len(lines) + 1):
        put_session(agent, home, lines[:stop])
        import_sessions(store, AGENTS)
    session = session_of(store, thread_of(store, agent).id)
    assert session is not None
    assert len(session.thread.load()["messages"]) >= _last_message(lines)
    assert [turn.prompt for turn in session.turns()] == PROMPTS[agent]


def _last_message(lines: list[Any]) -> int:
    from backtrail.transcript_lines import is_bookkeeping

    return max(n for n, line in enumerate(lines, 1) if not is_bookkeeping(line))


@agents
def test_an_import_that_was_interrupted_goes_on(
    store: Any, home: Path, agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_session(agent, home)
    saves = 0
    update = backtrail.Thread.update

    def fails_after(count: int) -> Any:
        def update_or_fail(*args: Any, **options: Any) -> Any:
            nonlocal saves
            saves += 1
            if saves > count:
                raise KeyboardInterrupt
            return update(*args, **options)

        return update_or_fail

    import_sessions(store, AGENTS)
    thread = thread_of(store, agent)
    in_all = thread.step
    thread.delete()
    for count in range(1, in_all):
        saves = 0
        monkeypatch.setattr(backtrail.Thread, "update", fails_after(count))
        with pytest.raises(KeyboardInterrupt):
            import_sessions(store, AGENTS)
        monkeypatch.setattr(backtrail.Thread, "update", update)
        import_sessions(store, AGENTS)
        session = session_of(store, thread_of(store, agent).id)
        assert session is not None
        assert [turn.prompt for turn in session.turns()] == PROMPTS[agent]
        assert len(session.thread.load()["messages"]) == len(recorded_lines(agent))
        session.thread.delete()


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini"])
def test_a_session_that_hooks_capture_is_continued_and_not_doubled(
    store: Any, home: Path, tmp_path: Path, agent: Any
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    lines = recorded_lines(agent)
    starts = [turn.index for turn in find_turns(lines)]
    ids = [turn.turn_id for turn in find_turns(lines)]

    def hook(kind: Any, stop: int, **fields: Any) -> None:
        path = str(put_session(agent, home, lines[:stop]))
        capture(
            store,
            Event(
                agent=agent,
                kind=kind,
                name=kind,
                session_id=SESSIONS[agent],
                cwd=str(project),
                transcript=path,
                turn_id=None if agent == "gemini" else fields.pop("turn_id"),
                **{key: value for key, value in fields.items() if key != "turn_id"},
            ),
        )

    hook("prompt", starts[0], turn_id=ids[0], prompt=PROMPTS[agent][0])
    hook("turn_end", starts[1] - 1, turn_id=ids[0])
    hook("prompt", starts[1], turn_id=ids[1], prompt=PROMPTS[agent][1])  # and then the hooks were taken out
    put_session(agent, home)
    assert outcomes(import_sessions(store, AGENTS)) == {"updated": 1}
    assert outcomes(import_sessions(store, AGENTS)) == {"unchanged": 1}
    session = session_of(store, thread_of(store, agent).id)
    assert session is not None
    assert [turn.prompt for turn in session.turns()] == PROMPTS[agent]
    assert session.thread.load()["messages"] == lines
    first = session.turn(1)
    assert first.before is not None and first.before.files is not None
    assert session.cwd == str(project)


@agents
def test_hooks_that_come_later_go_on_where_the_import_ended(store: Any, home: Path, agent: Any, tmp_path: Path) -> None:
    if agent == "opencode":
        return  # its plugin sends all messages at each event
    path = put_session(agent, home)
    import_sessions(store, AGENTS)
    event = Event(
        agent=agent,
        kind="prompt",
        name="p",
        session_id=SESSIONS[agent],
        cwd=str(tmp_path),
        prompt="next",
        transcript=str(path),
    )
    capture(store, event)
    session = session_of(store, thread_of(store, agent).id)
    assert session is not None
    assert session.turns()[-1].number == len(PROMPTS[agent]) + 1
    assert session.thread.load()["messages"] == recorded_lines(agent)


def test_a_transcript_that_was_rewritten_is_skipped(store: Any, home: Path) -> None:
    put_session("claude", home)
    import_sessions(store, AGENTS)
    put_session("claude", home, recorded_lines("claude")[2:])
    report = import_sessions(store, AGENTS)
    assert "rewritten" in report.skipped[0].reason


def test_a_transcript_that_was_moved_is_the_same_one(store: Any, home: Path) -> None:
    lines = recorded_lines("codex")
    path = put_session("codex", home, lines[:20])
    import_sessions(store, AGENTS)
    path.unlink()
    archived = home / ".codex/archived_sessions" / path.name
    archived.parent.mkdir()
    archived.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert outcomes(import_sessions(store, AGENTS)) == {"updated": 1}
    assert thread_of(store, "codex").load()["messages"] == lines


def test_a_session_that_a_rewind_made_is_left_to_the_hook(
    store: Any, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CapturedSession(store, "claude", home, tmp_path / "project").play()
    session = session_of(store, thread_of(store, "claude").id)
    assert session is not None
    made = rewind(store, session, 2, files=False).session
    assert made.thread_id != session.thread_id
    report = import_sessions(store, AGENTS)
    assert sorted(line.id or "" for line in report.unchanged) == sorted([made.thread_id, session.thread_id])


def test_another_conversation_under_the_same_id_is_left_as_it_is(store: Any, home: Path) -> None:
    put_session("opencode", home)
    thread = thread_of(store, "opencode")
    thread.append("messages", [{"info": {"id": "x"}, "parts": []}])
    report = import_sessions(store, AGENTS)
    assert "another conversation" in report.skipped[0].reason
    assert thread.step == 1


def test_an_agent_that_went_back_itself_has_gone_back_in_the_thread(store: Any, home: Path) -> None:
    lines = recorded_lines("gemini")
    again = {**lines[find_turns(lines)[1].index], "id": "other", "content": [{"text": "another second"}]}
    put_session("gemini", home, [*lines, {"$rewindTo": find_turns(lines)[1].turn_id}, again])
    import_sessions(store, AGENTS)
    session = session_of(store, thread_of(store, "gemini").id)
    assert session is not None
    assert [turn.prompt for turn in session.turns()] == [PROMPTS["gemini"][0], "another second"]


def test_a_session_of_gemini_in_one_json_value_is_imported(store: Any, home: Path) -> None:
    messages = [line for line in recorded_lines("gemini") if "type" in line]
    path = put_session("gemini", home)
    path.unlink()
    value = {"sessionId": SESSIONS["gemini"], "projectHash": "x", "messages": messages}
    path.with_suffix(".json").write_text(json.dumps(value, indent=2))
    assert outcomes(import_sessions(store, AGENTS)) == {"imported": 1}
    assert outcomes(import_sessions(store, AGENTS)) == {"unchanged": 1}
    session = session_of(store, thread_of(store, "gemini").id)
    assert session is not None and [turn.prompt for turn in session.turns()] == PROMPTS["gemini"]


def test_a_compressed_transcript_of_codex_is_read(store: Any, home: Path) -> None:
    import zstandard

    path = put_session("codex", home)
    path.with_name(path.name + ".zst").write_bytes(zstandard.compress(path.read_bytes()))
    path.unlink()
    assert outcomes(import_sessions(store, AGENTS)) == {"imported": 1}
    assert outcomes(import_sessions(store, AGENTS)) == {"unchanged": 1}


def test_sub_agents_are_no_sessions(store: Any, home: Path) -> None:
    lines = recorded_lines("codex")
    lines[0]["payload"]["source"] = {"subagent": "review"}
    put_session("codex", home, lines)
    claude = put_session("claude", home)
    claude.rename(claude.with_name("agent-1.jsonl"))
    assert outcomes(import_sessions(store, AGENTS)) == {}


# -- files that anybody may have written -------------------------------------------------------------------------------


HOSTILE: dict[str, bytes] = {
    "empty": b"",
    "not a line": b"{",
    "binary": bytes(range(256)) * 50,
    "deep": b"[" * 200_000 + b"\n",
    "not an object": b"1\n[]\nnull\n",
    "huge number": b'{"type": "user", "sessionId": "s", "uuid": "u", "n": 1' + b"0" * 5000 + b"}\n",
    "half a surrogate pair": b'{"type": "user", "uuid": "u", "message": {"role": "user", "content": "\\ud800"}}\n',
    "times that no calendar has": b"".join(
        b'{"type": "user", "uuid": "%s", "timestamp": "%s", "message": {"role": "user", "content": "x"}}\n'
        % (time, time)
        for time in (b"9999-99-99", b"9999-12-31T23:59:59-14:00", b"0001-01-01T00:00:00Z")
    ),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("agent", ["claude", "codex", "gemini"])
def test_a_bad_file_is_a_line_of_the_report_and_the_others_are_imported(
    store: Any, home: Path, agent: Any, content: bytes
) -> None:
    good = put_session("claude", home)
    bad = put_session(agent, home)
    bad = bad.with_name({"claude": "b", "codex": "rollout-b", "gemini": "session-b"}[agent] + ".jsonl")
    bad.write_bytes(content)
    report = import_sessions(store, AGENTS)
    assert str(good) in [line.source for line in report.imported]
    assert store.verify().ok
    assert outcomes(import_sessions(store, AGENTS)).get("imported", 0) == 0


def test_a_database_that_is_none_is_a_line_of_the_report(store: Any, home: Path) -> None:
    path = put_session("opencode", home)
    path.write_bytes(b"not a database" * 1000)
    [line] = import_sessions(store, AGENTS).failed
    assert "opencode" in line.reason
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE session (id)")
    database.close()
    [line] = import_sessions(store, AGENTS).failed
    assert "column" in line.reason
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE VIEW session AS SELECT 1 AS id")
    database.close()
    [line] = import_sessions(store, AGENTS).failed
    assert "no table" in line.reason


def test_a_link_in_an_agents_directory_is_not_followed(store: Any, home: Path, tmp_path: Path) -> None:
    path = put_session("claude", home)
    secret = tmp_path / "secret.jsonl"
    path.rename(secret)
    path.symlink_to(secret)
    assert outcomes(import_sessions(store, AGENTS)).get("imported", 0) == 0


def test_nothing_on_disk_is_nothing_imported(store: Any, home: Path) -> None:
    assert outcomes(import_sessions(store, AGENTS)) == {}


@agents
def test_a_session_is_exported_as_markdown_without_what_is_no_message(store: Any, home: Path, agent: Any) -> None:
    put_session(agent, home)
    import_sessions(store, AGENTS)
    text = store.export(thread_of(store, agent).id, format="markdown")
    for prompt in PROMPTS[agent]:
        assert prompt in text
    assert "*(nothing)*" not in text
    assert len(store.export(thread_of(store, agent).id).splitlines()) == len(recorded_lines(agent)) + 1
