"""Each file format, on every engine, sync and async: the store has what the file holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.transcript_lines import is_bookkeeping
from fix_transcripts import PROMPTS, SESSIONS, recorded_lines

from .conftest import write_lines

MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


def entry(uuid: str, parent: str | None, role: str = "user", **more: Any) -> dict[str, Any]:
    message = {"role": role, "content": f"said in {uuid}"}
    return {"type": role, "uuid": uuid, "parentUuid": parent, "sessionId": "s-1", "message": message, **more}


def uuids(session: Any, at: Any = None) -> list[str]:
    return [message["uuid"] for message in session.messages(at=at)]


# -- Claude -----------------------------------------------------------------------------------------------------------


def test_attachments_and_bookkeeping_of_a_claude_transcript_are_no_messages(store: Any, tmp_path: Path) -> None:
    lines = recorded_lines("claude")
    report = store.import_(write_lines(tmp_path / f"{SESSIONS['claude']}.jsonl", lines))
    [line] = report.imported
    session = store.session(line.id)
    assert session.user_turns == len(PROMPTS["claude"])
    assert {message["type"] for message in session.messages()} == {"user", "assistant", "system"}
    assert session.messages() == [one for one in lines if "uuid" in one and not is_bookkeeping(one)]
    assert "no messages were left out" in report.notes[0].reason


def test_a_claude_transcript_is_a_session_of_its_entries(store: Any, tmp_path: Path) -> None:
    rows = [entry("a", None), entry("b", "a", "assistant"), entry("c", "b")]
    rows.insert(0, {"type": "summary", "summary": "A greeting", "leafUuid": "c"})
    write_lines(tmp_path / "s-1.jsonl", rows)
    report = store.import_(tmp_path)
    session = store.session("s-1")
    assert session.messages() == rows[1:]
    assert (session.ids(), session.user_turns) == (["a", "b", "c"], 2)
    assert session.thread.head.custom["title"] == "A greeting"
    assert [line.id for line in report.imported] == ["s-1"]
    assert "1 lines that are no messages" in report.notes[0].reason


def test_parent_links_become_branches(store: Any, tmp_path: Path) -> None:
    rows = [
        entry("a", None),
        entry("b", "a", "assistant"),
        entry("old1", "b"),
        entry("old2", "old1", "assistant"),
        entry("new1", "b"),
        entry("new2", "new1", "assistant"),
        entry("other", "new1", "assistant"),
        entry("new3", "new2"),
    ]
    store.import_(write_lines(tmp_path / "s-1.jsonl", rows))
    session = store.session("s-1")
    assert uuids(session) == ["a", "b", "new1", "new2", "new3"]
    assert session.user_turns == 3
    ends = {tuple(uuids(session, at=c)) for c in session.thread.history(all=True)}
    assert ("a", "b", "old1", "old2") in ends
    assert ("a", "b", "new1", "other") in ends
    assert {c.id for c in session.thread.history()} < {c.id for c in session.thread.history(all=True)}


def call_entry(uuid: str, parent: str, call: str, answer: str = "msg_1") -> dict[str, Any]:
    """One of several entries that make up one response of the model."""
    content = [{"type": "tool_use", "id": call, "name": "f", "input": {}}]
    message = {"id": answer, "role": "assistant", "content": content}
    return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "sessionId": "s-1", "message": message}


def result_entry(uuid: str, parent: str, call: str) -> dict[str, Any]:
    message = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": "ok"}]}
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": "s-1", "message": message}


@pytest.mark.parametrize("order", ["a1 a2 a3 r1 r2 r3", "a1 r1 a2 r2 a3 r3", "a1 a2 r2 r1 a3 r3", "a1 a2 a3 r3 r1 r2"])
def test_parallel_calls_and_their_results_stay_on_one_branch(store: Any, tmp_path: Path, order: str) -> None:
    made = {
        "a1": call_entry("a1", "q", "c1"),
        "a2": call_entry("a2", "a1", "c2"),
        "a3": call_entry("a3", "a2", "c3"),
        "r1": result_entry("r1", "a1", "c1"),
        "r2": result_entry("r2", "a2", "c2"),
        "r3": result_entry("r3", "a3", "c3"),
    }
    rows = [entry("q", None), *(made[uuid] for uuid in order.split()), entry("end", order.split()[-1], "assistant")]
    store.import_(write_lines(tmp_path / "s-1.jsonl", rows))
    session = store.session("s-1")
    assert uuids(session) == ["q", *order.split(), "end"]
    assert session.repair() == []
    assert session.user_turns == 1


def test_a_result_given_twice_is_a_branch(store: Any, tmp_path: Path) -> None:
    rows = [
        entry("q", None),
        call_entry("a", "q", "c"),
        result_entry("r1", "a", "c"),
        result_entry("r2", "a", "c"),
        entry("end", "r2"),
    ]
    store.import_(write_lines(tmp_path / "s-1.jsonl", rows))
    session = store.session("s-1")
    assert uuids(session) == ["q", "a", "r2", "end"]
    assert ["q", "a", "r1"] in [uuids(session, at=c) for c in session.thread.history(all=True)]


def test_the_leaf_that_the_transcript_names_is_the_head(store: Any, tmp_path: Path) -> None:
    rows = [
        entry("a", None),
        entry("b", "a"),
        entry("c", "b"),
        entry("d", "b"),
        {"type": "last-prompt", "leafUuid": "c"},
    ]
    store.import_(write_lines(tmp_path / "s-1.jsonl", rows))
    assert uuids(store.session("s-1")) == ["a", "b", "c"]
    rows[-1] = {"type": "last-prompt", "leafUuid": "b"}
    rows = [{**row, "sessionId": "s-2"} for row in rows]
    store.import_(write_lines(tmp_path / "s-2.jsonl", rows))
    session = store.session("s-2")
    assert uuids(session) == ["a", "b"]
    session.add("user", "goes on")
    assert session.count() == 3


def test_a_compaction_follows_the_entry_it_continues(store: Any, tmp_path: Path) -> None:
    rows = [entry("a", None), entry("b", "a"), entry("boundary", None, logicalParentUuid="b"), entry("c", "boundary")]
    store.import_(write_lines(tmp_path / "s-1.jsonl", rows))
    assert uuids(store.session("s-1")) == ["a", "b", "boundary", "c"]


def test_a_second_root_replaces_the_first(store: Any, tmp_path: Path) -> None:
    rows = [entry("a", None), entry("b", "a"), entry("x", None), entry("y", "x")]
    store.import_(write_lines(tmp_path / "s-1.jsonl", rows))
    session = store.session("s-1")
    assert uuids(session) == ["x", "y"]
    assert ["a", "b"] in [uuids(session, at=c) for c in session.thread.history(all=True)]


def test_sub_agents_are_sessions_of_their_own(store: Any, tmp_path: Path) -> None:
    rows = [
        entry("a", None),
        entry("s1", None, isSidechain=True),
        entry("s2", "s1", "assistant", isSidechain=True),
        entry("g1", None, isSidechain=True, agentId="7"),
        entry("b", "a", "assistant"),
    ]
    write_lines(tmp_path / "s-1.jsonl", rows)
    write_lines(tmp_path / "agent-9.jsonl", [entry("z", None, isSidechain=True, agentId="9")])
    store.import_(tmp_path)
    assert uuids(store.session("s-1")) == ["a", "b"]
    assert uuids(store.session("s-1/sidechain-s1")) == ["s1", "s2"]
    assert uuids(store.session("s-1/agent-7")) == ["g1"]
    assert uuids(store.session("s-1/agent-9")) == ["z"]


def test_repeated_entries_circles_and_missing_parents_are_tolerated(store: Any, tmp_path: Path) -> None:
    rows = [entry("a", "ghost"), entry("a", "ghost"), entry("b", "c"), entry("c", "b")]
    store.import_(write_lines(tmp_path / "s-1.jsonl", rows))
    assert uuids(store.session("s-1"))[-1] == "c"


def test_a_transcript_that_went_on_is_continued(store: Any, tmp_path: Path) -> None:
    rows = [entry("a", None), entry("b", "a", "assistant")]
    store.import_(write_lines(tmp_path / "s-1.jsonl", rows))
    rows += [entry("c", "b"), entry("d", "c", "assistant")]
    report = store.import_(write_lines(tmp_path / "s-1.jsonl", rows))
    assert [(line.id, line.reason) for line in report.updated] == [("s-1", "2 messages were added")]
    assert uuids(store.session("s-1")) == ["a", "b", "c", "d"]
    assert store.session("s-1").user_turns == 2


# -- lists of messages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "ids"),
    [
        ("talk.json", json.dumps(MESSAGES), ["talk"]),
        ("talk.json", json.dumps({"messages": MESSAGES}), ["talk"]),
        ("talk.json", json.dumps({"id": "own", "messages": MESSAGES}), ["own"]),
        ("talk.jsonl", "\n".join(map(json.dumps, MESSAGES)), ["talk"]),
        ("talk.json", "\n".join(map(json.dumps, MESSAGES)), ["talk"]),
        (
            "talk.jsonl",
            json.dumps({"messages": MESSAGES}) + "\r\n\r\n" + json.dumps({"messages": MESSAGES}),
            ["talk-1", "talk-3"],
        ),
        ("talk.json", "\ufeff" + json.dumps(MESSAGES), ["talk"]),
    ],
)
def test_a_list_of_messages_is_a_session(store: Any, tmp_path: Path, name: str, text: str, ids: list[str]) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    report = store.import_(tmp_path / name)
    assert [line.id for line in report.imported] == ids
    assert all(store.session(id).messages() == MESSAGES for id in ids)


def test_items_of_the_responses_api_are_messages_too(store: Any, tmp_path: Path) -> None:
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "1"},
    ]
    store.import_(write_lines(tmp_path / "r.jsonl", items))
    assert store.session("r").messages(last=1) == items[1:]


def test_line_separators_inside_a_string_do_not_end_a_line(store: Any, tmp_path: Path) -> None:
    text = '{"role": "user", "content": "a\u2028b\u0085c"}\n'
    (tmp_path / "t.jsonl").write_text(text, encoding="utf-8")
    store.import_(tmp_path)
    assert store.session("t").messages() == [{"role": "user", "content": "a\u2028b\u0085c"}]


def test_two_files_of_one_name_in_two_directories_are_two_sessions(store: Any, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_lines(tmp_path / name / "talk.jsonl", [{"role": "user", "content": name}])
    store.import_(tmp_path)
    assert sorted(info.id for info in store.sessions()) == ["one/talk", "two/talk"]


# -- other programs' formats ------------------------------------------------------------------------------------------


def test_a_ductwork_run_can_be_resumed(store: Any, tmp_path: Path) -> None:
    saved = {
        "run_id": "run-1",
        "task_name": "nightly",
        "iteration": 4,
        "messages": MESSAGES,
        "system_prompt": "brief",
        "input_tokens": 10,
        "output_tokens": 20,
        "created_at": "2026-03-02T10:00:00Z",
        "model": "m-1",
    }
    (tmp_path / "run-1.json").write_text(json.dumps(saved))
    assert [line.id for line in store.import_(tmp_path).imported] == ["run-1"]
    run = store.run("run-1")
    run.resume()
    assert (run.task, run.iteration, run.messages, run.system_prompt) == ("nightly", 4, MESSAGES, "brief")
    assert (run.input_tokens, run.output_tokens, run.custom) == (10, 20, {"model": "m-1"})
    run.checkpoint()
    report = store.import_(tmp_path)
    assert [line.id for line in report.unchanged] == ["run-1"]
    (tmp_path / "run-1.json").write_text(json.dumps({**saved, "iteration": 5}))
    assert "left as it is" in store.import_(tmp_path).skipped[0].reason
    run.resume()
    assert run.iteration == 5


def test_what_picoclaw_truncated_is_still_in_the_history(store: Any, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": str(number)} for number in range(10)]
    write_lines(tmp_path / "tg_1.jsonl", messages)
    (tmp_path / "tg_1.meta.json").write_text(json.dumps({"key": "tg:1", "skip": 7, "summary": "seven", "count": 10}))
    store.import_(tmp_path)
    session = store.session("tg:1")
    assert (session.messages(), session.summary) == (messages[7:], "seven")
    assert messages in [session.messages(at=c) for c in session.thread.history()]


def test_a_format_can_be_given_by_name(store: Any, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"key": "k", "messages": MESSAGES}))
    report = store.import_(tmp_path, format="openai")
    assert [line.id for line in report.imported] == ["x"]
    report = store.import_(tmp_path, format="claude")
    assert len(report.failed) == 1
    with pytest.raises(backtrail.InvalidInput, match="picoclaw"):
        store.import_(tmp_path, format="chatgpt")
