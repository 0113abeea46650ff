"""What the inspector reads: messages with steps and facts, turns, comparisons, values, searches, health, shared
pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import backtrail
from fix_agent_store import build_agent_store, png
from fix_inspector import Inspector, inspector

LIMITER, REDIS = "api/rate-limiter", "api/rate-limiter-redis"


@pytest.fixture(scope="module")
def agents() -> Iterator[Inspector]:
    with backtrail.open("memory:") as store:
        build_agent_store(store)
        with inspector(store, metrics=True) as served:
            yield served


def _lines(served: Inspector, **query: Any) -> list[dict[str, Any]]:
    response = served.client.get("/api/v1/find", params=query)
    assert response.status_code == 200, response.text
    return [json.loads(line) for line in response.text.splitlines()]


def test_each_message_has_the_step_that_added_it_and_what_it_says_of_itself(agents: Inspector) -> None:
    messages = agents.get("messages", thread=LIMITER)["messages"]
    assert [message["step"]["step"] for message in messages] == list(range(1, 15))
    plan = messages[4]
    assert (plan["model"], plan["tokens"]) == ("claude-sonnet-4", {"input": 2100, "cached": 900, "output": 640})
    assert plan["at"].startswith("2026-11-17T09:00:28")
    assert messages[0]["tokens"] is None


def test_an_image_is_served_as_an_image_and_nothing_else_is(agents: Inspector) -> None:
    found = agents.client.get("/api/v1/image", params={"thread": LIMITER, "message": 10, "image": 0})
    assert (found.headers["content-type"], found.content) == ("image/png", png(120, 60))
    for message, image in ((10, 1), (0, 0), (999, 0)):
        missing = agents.client.get("/api/v1/image", params={"thread": LIMITER, "message": message, "image": image})
        assert missing.status_code == 404


def test_a_page_of_the_history_begins_around_a_checkpoint(agents: Inspector) -> None:
    page = agents.get("history", thread=LIMITER, at="start", limit=4)
    row = page["rows"][page["index"] - page["start"]]
    assert row["label"] == "start"
    newest = agents.get("history", thread=LIMITER, limit=4)
    assert newest["index"] is None
    assert newest["layout"] == page["layout"]


def test_the_layout_of_a_history_changes_with_a_move_and_not_with_a_save(served: Inspector) -> None:
    before = served.get("history", thread="talk")["layout"]
    served.store.thread("talk").append("messages", [{"role": "user", "content": "more"}])
    assert served.get("history", thread="talk")["layout"] == before
    served.store.thread("talk").rewind(1)
    assert served.get("history", thread="talk")["layout"] != before


def test_a_conversation_is_given_as_turns_with_sums(agents: Inspector) -> None:
    found = agents.get("conversation", thread=LIMITER)
    assert [turn["number"] for turn in found["turns"]] == [3, 2, 1]
    turn = found["turns"][1]
    assert [(tool["name"], tool["count"], tool["failed"]) for tool in turn["tools"]] == [
        ("bash", 1, 0),
        ("edit", 2, 0),
        ("bash", 1, 1),
        ("apply_patch", 1, 0),
    ]
    assert (turn["first"]["step"], turn["last"]["step"], turn["failed"], turn["duration"]) == (2, 12, 1, 70.0)
    assert found["totals"]["by_model"]["claude-sonnet-4"] == found["totals"]["tokens"]
    assert agents.get("conversation", thread="vectors/embedding")["total"] == 0


def test_undo_and_redo_say_what_they_would_do(served: Inspector) -> None:
    thread = served.store.thread("talk")
    version = served.get("thread", thread="talk")["thread"]
    assert served.post("undo", thread="talk", dry_run=True)["head"]["step"] == 3
    assert served.get("thread", thread="talk")["thread"] == version
    served.post("undo", thread="talk")
    assert thread.step == 3
    assert served.post("redo", thread="talk", dry_run=True)["head"]["step"] == 4
    assert thread.step == 3


def test_two_forks_are_compared_from_where_they_part(agents: Inspector) -> None:
    found = agents.get("comparison", thread=LIMITER, other=REDIS)
    assert (found["ancestor"]["step"], found["same"]) == (8, 8)
    assert found["right"]["messages"][0]["text"] == "Another way: count in Redis."
    assert [change["path"] for change in found["changes"]] == ["plan.steps[2]"]
    unrelated = agents.get("comparison", thread=LIMITER, other="support/42")
    assert (unrelated["ancestor"], unrelated["same"]) == (None, 0)


def test_a_value_is_given_whole_and_replaced_in_a_fork(agents: Inspector) -> None:
    path = ["messages", 1]
    message = agents.get("value", thread=LIMITER, path=json.dumps(path))["value"]
    assert message["role"] == "user"
    made = agents.post(
        "edit", thread=LIMITER, at="@", path=path, value={"role": "user", "content": "else"}, to="edited"
    )
    assert made["thread"]["id"] == "edited"
    old, new = agents.store.thread(LIMITER).load(), agents.store.thread("edited").load()
    assert new["messages"][1] == {"role": "user", "content": "else"}
    assert new["messages"][2:] == old["messages"][2:]
    refused = agents.client.post("/api/v1/edit", json={"thread": LIMITER, "path": ["no"], "value": 1, "to": "never"})
    assert refused.status_code == 404
    assert not agents.store.thread("never").exists()
    agents.store.thread("edited").delete()


def test_threads_are_filtered_and_described(agents: Inspector) -> None:
    def ids(**query: Any) -> list[str]:
        return [one["id"] for one in agents.get("threads", **query)["threads"]]

    assert ids(kind="session") == ["support/42"]
    assert ids(until="2001-01-01") == []
    assert REDIS in ids(since="2001-01-01", search="REDIS")
    assert ids(tag="red") == []
    agents.store.thread("support/42").annotate("@", label="waits")
    assert ids(label="waits") == ["support/42"]
    (row,) = agents.get("threads", prefix="support", describe=True)["threads"]
    assert (row["title"], row["last"]) == ("My parcel is late", "assistant: I am sorry. Which one?")
    bad = agents.client.get("/api/v1/threads", params={"since": "soon"})
    assert (bad.status_code, "is no date" in bad.text) == (400, True)


def test_a_filter_that_reads_heads_answers_in_pages(agents: Inspector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backtrail.server.thread_listing._MOST_OPENED", 2)
    found, after, pages = [], None, 0
    while pages < 20:
        query = {"after": after} if after else {}
        page = agents.get("threads", tag="nobody", **query)
        found += page["threads"]
        after, pages = page["next"], pages + 1
        if after is None:
            break
    assert (found, pages > 1) == ([], True)


def test_messages_are_found_by_text_role_tool_and_failure(agents: Inspector) -> None:
    *found, done = _lines(agents, text="KEEP IT in memory")
    assert [(one["thread"], one["index"], one["match"]) for one in found] == [(REDIS, 9, "keep it in memory")]
    assert done["done"]
    assert done["threads"] >= 4
    *failed, _ = _lines(agents, thread=LIMITER, failed=True)
    assert [one["number"] for one in failed] == [9]
    *bash, _ = _lines(agents, thread=LIMITER, tool="bash")
    assert [one["number"] for one in bash] == [3, 4, 8, 9]
    *first, last = _lines(agents, thread=LIMITER, role="assistant", limit=2)
    assert (len(first), last["done"]) == (2, True)


def test_checkpoints_are_found_by_label_tag_and_date(agents: Inspector) -> None:
    assert [one["step"] for one in _lines(agents, thread=LIMITER, label="green")[:-1]] == [12]
    assert [one["step"] for one in _lines(agents, thread=LIMITER, tag="red")[:-1]] == [9]
    assert len(_lines(agents, thread=LIMITER, since="2001-01-01")) == 17
    nothing = agents.client.get("/api/v1/find")
    assert (nothing.status_code, "say what to find" in nothing.text) == (400, True)


def test_health_has_figures_and_metrics_are_for_whoever_has_the_token(agents: Inspector) -> None:
    health = agents.get("health", survey=True)
    assert health["healthy"]
    assert health["stats"]["threads"] >= 5
    assert "garbage" in health["stats"]
    text = agents.client.get("/metrics").text
    assert "# TYPE backtrail_store_threads gauge" in text
    assert "\nbacktrail_up 1\n" in text
    assert agents.client.get("/metrics", headers={"authorization": "Bearer no"}).status_code == 401


def test_metrics_are_off_unless_asked_for(served: Inspector) -> None:
    assert served.client.get("/metrics").status_code == 404


def test_the_health_of_a_mirror_tells_its_lag(tmp_path: Path) -> None:
    with (
        backtrail.open(tmp_path / "one.db", replica=tmp_path / "two.db") as store,
        inspector(store, metrics=True) as served,
    ):
        store.thread("t").save({"n": 1})
        assert served.get("health")["mirror"]["primary"]["healthy"]
        assert "backtrail_mirror_lag_records" in served.client.get("/metrics").text


@pytest.mark.parametrize("hidden", ["thinking", "arguments", "results", "system", "images", "facts"])
def test_what_is_left_out_of_a_shared_page_is_not_in_it(agents: Inspector, hidden: str) -> None:
    traces = {
        "thinking": "I should read the app first",
        "arguments": "ls -la",
        "results": "a line of a long output",
        "system": "house rules",
        "images": "data:image/png",
        "facts": "claude-sonnet-4",
    }
    whole = agents.client.get("/api/v1/export", params={"thread": LIMITER, "form": "html"}).text
    left = agents.client.get("/api/v1/export", params={"thread": LIMITER, "form": "html", "leave_out": hidden}).text
    assert traces[hidden] in whole
    assert traces[hidden] not in left
    assert all(traces[other] in left for other in traces if other != hidden)


def test_a_shared_page_is_escaped_and_a_comparison_is_one_too(served: Inspector) -> None:
    evil = "<script>alert(1)</script>"
    thread: backtrail.Thread[Any] = served.store.thread(evil)
    thread.save({"messages": [{"role": evil, "content": f"{evil}\n```html\n{evil}\n```"}]})
    thread.fork("fork").append("messages", [{"role": "user", "content": "another way"}])
    for query in ({}, {"other": "fork"}):
        page = served.client.get("/api/v1/export", params={"thread": evil, "form": "html", **query}).text
        assert page.count("<script") == 1, "the one of the page itself"
        assert evil not in page
    assert "another way" in page
    bad = served.client.get("/api/v1/export", params={"thread": evil, "form": "html", "leave_out": "all"})
    assert bad.status_code == 400


def test_a_snapshot_is_browsed_without_being_restored(tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "app.py").write_text("print(1)\n")
    (root / "README.md").write_text("hello\n")
    with backtrail.open(tmp_path / "s.db") as store, inspector(store) as served:
        store.thread("t").save({"n": 1}, files=store.workspace(root))
        (root / "README.md").unlink()
        top = served.get("tree", thread="t")["entries"]
        assert [(one["name"], one["kind"]) for one in top] == [("src", "folder"), ("README.md", "file")]
        assert [one["name"] for one in served.get("tree", thread="t", path="src")["entries"]] == ["app.py"]
        file = served.client.get("/api/v1/file", params={"thread": "t", "path": "src/app.py"})
        assert (file.text, file.headers["content-disposition"]) == ("print(1)\n", "attachment")
        for path in ("src", "nowhere", "../s.db", "/etc/passwd", ""):
            assert served.client.get("/api/v1/file", params={"thread": "t", "path": path}).status_code == 404
    assert not (root / "README.md").exists()
