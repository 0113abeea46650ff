"""The JSON API: each operation, its errors, and its OpenAPI document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.server.requests import WriteRequest
from backtrail.server.routes import OPERATIONS, ROOT, STREAMS, Operation
from fix_inspector import Inspector, inspector


def test_the_store_and_its_threads_are_listed(served: Inspector) -> None:
    about = served.get("store")
    assert (about["name"], about["read_only"], about["stats"]["threads"]) == ("test.db", False, 2)
    assert [t["id"] for t in served.get("threads")["threads"]] == ["talk-fork", "talk"]
    assert [t["id"] for t in served.get("threads", search="FORK")["threads"]] == ["talk-fork"]


def test_threads_come_in_pages_also_when_they_are_searched(served: Inspector) -> None:
    for i in range(25):
        served.store.thread(f"many/{i:02}").save({})
    seen: list[str] = []
    after: str | None = None
    while True:
        page = served.get("threads", limit=10, search="MANY", **({"after": after} if after else {}))
        seen += [t["id"] for t in page["threads"]]
        after = page["next"]
        if after is None:
            break
    assert seen == [f"many/{i:02}" for i in reversed(range(25))]


def test_history_is_paged_rows_of_a_graph(served: Inspector) -> None:
    whole = served.get("history", thread="talk")
    assert (whole["total"], whole["lanes"]) == (6, 2)
    assert [row["step"] for row in whole["rows"]] == [4, 5, 4, 3, 2, 1]
    assert [row["on_trail"] for row in whole["rows"]] == [True, False, False, True, True, True]
    assert whole["rows"][0]["preview"] == "another way"
    parts = [served.get("history", thread="talk", start=i, limit=2)["rows"] for i in (0, 2, 4)]
    assert [row for part in parts for row in part] == whole["rows"]
    assert served.get("history", thread="talk", trail=True)["total"] == 4


def test_a_thread_has_its_head_its_forks_and_its_sizes(served: Inspector) -> None:
    thread = served.get("thread", thread="talk")
    assert thread["head"]["tags"] == ["good"]
    assert thread["forks"][0]["thread_id"] == "talk-fork"
    assert served.get("checkpoint", thread="talk", at="start")["step"] == 1
    sizes = served.get("sizes", thread="talk")
    assert [p["step"] for p in sizes["points"]] == [1, 2, 3, 4]
    assert (sizes["steps"], sizes["written"]) == (4, sum(p["written"] for p in sizes["points"]))


def test_a_thread_with_many_forks_has_a_page_of_them_and_the_number_of_the_others(served: Inspector) -> None:
    origin = served.store.thread("z origin")
    origin.save({"n": 0})
    thread = origin.fork("forked")
    for number in range(130):
        thread.fork(f"fork {number:03}")
    answer = served.get("thread", thread="forked")
    assert [fork["thread_id"] for fork in answer["forks"]] == ["z origin", *(f"fork {n:03}" for n in range(100))]
    assert [fork["relation"] for fork in answer["forks"][:2]] == ["parent", "sibling"]
    assert answer["more_forks"] == 30
    assert served.get("thread", thread="talk")["more_forks"] == 0


def test_messages_come_in_pages(served: Inspector) -> None:
    served.store.thread("long").append("messages", [{"role": "user", "content": f"m{i}"} for i in range(120)])
    last = served.get("messages", thread="long")
    assert (last["total"], last["start"], len(last["messages"])) == (120, 70, 50)
    first = served.get("messages", thread="long", start=0, limit=10)
    assert [m["text"] for m in first["messages"]] == [f"m{i}" for i in range(10)]
    served.store.thread("none").save({"n": 1})
    assert served.get("messages", thread="none")["key"] is None


def test_a_long_text_is_cut_unless_whole_is_requested(served: Inspector) -> None:
    served.store.thread("long").append("messages", [{"role": "user", "content": "x" * 50_000}])
    cut = served.get("messages", thread="long")["messages"][0]["text"]
    assert (len(cut["$cut"]), cut["size"]) == (20_000, 50_000)
    assert len(served.get("messages", thread="long", whole=True)["messages"][0]["text"]) == 50_000


def test_state_is_sent_one_level_at_a_time(served: Inspector) -> None:
    top = served.get("state", thread="talk")
    assert {e["name"]: (e["kind"], e["known"]) for e in top["entries"]} == {
        "messages": ("list", False),
        "mode": ("text", True),
    }
    item = served.get("state", thread="talk", path=json.dumps(["messages", 1]))
    assert {e["name"]: e["value"] for e in item["entries"]} == {"role": "user", "content": "message 1"}


def test_a_diff_lists_the_changes(served: Inspector) -> None:
    diff = served.get("diff", thread="talk", a="start")
    assert (diff["total"], diff["changes"][0]["kind"]) == (3, "added")
    assert served.get("diff", thread="talk")["b"]["step"] == served.get("diff", thread="talk")["a"]["step"] + 1
    fork = served.store.thread("talk").fork("other-talk")
    fork.save({"n": 1})
    assert served.get("diff", thread="talk", other="other-talk")["b"]["thread_id"] == "other-talk"
    assert served.get("diff", thread="other-talk", other="talk", since_fork=True)["total"] == 0
    assert served.get("diff", thread="talk", other="other-talk", a="start", b="@~1")["total"] == diff["total"]
    assert served.get("diff", thread="talk", a="start", limit=1)["changes"][0]["path"] == "messages[0]"


@pytest.mark.parametrize("form", ["json", "jsonl", "markdown"])
def test_a_checkpoint_is_exported_as_an_attachment(served: Inspector, form: str) -> None:
    answer = served.client.get("/api/v1/export", params={"thread": "talk", "form": form})
    assert answer.headers["content-disposition"] == "attachment"
    assert "another way" in answer.text


def test_a_thread_is_saved_appended_to_and_updated_over_http(served: Inspector) -> None:
    first = served.post("save", thread="new", state={"messages": [], "raw": {"$bytes": "aGk="}}, label="one")
    second = served.post("append", thread="new", items=[{"role": "user", "content": "hi"}], tags=["t"], custom={"a": 1})
    assert second["parent_id"] == first["id"]
    third = served.post("update", thread="new", changes={"mode": "x"}, expect=second["id"])
    assert served.store.thread("new").load() == {
        "messages": [{"role": "user", "content": "hi"}],
        "raw": b"hi",
        "mode": "x",
    }
    assert third["step"] == 3


def test_a_save_over_http_must_name_the_head_it_replaces(served: Inspector) -> None:
    head = served.get("thread", thread="talk")["head"]["id"]
    blind = served.client.post("/api/v1/save", json={"thread": "talk", "state": {}})
    assert (blind.status_code, blind.json()["error"]["type"]) == (400, "InvalidInput")
    served.store.thread("talk").append("messages", ["meanwhile"])
    late = served.client.post("/api/v1/save", json={"thread": "talk", "state": {}, "expect": head})
    assert (late.status_code, late.json()["error"]["type"]) == (409, "Conflict")
    taken = served.client.post("/api/v1/save", json={"thread": "talk", "state": {}, "expect": None})
    assert taken.status_code == 409


def test_messages_appended_to_a_session_count_as_its_turns(served: Inspector) -> None:
    served.store.session("chat").add("user", "one")
    served.post("append", thread="chat", items=[{"role": "user", "content": "two"}])
    for _ in range(2):
        id = "01234567-89ab-7def-8123-456789abcdef"
        saved = served.post("append", thread="chat", items=[{"role": "user", "content": "3"}], label="third", id=id)
        assert (saved["id"], saved["label"]) == (id, "third")
    assert served.store.session("chat").user_turns == 3


def test_fork_rewind_undo_annotate_and_delete(served: Inspector) -> None:
    assert served.post("fork", thread="talk", at="start", to="again")["thread"]["step"] == 1
    assert served.post("fork", thread="talk")["thread"]["id"] == "talk#fork-1"
    plan = served.post("rewind", thread="talk", at="start", dry_run=True)
    assert (len(plan["left"]), plan["done"]) == (3, False)
    assert served.store.thread("talk").step == 4
    assert served.post("rewind", thread="talk", at="start")["done"] is True
    assert served.store.thread("talk").step == 1
    assert served.post("undo", thread="talk")["head"]["step"] == 4
    assert served.post("redo", thread="talk")["head"] != served.post("undo", thread="talk")["head"]
    annotated = served.post("annotate", thread="talk", label="best", tags=["x"])
    assert (annotated["label"], annotated["tags"]) == ("best", ["x"])
    assert served.post("annotate", thread="talk", label=None)["tags"] == ["x"]
    served.post("delete", thread="again")
    assert not served.store.thread("again").exists()


@pytest.mark.parametrize(
    ("path", "query", "status"),
    [
        ("thread", {"thread": "nobody"}, 404),
        ("thread", {}, 400),
        ("thread", {"thread": ""}, 400),
        ("history", {"thread": "talk", "limit": "0"}, 400),
        ("history", {"thread": "talk", "limit": "99999"}, 400),
        ("history", {"thread": "talk", "unknown": "1"}, 400),
        ("checkpoint", {"thread": "talk", "at": "nothing"}, 404),
        ("state", {"thread": "talk", "path": "nope"}, 400),
        ("state", {"thread": "talk", "path": '["nope"]'}, 404),
        ("export", {"thread": "talk", "form": "exe"}, 400),
    ],
)
def test_a_bad_request_gets_a_clear_error(served: Inspector, path: str, query: dict[str, Any], status: int) -> None:
    answer = served.client.get(f"/api/v1/{path}", params=query)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"{}", b'{"thread": "x", "items": 1}', b'{"thread": "x", "items": [], "z": 1}', b"\xff"]
)
def test_a_bad_body_changes_nothing(served: Inspector, body: bytes) -> None:
    answer = served.client.post("/api/v1/append", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert served.store.count() == 2


@pytest.mark.parametrize("name", ["a/b", "..", "%2e%2e", "a b?c=d&e#f", "☃", "<b>", "a\nb", "'; drop table heads"])
def test_any_name_works_as_a_thread(served: Inspector, name: str) -> None:
    served.post("append", thread=name, items=["x"])
    assert served.get("thread", thread=name)["thread"]["id"] == name
    assert served.get("history", thread=name)["total"] == 1


def test_files_are_compared_and_rewound_with_the_head(served: Inspector, tmp_path: Path) -> None:
    workspace = served.store.workspace(tmp_path, cache=False)
    thread = served.store.thread("coder")
    assert served.get("files", thread="talk")["snapshot"] is None
    (tmp_path / "a.txt").write_text("one\n")
    thread.save({"n": 1}, files=workspace)
    first = served.get("files", thread="coder")
    assert (first["base"], first["total"]) == (None, 0)
    (tmp_path / "a.txt").write_text("two\n")
    thread.save({"n": 2}, files=workspace)
    second = served.get("files", thread="coder")
    assert (second["base"]["step"], second["root"]) == (1, str(tmp_path.resolve()))
    assert [(c["path"], c["kind"]) for c in second["changes"]] == [("a.txt", "changed")]
    assert "+two" in second["changes"][0]["text"]
    (tmp_path / "b.txt").write_text("new\n")
    (tmp_path / ".backtrailignore").write_text("*.log\n")
    (tmp_path / "x.log").write_text("ignored\n")
    plan = served.post("rewind", thread="coder", at="1", files=True, dry_run=True)
    gone = [(".backtrailignore", "removed"), ("a.txt", "changed"), ("b.txt", "removed")]
    assert [(c["path"], c["kind"]) for c in plan["files"]] == gone
    assert plan["kept"] == [{"path": "x.log", "reason": "ignored by rule"}]
    assert (plan["files_total"], plan["removed_total"], plan["kept_total"]) == (3, 2, 1)
    keeping = served.post("rewind", thread="coder", at="1", files=True, keep_untracked=True, dry_run=True)
    assert ([c["path"] for c in keeping["files"]], keeping["kept_total"]) == (["a.txt"], 3)
    assert (tmp_path / "a.txt").read_text() == "two\n"
    done = served.post("rewind", thread="coder", at="1", files=True)
    assert (done["files"], done["kept"]) == (plan["files"], plan["kept"])
    assert (tmp_path / "a.txt").read_text() == "one\n"
    assert not (tmp_path / "b.txt").exists()
    undone = served.post("undo", thread="coder", files=True)
    assert [(c["path"], c["kind"]) for c in undone["files"]] == [
        (".backtrailignore", "added"),
        ("a.txt", "changed"),
        ("b.txt", "added"),
    ]
    assert (tmp_path / "b.txt").exists()
    refused = served.client.post("/api/v1/rewind", json={"thread": "talk", "at": "1", "files": True})
    assert refused.status_code == 404


def test_a_store_from_elsewhere_is_shown_but_chooses_no_directory(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    with backtrail.open(tmp_path / "theirs.db") as store:
        for number in range(2):
            store.thread("coder").save({"n": number}, files=store.workspace(root))
            (root / "a.txt").write_text("two\n")
    (tmp_path / "theirs.db").rename(tmp_path / "ours.db")
    with backtrail.open(tmp_path / "ours.db") as store, inspector(store) as served:
        found = served.get("files", thread="coder")
        assert ([c["path"] for c in found["changes"]], found["root"]) == (["a.txt"], None)
        for dry_run in (True, False):
            body = {"thread": "coder", "at": "1", "files": True, "dry_run": dry_run}
            refused = served.client.post("/api/v1/rewind", json=body)
            assert (refused.status_code, "never chooses a directory" in refused.text) == (404, True)
        assert store.thread("coder").step == 2
    assert (root / "a.txt").read_text() == "two\n"


def test_openapi_describes_every_operation_with_its_types(served: Inspector) -> None:
    document = served.get("openapi.json")
    assert document["openapi"].startswith("3.1")
    for op in OPERATIONS:
        described = document["paths"][ROOT + op.path][op.method.lower()]
        assert described["summary"]
        answer = described["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
        assert answer.rpartition("/")[2] in document["components"]["schemas"]
    assert all(ROOT + path in document["paths"] for path, *_ in STREAMS)
    refs = set(_refs(document))
    assert {ref.rpartition("/")[2] for ref in refs} <= set(document["components"]["schemas"])


@pytest.mark.parametrize("op", OPERATIONS, ids=lambda op: op.path)
def test_every_operation_is_documented_with_its_parameters(op: Operation) -> None:
    text = (Path(__file__).parents[2] / "docs" / "http-api.md").read_text()
    [row] = [line for line in text.splitlines() if line.startswith(f"| `{op.path}` |")]
    common = set(WriteRequest.__struct_fields__) - {"thread"} if issubclass(op.request_type, WriteRequest) else set()
    for name in set(op.request_type.__struct_fields__) - common:
        assert f"`{name}`" in row, name
    assert "common fields" in row or not common


def _refs(node: Any) -> Any:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            else:
                yield from _refs(value)
    elif isinstance(node, list):
        for value in node:
            yield from _refs(value)


def test_events_report_changed_and_deleted_threads(served: Inspector) -> None:
    with served.client.stream("GET", "/api/v1/events") as stream:
        lines = stream.iter_lines()
        assert _event(lines)[0] == "hello"
        served.store.thread("talk").append("messages", ["live"])
        name, data = _event(lines)
        assert (name, [t["id"] for t in data["changed"]]) == ("threads", ["talk"])
        served.store.thread("talk-fork").delete()
        assert _event(lines)[1]["gone"] == ["talk-fork"]


def _event(lines: Any) -> tuple[str, Any]:
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            return name, json.loads(line[6:])
    raise AssertionError("the stream ended")


def test_a_store_that_cannot_be_reached_is_a_503(served: Inspector) -> None:
    served.store.close()
    answer = served.client.get("/api/v1/threads")
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "Closed")


def test_an_unknown_path_or_method_gets_the_same_kind_of_error(served: Inspector) -> None:
    missing = served.client.get("/api/v1/nothing")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "NoSuchPath")
    assert "openapi.json" in missing.json()["error"]["message"]
    wrong = served.client.get("/api/v1/append")
    assert (wrong.status_code, wrong.json()["error"]["type"]) == (405, "WrongMethod")
    assert wrong.headers["allow"] == "POST"
    assert "content-security-policy" in wrong.headers


@pytest.mark.parametrize(
    ("path", "query", "message"),
    [
        ("thread", {}, "the parameter `thread` is missing"),
        ("thread", {"thread": "talk", "x": "1"}, "there is no parameter `x`"),
        ("history", {"thread": "talk", "limit": "many"}, "the parameter `limit`: Expected `int`, got `str`"),
        (
            "thread",
            {"thread": "nobody"},
            "thread 'nobody' does not exist: `backtrail threads` lists those that there are",
        ),
    ],
)
def test_an_error_names_the_parameter_as_the_docs_do(
    served: Inspector, path: str, query: dict[str, str], message: str
) -> None:
    assert served.client.get(f"/api/v1/{path}", params=query).json()["error"]["message"] == message
