"""Reading a transcript: only what is new, never less than all, whatever the agent does to the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from backtrail.agents import transcripts
from backtrail.agents.transcripts import NewLines, parse_line, read_new
from backtrail.errors import FilesError


def line(number: int, size: int = 10) -> bytes:
    return json.dumps({"n": number, "text": "x" * size}).encode() + b"\n"


def numbers(found: NewLines | None) -> list[Any]:
    assert found is not None
    return [each.get("n", each) for each in found.lines]


def test_only_the_lines_after_the_last_read_are_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(line(1) + line(2))
    first = read_new(str(path), None)
    assert numbers(first) == [1, 2]
    assert first is not None and not first.rewritten
    with path.open("ab") as file:
        file.write(line(3))
    second = read_new(str(path), first.position)
    assert numbers(second) == [3]
    assert second is not None and not second.rewritten
    assert numbers(read_new(str(path), second.position)) == []


def test_a_line_without_its_end_is_left_for_the_next_read(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    whole = line(2)
    path.write_bytes(line(1) + whole[:7])
    first = read_new(str(path), None)
    assert numbers(first) == [1]
    assert first is not None and first.rest == 7
    with path.open("ab") as file:
        file.write(whole[7:])
    assert numbers(read_new(str(path), first.position)) == [2]


@pytest.mark.parametrize(
    "rewritten",
    [
        line(1),  # truncated
        b"",
        line(9) + line(2) + line(3) + line(4),  # another beginning
        line(1) + line(2) + line(8) + line(4),  # another end of what was read
        line(1, 5000) + line(2) + line(3),
    ],
)
def test_a_truncated_or_rewritten_transcript_is_read_again_from_its_beginning(tmp_path: Path, rewritten: bytes) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(line(1) + line(2) + line(3))
    first = read_new(str(path), None)
    assert first is not None
    path.write_bytes(rewritten)
    again = read_new(str(path), first.position)
    assert again is not None and again.rewritten
    assert again.lines == [json.loads(each) for each in rewritten.splitlines()]


def test_a_transcript_that_moved_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(line(1))
    first = read_new(str(path), None)
    assert first is not None
    moved = tmp_path / "elsewhere.jsonl"
    moved.write_bytes(line(1) + line(2))
    assert numbers(read_new(str(moved), first.position)) == [2]


def test_a_compressed_transcript_is_read_in_the_place_of_the_plain_one(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(line(1) + line(2))
    first = read_new(str(path), None)
    assert first is not None
    path.unlink()
    whole = line(1) + line(2) + line(3)
    (tmp_path / "t.jsonl.zst").write_bytes(zstandard.compress(whole))
    assert numbers(read_new(str(path), first.position)) == [3]
    assert numbers(read_new(str(tmp_path / "t.jsonl.zst"), None)) == [1, 2, 3]


def test_a_compressed_transcript_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcripts, "MAX_UNPACKED", 1000)
    (tmp_path / "t.zst").write_bytes(zstandard.compress(bytes(100_000)))
    with pytest.raises(FilesError, match="unpacks to more"):
        read_new(str(tmp_path / "t.zst"), None)


def test_more_than_one_read_takes_is_left_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "MAX_NEW", 100)
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"".join(line(number) for number in range(20)))
    found: list[Any] = []
    position = None
    for _ in range(20):
        new = read_new(str(path), position)
        assert new is not None
        found += numbers(new)
        position = new.position
        if not new.rest:
            break
    assert found == list(range(20))


def test_there_may_be_no_transcript(tmp_path: Path) -> None:
    assert read_new(str(tmp_path / "none.jsonl"), None) is None
    assert read_new(str(tmp_path), None) is None
    assert read_new(str(tmp_path / "t.jsonl" / "below"), None) is None


def test_lines_that_are_no_objects_are_kept_as_they_are() -> None:
    assert parse_line(b"not json") == {"unparsed": "not json"}
    assert parse_line(b"[1, 2]") == {"unparsed": "[1, 2]"}
    assert parse_line(b"\xff\xfe") == {"unparsed": b"\xff\xfe"}
    assert parse_line(b'{"a": "\\ud800"}') == {"a": "\ud800"}
    deep = b'{"a":' * 5000 + b"1" + b"}" * 5000
    assert parse_line(deep) == {"unparsed": deep.decode()}


@pytest.mark.linux
def test_a_read_costs_what_is_new_however_long_the_transcript_is(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"".join(line(number, 1000) for number in range(20_000)))
    first = read_new(str(path), None)
    assert first is not None
    with path.open("ab") as file:
        file.write(line(1))

    def bytes_read() -> int:
        counters = Path("/proc/self/io").read_text()
        return int(counters.split("rchar:")[1].split()[0])

    before = bytes_read()
    assert numbers(read_new(str(path), first.position)) == [1]
    assert bytes_read() - before < 200_000  # of 20 MB


@given(st.lists(st.binary(max_size=30), max_size=8), st.lists(st.integers(0, 300), max_size=6))
def test_reads_at_any_moment_give_the_lines_that_one_read_at_the_end_gives(parts: list[bytes], cuts: list[int]) -> None:
    import tempfile

    whole = b"".join(part.replace(b"\n", b" ") + b"\n" for part in parts)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.jsonl"
        found: list[Any] = []
        position = None
        for cut in [*sorted(cuts), len(whole)]:
            path.write_bytes(whole[:cut])
            new = read_new(str(path), position)
            assert new is not None and not new.rewritten
            found += new.lines
            position = new.position
        at_once = read_new(str(path), None)
        assert at_once is not None and found == at_once.lines
