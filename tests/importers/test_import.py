"""Guarantees of every import: nothing is imported twice or overwritten, and bad files are reported and skipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.importers import store_writer
from backtrail.testing.servers import private_directory
from fix_children import run

from .conftest import write_lines

MESSAGES = [{"role": "user", "content": f"message {number}"} for number in range(4)]


def test_importing_twice_changes_nothing_not_even_after_the_session_was_cleared(store: Any, tmp_path: Path) -> None:
    write_lines(tmp_path / "t.jsonl", MESSAGES)
    store.import_(tmp_path)
    before = store.threads()
    report = store.import_(tmp_path)
    assert [line.id for line in report.unchanged] == ["t"]
    assert store.threads() == before
    store.session("t").clear()
    assert [line.id for line in store.import_(tmp_path).unchanged] == ["t"]
    assert store.session("t").messages() == []


def test_a_session_that_went_on_in_the_store_is_not_touched(store: Any, tmp_path: Path) -> None:
    write_lines(tmp_path / "t.jsonl", MESSAGES[:2])
    store.session("t").extend(MESSAGES)
    report = store.import_(tmp_path)
    assert [(line.id, line.reason) for line in report.unchanged] == [("t", "the store has more than the file")]
    assert store.session("t").messages() == MESSAGES


def test_another_conversation_under_the_same_id_is_left_as_it_is(store: Any, tmp_path: Path) -> None:
    write_lines(tmp_path / "t.jsonl", MESSAGES)
    store.session("t").add("user", "mine")
    report = store.import_(tmp_path)
    assert [line.id for line in report.skipped] == ["t"]
    assert store.session("t").messages() == [{"role": "user", "content": "mine"}]


def test_an_id_of_another_kind_is_left_as_it_is(store: Any, tmp_path: Path) -> None:
    write_lines(tmp_path / "t.jsonl", MESSAGES)
    store.thread("t").save({"n": 1})
    assert "thread" in store.import_(tmp_path).skipped[0].reason
    assert store.thread("t").load() == {"n": 1}


def test_bad_files_are_listed_with_the_reason_and_the_rest_is_imported(store: Any, tmp_path: Path) -> None:
    write_lines(tmp_path / "good.jsonl", MESSAGES)
    (tmp_path / "broken.json").write_text('{"messages": [')
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "number.json").write_text("42")
    (tmp_path / "garbage.jsonl").write_text("not json\nnor this\n")
    (tmp_path / "surrogate.json").write_text('[{"role": "user", "content": "\\ud800"}]')
    (tmp_path / "ignored.txt").write_text("x")
    report = store.import_(tmp_path)
    assert sorted(line.id for line in report.imported) == ["good", "surrogate"]
    assert store.session("surrogate").messages()[0]["content"] == "\ud800"
    reasons = {Path(line.source).name: line.reason for line in report.failed}
    assert set(reasons) == {
        "broken.json",
        "binary.json",
        "empty.jsonl",
        "number.json",
        "garbage.jsonl",
    }
    assert "not JSON" in reasons["broken.json"]
    assert "UTF-8" in reasons["binary.json"]
    assert "known formats" in reasons["number.json"]
    assert "2 imported" in str(report)
    assert "5 failed" in str(report)


def test_a_torn_line_is_left_out_and_reported(store: Any, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "t.jsonl", MESSAGES)
    with path.open("a") as file:
        file.write('{"role": "user", "cont')
    report = store.import_(path)
    assert store.session("t").messages() == MESSAGES
    assert "line 5" in report.notes[0].reason


def test_a_path_that_does_not_exist_is_an_error(store: Any, tmp_path: Path) -> None:
    with pytest.raises(backtrail.InvalidInput, match="nowhere"):
        store.import_(tmp_path / "nowhere")
    with pytest.raises(backtrail.InvalidInput, match="int"):
        store.import_(3)


def test_several_paths_can_be_given_and_progress_is_reported(store: Any, tmp_path: Path) -> None:
    paths = [write_lines(tmp_path / f"{number}.jsonl", MESSAGES) for number in range(3)]
    calls: list[tuple[int, int]] = []
    store.import_(paths, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(1, 3), (2, 3), (3, 3)]
    assert len(store.sessions()) == 3


def test_an_interrupted_import_is_started_over(store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(uuid: str, parent: str | None) -> dict[str, Any]:
        message = {"role": "user", "content": uuid}
        return {"type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": "s", "message": message}

    path = write_lines(tmp_path / "s.jsonl", [entry("a", None), entry("b", "a"), entry("c", "a"), entry("d", "c")])
    save = store_writer._save
    made = []

    async def dies(*args: Any) -> Any:
        if len(made) == 1:
            raise backtrail.Unavailable("the machine went away")
        made.append(1)
        return await save(*args)

    monkeypatch.setattr(store_writer, "_save", dies)
    with pytest.raises(backtrail.Unavailable):
        store.import_(path)
    monkeypatch.undo()
    assert [message["uuid"] for message in store.session("s").messages()] == ["a"]
    assert [line.id for line in store.import_(path).imported] == ["s"]
    assert [message["uuid"] for message in store.session("s").messages()] == ["a", "c", "d"]
    assert [line.id for line in store.import_(path).unchanged] == ["s"]


def test_a_file_that_may_not_be_read_is_reported() -> None:
    with private_directory() as place:  # another user may enter it, unlike pytest's own directories
        path = write_lines(place / "secret.jsonl", MESSAGES)
        path.chmod(0)

        def work(send: Any) -> None:
            with backtrail.open("memory:") as store:
                send(store.import_(path).failed[0].reason.encode())

        assert b"cannot be read" in run(work, user=65534)
