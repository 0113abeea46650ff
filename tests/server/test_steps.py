"""The steps and turns that a filter keeps: by role, tool, failure, label, tag and date, request by request."""

from __future__ import annotations

from typing import Any

import pytest

import backtrail
from backtrail.server import step_list
from fix_inspector import Inspector, inspector


def _call(id: str, name: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": id, "function": {"name": name, "arguments": "{}"}}],
    }


@pytest.fixture
def served() -> Any:
    with backtrail.open("memory:") as store:
        talk: backtrail.Thread[Any] = store.thread("talk")
        talk.append("messages", [{"role": "user", "content": "first"}], label="start")
        talk.append("messages", [_call("1", "bash")], tags=["slow"])
        talk.append("messages", [{"role": "tool", "tool_call_id": "1", "content": "Error: no such file"}])
        talk.append("messages", [{"role": "assistant", "content": "done"}])
        talk.append("messages", [{"role": "user", "content": "second"}])
        talk.append("messages", [_call("2", "edit")], label="edited")
        failed = {"type": "tool_result", "tool_use_id": "2", "content": "no", "is_error": True}
        talk.append("messages", [{"role": "user", "content": [failed]}])
        with inspector(store) as running:
            yield running


def _steps(served: Inspector, **query: Any) -> list[int]:
    return [row["step"] for row in served.get("steps", thread="talk", **query)["rows"]]


def test_a_filter_keeps_the_steps_that_have_all_of_it(served: Inspector) -> None:
    assert _steps(served, role="user") == [5, 1]
    assert _steps(served, role="tool") == [7, 3]
    assert _steps(served, role="assistant") == [6, 4, 2]
    assert _steps(served, tool="bash") == [3, 2]  # the result does not name its tool: the call does
    assert _steps(served, tool="edit") == [7, 6]
    assert _steps(served, failed=True) == [7]
    assert _steps(served, failed=True, tool="bash") == []
    assert _steps(served, label="start") == [1]
    assert _steps(served, tag="slow") == [2]
    assert _steps(served, tag="slow", role="user") == []
    assert _steps(served, since="2999-01-01") == []
    assert _steps(served, until="2999-01-01") == [7, 6, 5, 4, 3, 2, 1]
    assert _steps(served) == [7, 6, 5, 4, 3, 2, 1]


def test_a_date_that_is_none_is_refused(served: Inspector) -> None:
    response = served.client.get("/api/v1/steps", params={"thread": "talk", "since": "yesterday"})
    assert response.status_code == 400
    assert "since='yesterday' is no date" in response.json()["error"]["message"]


def test_one_request_reads_some_steps_and_the_next_goes_on(served: Inspector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_list, "_MOST_READ", 3)
    page = served.get("steps", thread="talk", role="user")
    assert ([row["step"] for row in page["rows"]], page["below"], page["total"]) == ([5], 4, 7)
    page = served.get("steps", thread="talk", role="user", below=page["below"])
    assert ([row["step"] for row in page["rows"]], page["below"]) == ([], 1)
    page = served.get("steps", thread="talk", role="user", below=page["below"])
    assert ([row["step"] for row in page["rows"]], page["below"]) == ([1], None)


def test_what_was_saved_since_is_asked_for_alone(served: Inspector) -> None:
    before = served.get("steps", thread="talk", role="user")
    served.store.thread("talk").append("messages", [{"role": "user", "content": "third"}])
    after = served.get("steps", thread="talk", role="user", above=before["total"])
    assert after["layout"] == before["layout"]
    assert ([(row["step"], row["place"]) for row in after["rows"]], after["below"]) == ([(8, 7)], None)
    served.store.thread("talk").rewind(2)
    assert served.get("steps", thread="talk", role="user")["layout"] != before["layout"]


def test_steps_that_a_rewind_left_are_kept_and_marked(served: Inspector) -> None:
    served.store.thread("talk").rewind(2)
    rows = served.get("steps", thread="talk", role="user")["rows"]
    assert [(row["step"], row["on_trail"]) for row in rows] == [(5, False), (1, True)]


def test_a_filter_keeps_the_turns_that_have_all_of_it(served: Inspector) -> None:
    def turns(**query: Any) -> list[int]:
        found = served.get("conversation", thread="talk", **query)
        assert found["total"] == len(found["turns"]) == found["totals"]["turns"]
        return [turn["number"] for turn in found["turns"]]

    assert turns() == [2, 1]
    assert turns(tool="bash") == [1]
    assert turns(failed=True) == [2]
    assert turns(role="assistant") == [2, 1]
    assert turns(role="system") == []
    assert turns(label="start") == [1]
    assert turns(label="edited") == [2]
    assert turns(tag="slow", tool="edit") == []
    assert turns(since="2999-01-01") == []
    assert turns(until="2999-01-01") == [2, 1]


def test_the_turns_of_a_thread_that_changes_are_those_of_one_that_is_read_anew(served: Inspector) -> None:
    talk: backtrail.Thread[Any] = served.store.thread("talk")

    def same() -> None:
        with inspector(served.store) as fresh:
            assert served.get("conversation", thread="talk") == fresh.get("conversation", thread="talk")

    same()
    talk.append("messages", [{"role": "assistant", "content": "more of the second"}])
    same()
    talk.append("messages", [{"role": "user", "content": "third"}, {"role": "assistant", "content": "so be it"}])
    same()
    state = talk.load()
    talk.save(state | {"mode": "x", "messages": [{"role": "user", "content": "another first"}, *state["messages"][1:]]})
    same()
    talk.save(state | {"messages": state["messages"][:3]})
    same()
    talk.rewind(2)
    same()


def test_a_step_has_the_model_the_tokens_and_the_time_of_what_it_added(served: Inspector) -> None:
    thread: backtrail.Thread[Any] = served.store.thread("costly")
    thread.append("messages", [{"role": "user", "content": "go"}])
    usage = {"input_tokens": 100, "output_tokens": 20, "cache_read_input_tokens": 5}
    said = {"role": "assistant", "content": "…", "model": "m-1", "usage": usage, "cost": 0.25}
    thread.append("messages", [said, said])
    thread.append("messages", [said] * 50)
    many, two, first = served.get("history", thread="costly")["rows"]
    assert (first["model"], first["tokens"], first["cost"], first["seconds"]) == (None, None, None, None)
    assert (two["model"], two["cost"]) == ("m-1", 0.5)
    assert two["tokens"] == {"input": 210, "cached": 10, "output": 40}
    assert 0 <= two["seconds"] < 60
    assert (many["model"], many["tokens"], many["cost"]) == (None, None, None), "a sum of some of them would be wrong"
    (kept,) = served.get("steps", thread="costly", role="user")["rows"]
    assert kept["seconds"] is None
