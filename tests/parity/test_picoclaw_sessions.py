"""S3, picoclaw: each operation of its sessions, and the traps they had."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import backtrail

CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}]}
RESULT = {"role": "tool", "content": "42", "tool_call_id": "c1"}


def test_add_message_and_add_full_message(store: Any) -> None:
    session = store.session("telegram:123")
    session.add("user", "hello")
    session.append(CALL)
    session.append(RESULT)
    assert session.messages() == [{"role": "user", "content": "hello"}, CALL, RESULT]


def test_get_and_set_history_and_summary(store: Any) -> None:
    session = store.session("k")
    assert (session.messages(), session.summary) == ([], "")
    session.replace([{"role": "user", "content": "a"}])
    session.set_summary("greeting")
    assert (session.messages(), session.summary) == ([{"role": "user", "content": "a"}], "greeting")


def test_truncate_history_keeps_the_last_and_zero_keeps_none(store: Any) -> None:
    session = store.session("k")
    session.extend([{"role": "user", "content": str(number)} for number in range(10)])
    session.truncate(keep_last=4)
    assert [m["content"] for m in session.messages()] == ["6", "7", "8", "9"]
    session.truncate(keep_last=0)
    assert session.messages() == []


def test_a_truncation_decided_before_a_slow_summary_cuts_no_newer_message(store: Any) -> None:
    session = store.session("k")
    for number in range(10):
        session.add("user", f"{number}")
    decided = session.ids()[6]
    for number in range(10, 15):
        session.add("user", f"{number}")
    session.truncate(before=decided)
    assert [m["content"] for m in session.messages()] == [str(number) for number in range(6, 15)]


def test_a_truncation_does_not_split_a_call_from_its_result(store: Any) -> None:
    session = store.session("k")
    session.extend([{"role": "user", "content": "q"}, CALL, RESULT])
    session.truncate(keep_last=1)
    assert session.messages() == [CALL, RESULT]


def test_save_finds_everything_durable_already(opener: Any) -> None:
    session = opener().session("k")
    session.add("user", "x")
    assert session.save().step == 1
    assert opener().session("k").messages() == [{"role": "user", "content": "x"}]


def test_a_torn_last_line_swallows_nothing(tmp_path: Path) -> None:
    url = f"jsonl:{tmp_path}"
    with backtrail.open(url) as store:
        store.session("k").add("user", "one")
        store.session("k").add("user", "two")
    largest = max((f for f in tmp_path.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
    with largest.open("ab") as file:
        file.write(b'{"half of a li')
    with backtrail.open(url) as store:
        session = store.session("k")
        session.add("user", "three")
    with backtrail.open(url) as store:
        assert [m["content"] for m in store.session("k").messages()] == ["one", "two", "three"]


def test_a_line_of_more_than_ten_megabytes_is_just_long(tmp_path: Path) -> None:
    long = "x" * 11_000_000
    with backtrail.open(f"jsonl:{tmp_path}") as store:
        store.session("k").add("user", "before")
        store.session("k").add("tool", long)
        store.session("k").add("user", "after")
    with backtrail.open(f"jsonl:{tmp_path}") as store:
        assert [len(m["content"]) for m in store.session("k").messages()] == [6, len(long), 5]


def test_two_keys_never_share_a_file(opener: Any) -> None:
    store = opener()
    for key in ("a:b", "a_b", "a/b", "A:B", "a%3Ab"):
        store.session(key).add("user", key)
    for key in ("a:b", "a_b", "a/b", "A:B", "a%3Ab"):
        assert opener().session(key).messages() == [{"role": "user", "content": key}]


def test_writes_can_be_fire_and_forget(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    session = store.session("k", errors="log")
    with caplog.at_level(logging.ERROR):
        session.add("user", object())
    assert "'k'" in caplog.text
    with pytest.raises(backtrail.EncodeError):
        store.session("k").add("user", object())


def test_history_is_never_physically_deleted_and_a_reset_destroys_nothing(store: Any) -> None:
    session = store.session("k")
    session.extend([{"role": "user", "content": str(number)} for number in range(5)])
    full = session.thread.head
    session.truncate(keep_last=1)
    session.clear()
    assert [m["content"] for m in session.messages(at=full)] == ["0", "1", "2", "3", "4"]
    session.thread.rewind(full)
    assert session.count() == 5


def test_sessions_are_listed_shown_exported_and_deleted(store: Any) -> None:
    store.session("a").add("user", "x")
    store.session("b").add("user", "y")
    assert [info.id for info in store.sessions()] == ["b", "a"]
    assert '"x"' in store.export("a")
    store.session("a").delete()
    assert [info.id for info in store.sessions()] == ["b"]


def test_legacy_json_and_jsonl_are_imported_once_and_never_over_newer_data(store: Any, tmp_path: Path) -> None:
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    legacy = {"key": "telegram:1", "messages": said, "summary": "s", "created": "2026-01-01T00:00:00Z"}
    (tmp_path / "telegram_1.json").write_text(json.dumps(legacy))
    (tmp_path / "cli_2.jsonl").write_text("".join(json.dumps(m) + "\n" for m in said))
    meta = {"key": "cli:2", "summary": "two", "skip": 1, "count": 2}
    (tmp_path / "cli_2.meta.json").write_text(json.dumps(meta))
    store.import_(tmp_path)
    assert (store.session("telegram:1").messages(), store.session("telegram:1").summary) == (said, "s")
    assert (store.session("cli:2").messages(), store.session("cli:2").summary) == (said[1:], "two")
    store.session("telegram:1").add("user", "newer")
    report = store.import_(tmp_path)
    assert report.imported == report.updated == ()
    assert store.session("telegram:1").count() == 3
    assert store.session("cli:2").count() == 1


def test_a_corrupt_meta_file_does_not_hide_the_history(store: Any, tmp_path: Path) -> None:
    (tmp_path / "cli_2.jsonl").write_text('{"role": "user", "content": "hi"}\n')
    (tmp_path / "cli_2.meta.json").write_text("{damaged")
    report = store.import_(tmp_path)
    assert store.session("cli_2").messages() == [{"role": "user", "content": "hi"}]
    assert any("meta" in note.reason for note in report.notes)
