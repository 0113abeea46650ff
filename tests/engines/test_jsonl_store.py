"""A whole store on JSONL files, as a person sees it in the directory."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import backtrail
from backtrail.engines.jsonl import line_format


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_every_message_is_plain_json_on_the_line_of_the_step_that_brought_it(tmp_path: Path) -> None:
    with backtrail.open(f"jsonl:{tmp_path / 'store'}") as store:
        thread = store.thread("support-7")
        for number in range(60):
            message = {
                "role": "user",
                "content": f'Frage "{number}" – wo ist der Faden? ' + "so " * 20,
                "image": b"\xff",
            }
            thread.append("messages", [message])
    written = lines_of(tmp_path / "store" / "support-7.jsonl")
    assert len(written) == 61, "a header, and a line for each commit"
    for number, line in enumerate(written[1:]):
        json.loads(line)
        assert f'Frage \\"{number}\\" – wo ist der Faden?' in line
    assert sum('Frage \\"50\\"' in line for line in written) == 1, "written once"


def test_a_store_of_files_can_be_opened_again_forked_rewound_and_compacted(tmp_path: Path) -> None:
    url = f"jsonl:{tmp_path / 'store'}"
    with backtrail.open(url) as store:
        thread = store.thread("chat:1")
        for number in range(30):
            thread.append("messages", [{"n": number, "text": "x" * 200}])
        fork = thread.fork("chat:1 again", at=10)
        fork.append("messages", [{"n": "fork"}])
    with backtrail.open(url) as store:
        assert [info.id for info in store.threads()] == ["chat:1", "chat:1 again"]
        assert [message["n"] for message in store.thread("chat:1 again").load()["messages"]] == [*range(10), "fork"]
        thread = store.thread("chat:1")
        thread.rewind(5)
        thread.append("messages", [{"n": "rewound"}])
        store.compact()
        assert [message["n"] for message in thread.load()["messages"]] == [*range(5), "rewound"]
    assert len(list((tmp_path / "store").glob("*.jsonl"))) == 1, "a fork lives in the file of its lineage"


def test_verify_names_a_damaged_last_line_and_salvage_sets_it_aside(tmp_path: Path) -> None:
    url, path = f"jsonl:{tmp_path / 'store'}", tmp_path / "store" / "t.jsonl"
    with backtrail.open(url) as store:
        for number in range(4):
            store.thread("t").append("messages", [{"n": number}])
            store.thread("u").append("messages", [{"n": number}])
    lines = path.read_bytes().splitlines(keepends=True)
    lines[-1] = lines[-1].replace(b'"step":4', b'"step":5')
    path.write_bytes(b"".join(lines))
    with backtrail.open(url) as store:
        report = store.verify()
        assert any("t.jsonl, line 5" in str(problem) for problem in report.problems)
        with pytest.raises(backtrail.errors.Corrupt, match=r"t\.jsonl, line 5"):
            store.thread("t").load()
        assert len(store.thread("u").load()["messages"]) == 4
    with backtrail.open(url, salvage=True) as store:
        assert not store.verify().problems
        assert len(store.thread("t").load()["messages"]) == 3
    assert path.with_name("t.jsonl.damaged").read_bytes() == lines[-1]


def test_a_line_with_many_rows_is_read_once_and_lines_that_lie_together_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [{"role": "user", "content": f"{number}: " + "so " * 40} for number in range(300)]
    url, path = f"jsonl:{tmp_path / 'store'}", tmp_path / "store" / "s.jsonl"
    with backtrail.open("memory:") as source, backtrail.open(url) as store:
        for message in said[:200]:
            source.session("s").append(message)
        source.copy_to(store)
        for message in said[200:]:
            store.session("s").append(message)
    checked: list[int] = []
    fetched: list[int] = []
    sound, pread = line_format.sound, os.pread
    with backtrail.open(url) as store:
        assert store.session("s").count() == 300
        monkeypatch.setattr(line_format, "sound", lambda raw: checked.append(len(raw)) or sound(raw))
        monkeypatch.setattr(os, "pread", lambda *args: fetched.append(args[1]) or pread(*args))
        assert store.session("s").messages() == said
    assert len(checked) <= len(lines_of(path))
    assert len(fetched) <= 4
