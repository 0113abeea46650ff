"""The command line and the handlers of the inspector on every engine: only the URL differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

import backtrail
from backtrail.server import requests
from backtrail.server.handlers import Handlers
from fix_stores import EVERY_ENGINE, address

from .conftest import Run


@pytest.fixture(params=[engine for engine in EVERY_ENGINE if engine != "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with one thread that was rewound."""
    target, options = address(request.param, "blocking", tmp_path, request)
    where = str(target) if "://" in str(target) or ":" in str(target)[:6] else f"sqlite:///{target}"
    whole = f"{where}{'&' if '?' in where else '?'}{urlencode(options)}"
    with backtrail.open(whole) as store:
        talk: backtrail.Thread[Any] = store.thread("talk")
        for i in range(4):
            talk.append("messages", [{"role": "user", "content": f"message {i}"}])
        talk.rewind(2)
        talk.append("messages", [{"role": "assistant", "content": "another way"}], label="best")
    return whole


def test_commands_read_and_change_a_thread_on_any_engine(run: Run, url: str, tmp_path: Path) -> None:
    env = {"BACKTRAIL_STORE": url}
    assert [t["id"] for t in run("threads", "--json", env=env).data["threads"]] == ["talk"]
    assert run("log", "talk", env=env).out.count("○") == 2
    assert "another way" in run("show", "talk", "best", env=env).out
    assert run("diff", "talk", "2", "@", "--json", env=env).data["changes"][0]["path"] == "messages[2]"
    assert run("fork", "talk", "--to", "other", env=env).code == 0
    assert run("rewind", "talk", "1", "-y", env=env).code == 0
    assert run("undo", "talk", env=env).code == 0
    assert run("verify", env=env).code == 0
    assert run("copy", str(tmp_path / "copied.db"), "--json", env=env).data["threads"] == 2
    assert run("doctor", env=env).code == 0
    assert run("rm", "talk", "other", "-y", env=env).code == 0


def test_handlers_work_on_any_engine(url: str) -> None:
    with backtrail.open(url) as store:
        handlers = Handlers(store, name="test", read_only=False)
        assert [t["id"] for t in handlers.threads(requests.ThreadsRequest())["threads"]] == ["talk"]
        history = handlers.history(requests.HistoryRequest(thread="talk"))
        assert [row["step"] for row in history["rows"]] == [3, 4, 3, 2, 1]
        assert (
            handlers.messages(requests.MessagesRequest(thread="talk", at="best"))["messages"][-1]["text"]
            == "another way"
        )
        assert handlers.state(requests.StateRequest(thread="talk"))["entries"][0]["count"] == 3
        assert handlers.append(requests.AppendRequest(thread="talk", items=["x"]))["step"] == 4
        assert handlers.undo(requests.UndoRequest(thread="talk"))["head"]["step"] == 3


def test_handlers_preview_moves_and_filter_steps_on_any_engine(url: str) -> None:
    with backtrail.open(url) as store:
        handlers = Handlers(store, name="test", read_only=False)
        before = store.threads()[0]
        assert handlers.undo(requests.UndoRequest(thread="talk", dry_run=True))["head"]["step"] == 2
        assert store.threads()[0] == before
        assert handlers.undo(requests.UndoRequest(thread="talk"))["head"]["step"] == 2
        moved = store.threads()[0]
        assert handlers.redo(requests.RedoRequest(thread="talk", dry_run=True))["head"]["label"] == "best"
        assert store.threads()[0] == moved
        assert handlers.redo(requests.RedoRequest(thread="talk"))["head"]["label"] == "best"
        kept = handlers.steps(requests.StepsRequest(thread="talk", role="assistant"))["rows"]
        assert [row["label"] for row in kept] == ["best"]
        assert handlers.conversation(requests.ConversationRequest(thread="talk", label="best"))["total"] == 1
        assert handlers.health_report(requests.HealthRequest())["janitor"] is None


def test_handlers_read_the_files_of_a_snapshot_on_any_engine(url: str, tmp_path: Path) -> None:
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "app.py").write_text("print(1)\n")
    with backtrail.open(url) as store:
        store.thread("files").save({"n": 1}, files=store.workspace(root))
        handlers = Handlers(store, name="test", read_only=False)
        top = handlers.tree(requests.TreeRequest(thread="files"))
        assert [(one["name"], one["kind"]) for one in top["entries"]] == [("src", "folder")]
        assert handlers.tree(requests.TreeRequest(thread="files", path="src"))["entries"][0]["size"] == 9
        assert handlers.file(requests.TreeRequest(thread="files", path="src/app.py")) == b"print(1)\n"
