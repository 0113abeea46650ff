"""The files of a JSONL store: their format, and files that are torn, damaged, lost or of another program."""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from backtrail.encode.frame import Frames
from backtrail.encode.payload_format import Section, pack_payload
from backtrail.engines.base import Commit, Drop, Head, Mark, Swap
from backtrail.engines.conflicts import Refused
from backtrail.engines.jsonl import JSONLEngine
from backtrail.engines.jsonl.file_names import file_name
from backtrail.engines.jsonl.log import LineageLog
from backtrail.errors import Corrupt, InvalidInput, NotFound, Unavailable, UnsupportedFormat
from backtrail.testing import sample_records
from backtrail.testing.call_modes import step


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def engine(directory: Path) -> Iterator[JSONLEngine]:
    made = JSONLEngine(directory, durability="normal")
    yield made
    step(made.close())


def opened(directory: Path) -> JSONLEngine:
    return JSONLEngine(directory, durability="normal")


def fill(engine: JSONLEngine, thread: str = "t", steps: int = 5) -> Head:
    """A thread of so many steps, one commit each."""
    branch = sample_records.branch(thread)
    step(engine.commit(sample_records.first(branch)))
    for number in range(1, steps):
        step(engine.commit(sample_records.following(sample_records.head(branch, number, number), branch)))
    head = step(engine.head(thread))
    assert head is not None
    return head


def payload_steps(engine: JSONLEngine, first: int, last: int, thread: str = "t") -> list[int]:
    return [number for number, _ in step(engine.payloads(thread, sample_records.branch(thread).id, first, last))]


def file_lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def damage(path: Path, number: int) -> None:
    """Change one character in the middle of a line."""
    lines = file_lines(path)
    line = bytearray(lines[number - 1])
    line[len(line) // 3] ^= 1
    path.write_bytes(b"".join([*lines[: number - 1], bytes(line), *lines[number:]]))


# -- what they look like ---------------------------------------------------------------------------------------------


def test_one_commit_is_one_line_of_json_with_the_messages_on_it(engine: JSONLEngine, directory: Path) -> None:
    fill(engine, steps=3)
    message = {"role": "user", "content": "Where is the thread?"}
    payload = Frames().wrap(pack_payload([Section(0, 0, 1, 0, msgspec.msgpack.encode(message))], []), "here")
    branch = sample_records.branch()
    row = sample_records.row(branch, 4, payload=payload)
    step(engine.commit(Commit("t", rows=[row])))
    header, *lines = [json.loads(line) for line in file_lines(directory / "t.jsonl")]
    assert header["lineage"] == "t"
    assert [[row["step"] for row in line["rows"]] for line in lines] == [[1], [2], [3], [4]]
    assert lines[-1]["rows"][0]["payload"]["items"][0]["of"] == [message]
    assert step(engine.payloads("t", branch.id, 4, 4)) == [(4, payload)]


def test_only_the_owner_may_read_the_files(directory: Path) -> None:
    old = os.umask(0o022)
    try:
        engine = opened(directory)
        fill(engine)
        step(engine.lease("job", "me", 1.0))
        step(engine.threads())
        step(engine.close())
    finally:
        os.umask(old)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in directory.iterdir()}
    assert set(modes) == {
        "t.jsonl",
        "backtrail.json",
        "leases.json",
        ".changes",
        ".index",
        ".names",
        ".lock",
        ".lock-next",
    }
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_line_may_be_of_any_length(engine: JSONLEngine, directory: Path) -> None:
    branch = sample_records.branch()
    long = os.urandom(20_000_000)
    step(engine.commit(sample_records.first(branch)))
    step(engine.commit(Commit("t", rows=[sample_records.row(branch, 2, payload=long)])))
    step(engine.commit(Commit("t", rows=[sample_records.row(branch, 3)])))
    again = opened(directory)
    assert step(again.payloads("t", branch.id, 2, 2)) == [(2, long)]
    assert payload_steps(again, 0, 9) == [1, 2, 3]
    step(again.close())


@pytest.mark.linux
def test_acknowledged_means_synced(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    for name in ("fsync", "fdatasync"):
        real = getattr(os, name)

        def spy(fd: int, real: object = real) -> None:
            synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)
            real(fd)  # type: ignore[operator]

        monkeypatch.setattr(os, name, spy)
    engine = JSONLEngine(directory)
    synced.clear()
    branch = sample_records.branch()
    step(engine.commit(sample_records.first(branch)))
    assert synced == ["t.jsonl", "store"], "the file, and the directory that names it"
    synced.clear()
    step(engine.commit(sample_records.following(sample_records.head(branch), branch)))
    assert synced == ["t.jsonl"]
    step(engine.close())


# -- torn lines ------------------------------------------------------------------------------------------------------


def test_a_torn_last_line_is_cut_off_and_reported(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = opened(directory)
    fill(engine, steps=3)
    step(engine.close())
    path = directory / "t.jsonl"
    whole = path.read_bytes()
    *_, last = file_lines(path)
    for kept in (1, len(last) // 2, len(last) - 1):
        path.write_bytes(whole[: len(whole) - len(last) + kept])
        caplog.clear()
        engine = opened(directory)
        with caplog.at_level(logging.WARNING):
            head = step(engine.head("t"))
        assert head is not None
        assert head.step == 2
        assert f"cut off {kept} bytes" in caplog.text
        assert "t.jsonl" in caplog.text
        assert step(engine.stats())["repaired"] == 1
        assert step(engine.stats())["damaged"] == 0
        assert path.read_bytes() == whole[: len(whole) - len(last)]
        # The next line stands on a line of its own.
        branch = sample_records.branch()
        step(engine.commit(sample_records.following(head, branch)))
        assert payload_steps(engine, 0, 9) == [1, 2, 3]
        step(engine.close())
        path.write_bytes(whole)


def test_blocks_that_never_reached_the_disk_are_a_torn_line_too(directory: Path) -> None:
    engine = opened(directory)
    fill(engine, steps=3)
    step(engine.close())
    path = directory / "t.jsonl"
    *before, last = file_lines(path)
    path.write_bytes(b"".join(before) + b"\0" * (len(last) - 20) + last[-20:])
    engine = opened(directory)
    assert step(engine.head("t")) == sample_records.head(sample_records.branch(), 2, 2)
    step(engine.close())


def test_a_new_file_that_was_torn_in_its_first_line_can_be_written(directory: Path) -> None:
    step(opened(directory).close())
    (directory / "t.jsonl").write_bytes(b'{"backtrail":"jso')
    engine = opened(directory)
    assert step(engine.head("t")) is None
    fill(engine, steps=2)
    assert payload_steps(engine, 0, 9) == [1, 2]
    step(engine.close())


def test_another_engine_that_reads_while_a_line_is_being_written_sees_only_whole_lines(directory: Path) -> None:
    writer, reader = opened(directory), opened(directory)
    fill(writer, steps=2)
    assert payload_steps(reader, 0, 9) == [1, 2]
    with (directory / "t.jsonl").open("ab") as file:
        file.write(b'{"at":"2026-')
    assert payload_steps(reader, 0, 9) == [1, 2]
    assert (directory / "t.jsonl").read_bytes().endswith(b'{"at":"2026-'), "a reader leaves alone what may be going on"
    branch = sample_records.branch()
    step(writer.commit(sample_records.following(sample_records.head(branch, 2, 2), branch)))
    assert payload_steps(reader, 0, 9) == [1, 2, 3]
    # The same size, but another line: what was torn has been cut off and written over.
    whole, torn = (directory / "t.jsonl").read_bytes(), b"torn".ljust(len(file_lines(directory / "t.jsonl")[-1]))
    (directory / "t.jsonl").write_bytes(whole[: -len(torn)])
    assert payload_steps(reader, 0, 9) == [1, 2]
    (directory / "t.jsonl").write_bytes(whole[: -len(torn)] + torn)
    assert payload_steps(reader, 0, 9) == [1, 2]
    (directory / "t.jsonl").write_bytes(whole)
    assert payload_steps(reader, 0, 9) == [1, 2, 3]
    step(writer.close())
    step(reader.close())


# -- damaged lines ---------------------------------------------------------------------------------------------------


def test_a_damaged_line_is_named_and_the_rest_stays_readable(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = opened(directory)
    head = fill(engine, steps=6)
    fill(engine, "other")
    step(engine.close())
    damage(directory / "t.jsonl", 4)  # step 3
    engine = opened(directory)
    with caplog.at_level(logging.WARNING):
        assert step(engine.head("t")) == head
    assert "t.jsonl, line 4" in caplog.text
    branch = sample_records.branch()
    with pytest.raises(Corrupt, match=r"t\.jsonl, line 4 is damaged"):
        step(engine.payloads("t", branch.id, 1, 6))
    with pytest.raises(Corrupt, match=r"t\.jsonl, line 4 is damaged"):
        step(engine.row("t", branch.id, 3))
    assert payload_steps(engine, 1, 2) == [1, 2]
    assert payload_steps(engine, 4, 6) == [4, 5, 6]
    assert [found.step for found in step(engine.steps("t", branch.id, 0, 9))] == [1, 2, 4, 5, 6]
    assert payload_steps(engine, 0, 9, "other") == [1, 2, 3, 4, 5]
    assert step(engine.stats())["damaged"] == 1
    step(engine.commit(sample_records.following(head, branch)))
    assert payload_steps(engine, 4, 9) == [4, 5, 6, 7]
    step(engine.close())


def test_only_the_gap_where_the_damage_lies_is_blamed_on_it(directory: Path) -> None:
    engine = opened(directory)
    head = fill(engine, steps=9)
    branch = sample_records.branch()
    step(engine.drop(Drop("t", expect=[("t", head.key)], rows=[(branch.id, 2), (branch.id, 3)])))
    step(engine.compact())
    step(engine.close())
    damage(directory / "t.jsonl", 5)  # steps 1, 4, 5, 6: the last of these
    engine = opened(directory)
    assert payload_steps(engine, 1, 5) == [1, 4, 5]
    assert step(engine.row("t", branch.id, 2)) is None
    for first, last in ((5, 7), (6, 6), (1, 9)):
        with pytest.raises(Corrupt, match=r"t\.jsonl, line 5"):
            payload_steps(engine, first, last)
    assert payload_steps(engine, 7, 1 << 31) == [7, 8, 9]
    step(engine.close())


def test_a_head_whose_row_was_in_a_damaged_line_is_not_taken_for_one_without_a_row(directory: Path) -> None:
    engine = opened(directory)
    head = fill(engine, steps=3)
    branch = sample_records.branch()
    moved = sample_records.head(branch, 3, 4, note=b"moved")
    step(engine.commit(Commit("t", swaps=[Swap("t", head.key, moved)])))
    step(engine.close())
    damage(directory / "t.jsonl", 4)
    engine = opened(directory)
    assert step(engine.head("t")) == moved
    with pytest.raises(Corrupt, match=r"t\.jsonl, line 4"):
        step(engine.tip("t"))
    step(engine.close())


def test_a_damaged_last_line_is_never_a_silent_step_back(directory: Path) -> None:
    engine = opened(directory)
    fill(engine, steps=3)
    step(engine.close())
    damage(directory / "t.jsonl", 4)
    before = (directory / "t.jsonl").read_bytes()
    engine = opened(directory)
    for ask in (engine.head, engine.tip, engine.heads):
        with pytest.raises(Corrupt, match=r"t\.jsonl, line 4"):
            step(ask("t"))
    assert (directory / "t.jsonl").read_bytes() == before
    step(engine.close())


def test_a_damaged_beginning_is_never_a_silent_new_start(directory: Path) -> None:
    engine = opened(directory)
    fill(engine, steps=1)
    step(engine.close())
    damage(directory / "t.jsonl", 2)
    engine = opened(directory)
    for ask in (engine.head, engine.tip, engine.heads):
        with pytest.raises(Corrupt, match=r"t\.jsonl, line 2"):
            step(ask("t"))
    with pytest.raises(Corrupt, match=r"t\.jsonl, line 2"):
        step(engine.commit(sample_records.first(sample_records.branch())))
    step(engine.close())


def test_damage_to_one_thread_does_not_stop_another_in_the_same_file(directory: Path) -> None:
    engine = opened(directory)
    fill(engine, "t", steps=2)
    fork = sample_records.branch("fork", lineage="t")
    step(engine.commit(sample_records.first(fork)))
    step(engine.commit(sample_records.following(sample_records.head(fork), fork)))
    step(engine.close())
    damage(directory / "t.jsonl", 5)
    engine = opened(directory)
    assert step(engine.head("t")) == sample_records.head(sample_records.branch(), 2, 2)
    with pytest.raises(Corrupt, match=r"t\.jsonl, line 5"):
        step(engine.head("fork"))
    step(engine.close())


def test_compaction_takes_damage_out_and_keeps_it_beside(directory: Path) -> None:
    engine = opened(directory)
    fill(engine, steps=4)
    step(engine.close())
    damage(directory / "t.jsonl", 5)
    bad = file_lines(directory / "t.jsonl")[4]
    engine = opened(directory)
    step(engine.compact())
    assert step(engine.head("t")) == sample_records.head(sample_records.branch(), 3, 3)
    assert (directory / "t.jsonl.damaged").read_bytes() == bad
    assert step(engine.stats())["damaged"] == 0
    step(engine.close())


def test_salvage_sets_damage_aside_when_it_is_met(directory: Path) -> None:
    engine = opened(directory)
    fill(engine, steps=6)
    fill(engine, "sound")
    step(engine.close())
    damage(directory / "t.jsonl", 4)
    damage(directory / "t.jsonl", 7)
    bad, sound = [file_lines(directory / "t.jsonl")[n] for n in (3, 6)], (directory / "sound.jsonl").read_bytes()
    engine = JSONLEngine(directory, salvage=True)
    assert step(engine.head("t")) == sample_records.head(sample_records.branch(), 5, 5)
    assert payload_steps(engine, 1, 9) == [1, 2, 4, 5]
    assert payload_steps(engine, 1, 9, "sound") == [1, 2, 3, 4, 5]
    assert (directory / "t.jsonl.damaged").read_bytes() == b"".join(bad)
    assert (directory / "sound.jsonl").read_bytes() == sound
    step(engine.close())
    engine = opened(directory)
    assert step(engine.stats())["damaged"] == 0
    step(engine.close())


def test_a_line_that_is_damaged_after_it_was_read_is_named(engine: JSONLEngine, directory: Path) -> None:
    fill(engine, steps=3)
    with (directory / "t.jsonl").open("r+b") as file:
        file.seek(len(b"".join(file_lines(directory / "t.jsonl")[:2])) + 30)
        file.write(b"?")
    with pytest.raises(Corrupt, match=r"t\.jsonl, line 3"):
        payload_steps(engine, 2, 2)
    assert payload_steps(engine, 3, 3) == [3]


# -- compaction ------------------------------------------------------------------------------------------------------


def test_what_was_dropped_goes_when_the_file_is_compacted(directory: Path) -> None:
    engine, other = opened(directory), opened(directory)
    head = fill(engine, steps=6)
    branch = sample_records.branch()
    big = {sample_records.name16("blob"): b"x" * 50_000, sample_records.name16("kept"): b"y"}
    marks = Commit("t", blobs=big, marks=[Mark(branch.id, 5, b"old"), Mark(branch.id, 6, b"gone")])
    step(engine.commit(marks))
    step(engine.commit(Commit("t", marks=[Mark(branch.id, 5, b"new"), Mark(branch.id, 6, None)])))
    second = sample_records.branch("t", 2)
    step(engine.commit(Commit("t", branches=[second], rows=[sample_records.row(second, 1)])))
    step(
        engine.drop(
            Drop(
                "t",
                expect=[("t", head.key)],
                rows=[(branch.id, 1)],
                bodies=[(branch.id, 2)],
                branches=[second.id],
                blobs=[sample_records.name16("blob")],
            )
        )
    )
    assert payload_steps(other, 0, 9) == [2, 3, 4, 5, 6]
    before = step(sample_records.everything(engine, "t"))
    assert step(engine.payloads("t", branch.id, 2, 2)) == [(2, b"")]
    size = (directory / "t.jsonl").stat().st_size
    step(engine.compact())
    assert (directory / "t.jsonl").stat().st_size < size - 50_000
    assert "drop" not in (directory / "t.jsonl").read_text()
    assert step(sample_records.everything(engine, "t")) == before
    assert step(sample_records.everything(other, "t")) == before, (
        "an engine that had the old file open finds the new one"
    )
    step(engine.commit(sample_records.following(head, branch)))
    assert payload_steps(other, 0, 9) == [2, 3, 4, 5, 6, 7]
    step(engine.close())
    step(other.close())
    again = opened(directory)
    assert payload_steps(again, 0, 9) == [2, 3, 4, 5, 6, 7]
    step(again.close())


def test_the_file_of_an_empty_lineage_goes(engine: JSONLEngine, directory: Path) -> None:
    head = fill(engine)
    step(engine.commit(Commit("t", swaps=[Swap("t", head.key, None)])))
    step(engine.drop(Drop("t", expect=[], branches=[sample_records.branch().id])))
    assert step(engine.lineages()) == []
    step(engine.compact())
    assert not (directory / "t.jsonl").exists()
    assert fill(engine).step == 5


# -- opening many ----------------------------------------------------------------------------------------------------


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the logs that were read."""
    found: list[str] = []
    real = LineageLog._read_on

    def spy(log: LineageLog) -> None:
        found.append(log.lineage)
        real(log)

    monkeypatch.setattr(LineageLog, "_read_on", spy)
    return found


def test_opening_a_store_of_many_sessions_reads_only_the_one_that_is_asked_for(
    directory: Path, read: list[str]
) -> None:
    engine = opened(directory)
    for number in range(400):
        step(engine.commit(sample_records.first(sample_records.branch(f"s{number}"))))
    step(engine.commit(sample_records.first(sample_records.branch("fork", lineage="s7"))))
    assert len(step(engine.threads())) == 401
    step(engine.close())
    read.clear()
    engine = opened(directory)
    assert step(engine.head("s123")) is not None
    step(
        engine.commit(
            sample_records.following(sample_records.head(sample_records.branch("s123")), sample_records.branch("s123"))
        )
    )
    assert set(read) == {"s123"}
    read.clear()
    assert step(engine.head("fork")) is not None
    assert read == ["s7"]
    read.clear()
    newest = step(engine.threads(newest_first=True, limit=2))
    assert len(newest) == 2
    assert len(step(engine.lineages())) == 400
    assert set(read) <= {"s123", "s7"}, "a listing reads what changed since the last one, and no more"
    assert len(engine._logs) <= 128
    step(engine.close())


def test_a_session_that_was_listed_while_it_was_being_made_is_listed_when_it_is_whole(directory: Path) -> None:
    writer, reader = opened(directory), opened(directory)
    (directory / "t.jsonl").touch()
    assert step(reader.threads()) == []
    assert step(reader.stats())["damaged"] == 0
    (directory / "t.jsonl").write_bytes(b'{"backtrail":"jsonl","fo')
    assert step(reader.threads()) == []
    fill(writer)
    assert [head.thread for head in step(reader.threads())] == ["t"]
    step(writer.close())
    step(reader.close())


@pytest.mark.linux
def test_many_sessions_hold_a_bounded_number_of_files_open(engine: JSONLEngine) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))  # other tests may have left some
    for number in range(300):
        step(engine.commit(sample_records.first(sample_records.branch(f"s{number}"))))
        step(engine.head(f"s{number}"))
        assert step(engine.head(f"nobody-{number}")) is None
    step(engine.threads())
    assert len(list(Path("/proc/self/fd").iterdir())) - before < 128 + 10
    assert len(engine._logs) <= 128


@pytest.mark.parametrize("content", [None, b"", b"not a cache", b"\x92\x01\x80"])
def test_the_index_is_only_a_cache(directory: Path, content: bytes | None) -> None:
    engine = opened(directory)
    fill(engine)
    before = step(engine.threads())
    step(engine.close())
    (directory / ".index").unlink()
    if content is not None:
        (directory / ".index").write_bytes(content)
    engine = opened(directory)
    assert step(engine.threads()) == before
    step(engine.close())


@pytest.mark.parametrize("content", [None, b"not a hint\n", b'["zz",null,"t"]\n'])
def test_the_names_of_forks_are_found_again_when_their_file_is_lost(directory: Path, content: bytes | None) -> None:
    engine = opened(directory)
    fill(engine)
    fork = sample_records.branch("fork", lineage="t")
    step(engine.commit(sample_records.first(fork)))
    step(engine.close())
    (directory / ".names").unlink()
    if content is not None:
        (directory / ".names").write_bytes(content)
    engine = opened(directory)
    assert step(engine.head("fork")) == sample_records.head(fork)
    with pytest.raises(Refused):
        step(engine.commit(sample_records.first(sample_records.branch("fork"))))
    step(engine.close())


def test_a_file_can_be_taken_to_another_store(directory: Path, tmp_path: Path) -> None:
    engine = opened(directory)
    head = fill(engine)
    step(engine.close())
    other = opened(tmp_path / "other")
    shutil.copy(directory / "t.jsonl", tmp_path / "other" / "t.jsonl")
    assert step(other.head("t")) == head
    assert [found.thread for found in step(other.threads())] == ["t"]
    step(other.close())


def test_a_renamed_file_is_named_and_not_taken_for_another(directory: Path) -> None:
    engine = opened(directory)
    fill(engine)
    step(engine.close())
    (directory / "t.jsonl").rename(directory / "u.jsonl")
    engine = opened(directory)
    with pytest.raises(UnsupportedFormat, match=r"u\.jsonl holds 't', not 'u'"):
        step(engine.head("u"))
    assert step(engine.head("t")) is None
    assert step(engine.threads()) == []
    step(engine.close())


# -- what is refused -------------------------------------------------------------------------------------------------


def test_another_directory_is_refused_and_left_untouched(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UnsupportedFormat, match="it holds other files"):
        JSONLEngine(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(UnsupportedFormat, match="not a directory"):
        JSONLEngine(tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"backtrail": "other", "format": 1}', '{"backtrail": "jsonl"}'])
def test_a_directory_with_another_marker_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "backtrail.json").write_text(content)
    with pytest.raises(UnsupportedFormat, match=r"backtrail\.json"):
        JSONLEngine(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["backtrail.json"]


def test_newer_formats_are_refused(directory: Path) -> None:
    engine = opened(directory)
    fill(engine)
    step(engine.close())
    line = (directory / "t.jsonl").read_bytes()
    (directory / "backtrail.json").write_text('{"backtrail":"jsonl","format":9}')
    with pytest.raises(UnsupportedFormat, match="format 9"):
        opened(directory)
    assert (directory / "t.jsonl").read_bytes() == line


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="durability"):
        JSONLEngine(tmp_path, durability="fast")  # type: ignore[arg-type]
    for path in ("", "a\0b"):
        with pytest.raises(InvalidInput, match="not a path"):
            JSONLEngine(path)
    with pytest.raises(NotFound, match="no store"):
        JSONLEngine(tmp_path / "nowhere", create=False)
    with pytest.raises(NotFound, match="no store"):
        JSONLEngine(tmp_path, create=False)
    assert not list(tmp_path.iterdir())


def test_a_store_that_was_deleted_does_not_answer(engine: JSONLEngine, directory: Path) -> None:
    step(engine.ping())
    shutil.rmtree(directory)
    with pytest.raises(Unavailable):
        step(engine.ping())
    directory.mkdir()


def test_damaged_leases_are_named(engine: JSONLEngine, directory: Path) -> None:
    step(engine.lease("job", "me", 1.0))
    (directory / "leases.json").write_text("{")
    with pytest.raises(Corrupt, match=r"leases\.json"):
        step(engine.lease("job", "me", 1.0))


def test_hostile_names_stay_in_the_directory(engine: JSONLEngine, directory: Path, tmp_path: Path) -> None:
    for name in ("../evil", "/etc/passwd", "a/../../b", ".names", "backtrail.json", "x\0y", "CON"):
        step(engine.commit(sample_records.first(sample_records.branch(name))))
        assert step(engine.head(name)) is not None
        assert (directory / file_name(name)).is_file()
    assert [file.name for file in tmp_path.iterdir()] == ["store"]
