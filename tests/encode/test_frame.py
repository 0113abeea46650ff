"""Frames wrapped and unwrapped with one call are the same as one by one, and as safe."""

from __future__ import annotations

import os
from typing import Any

import pytest

from backtrail.encode import frame
from backtrail.encode.checksum import crc32, pack_crc
from backtrail.encode.frame import Frames, LacksDictionary, train
from backtrail.encode.seal import Ring, SealedFrames
from backtrail.errors import BacktrailError, Corrupt, OverBudget, UnsupportedFormat

TEXT = b"".join(b"line %d of a text that repeats itself\n" % number for number in range(60))
CONTENTS = [b"", b"x" * 127, b"x" * 128, os.urandom(5000), TEXT, TEXT[:200], TEXT * 40]

MAKERS = {
    "plain": Frames,
    "zstd": lambda: Frames("zstd", 1),
    "sealed": lambda: SealedFrames(Ring.new()),
    "sealed zstd": lambda: SealedFrames(Ring.new(), "zstd", 1),
}


@pytest.fixture(params=list(MAKERS))
def frames(request: pytest.FixtureRequest) -> Any:
    return MAKERS[request.param]()


@pytest.fixture(params=[True, False], ids=["at once", "one by one"])
def at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a zstd that takes many at once, and with one that does not."""
    monkeypatch.setattr(frame, "_AT_ONCE", request.param)


def place(name: bytes) -> str:
    return f"blob {name.hex()}"


def wrapped(frames: Frames, contents: list[bytes] = CONTENTS) -> tuple[list[bytes], list[bytes], list[int]]:
    """Frames, names and sizes."""
    names = [frames.blob_id(content) for content in contents]
    return frames.wrap_all(contents, map(place, names)), names, [len(content) for content in contents]


def opened(frames: Frames, data: list[Any], names: list[bytes], sizes: list[int]) -> list[bytes]:
    return [bytes(view) for view in frames.unwrap_blobs(data, names, sizes, map(place, names))]


@pytest.mark.usefixtures("at_once")
def test_many_contents_come_back_as_they_were(frames: Frames) -> None:
    assert opened(frames, *wrapped(frames)) == CONTENTS
    assert opened(frames, [], [], []) == []


@pytest.mark.usefixtures("at_once")
def test_one_by_one_or_all_at_once_is_the_same(frames: Frames) -> None:
    data, names, sizes = wrapped(frames)
    assert [frames.unwrap(one, place(name)) for one, name in zip(data, names, strict=True)] == CONTENTS
    if not isinstance(frames, SealedFrames):  # those have a nonce
        assert data == [frames.wrap(content, "") for content in CONTENTS]
    single = [frames.wrap(content, place(name)) for content, name in zip(CONTENTS, names, strict=True)]
    assert opened(frames, single, names, sizes) == CONTENTS


def test_frames_of_every_kind_may_be_mixed() -> None:
    frames = Frames("zstd", 1)
    dictionary = frames.learn(train([TEXT[at : at + 900] for at in range(0, 1200, 7)]))
    data, names, sizes = wrapped(frames)
    data[4] = frames.wrap(TEXT, "", dictionary)
    assert data[4][0] == frame.DICTIONARY
    data[6] = Frames().wrap(CONTENTS[6], "")
    assert opened(frames, data, names, sizes) == CONTENTS


@pytest.mark.usefixtures("at_once")
def test_each_flipped_bit_in_any_of_many_is_found_or_does_no_harm(frames: Frames) -> None:
    contents = [b"x" * 127, TEXT[:300], b"y" * 400]
    data, names, sizes = wrapped(frames, contents)
    for number, sound in enumerate(data):
        for bit in range(len(sound) * 8):
            bad = bytearray(sound)
            bad[bit // 8] ^= 1 << bit % 8
            given = [*data[:number], bytes(bad), *data[number + 1 :]]
            told = ""
            try:
                # A bit of the checksum, or one that zstd has no use for: what has its name is what it was.
                assert opened(frames, given, names, sizes) == contents
            except Corrupt as error:
                told = str(error)
            assert not told or names[number].hex() in told


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("bad", [None, 7, "text", b"", b"\x01", b"\x00\x00\x00\x00", b"rubbish"])
def test_what_a_damaged_database_hands_out_is_an_error_that_names_the_blob(frames: Frames, bad: Any) -> None:
    data, names, sizes = wrapped(frames)
    with pytest.raises(Corrupt, match=names[2].hex()):
        opened(frames, [*data[:2], bad, *data[3:]], names, sizes)


@pytest.mark.usefixtures("at_once")
def test_a_blob_under_another_name_is_refused(frames: Frames) -> None:
    data, names, sizes = wrapped(frames, [TEXT, TEXT[::-1], b"other"])
    with pytest.raises(Corrupt, match=names[0].hex()):
        opened(frames, [data[1], data[0], data[2]], names, sizes)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("size", [-1, 0, len(TEXT) - 1, len(TEXT) + 1, 2**40, 2**70])
def test_a_size_that_is_not_the_blobs_is_refused_and_takes_no_memory(frames: Frames, size: int) -> None:
    data, names, sizes = wrapped(frames, [b"one", TEXT, TEXT[::-1]])
    sizes[1] = size
    with pytest.raises(Corrupt, match=names[1].hex()):
        opened(frames, data, names, sizes)


def test_a_kind_that_this_version_does_not_know_says_so() -> None:
    frames = Frames("zstd", 1)
    data, names, sizes = wrapped(frames)
    newer = b"\x09" + data[4][1:-4]
    data[4] = newer + pack_crc(crc32(newer))
    with pytest.raises(UnsupportedFormat, match="newer"):
        opened(frames, data, names, sizes)


def test_a_sealed_blob_opens_at_no_other_place() -> None:
    frames = SealedFrames(Ring.new(), "zstd", 1)
    data, names, sizes = wrapped(frames)
    with pytest.raises(BacktrailError):
        frames.unwrap_blobs(data, names, sizes, ["elsewhere"] * len(names))


# -- rows --------------------------------------------------------------------------------------------------------------

ROWS = [b"%d: " % number + TEXT * 3 for number in range(64)]  # together enough for several threads


def rows_of(frames: Frames, contents: list[bytes]) -> tuple[list[bytes], list[str]]:
    """Rows as they are written: the first ones without a dictionary, the last ones with one."""
    name = frames.learn(train([b"%d %s" % (number, TEXT[number:]) for number in range(400)]))
    records = [f"row {number}" for number in range(len(contents))]
    half = len(contents) // 2
    return [
        frames.wrap(content, record, name if number > half else b"")
        for number, (content, record) in enumerate(zip(contents, records, strict=True))
    ], records


def bare_contents(frames: Frames, data: list[Any], records: list[str], most: int = 1 << 30) -> list[bytes]:
    taken = 0

    def allow(size: int) -> None:
        nonlocal taken
        taken += size
        if taken > most:
            raise OverBudget("the rows", "bytes", most, taken)

    return [bare[1:-4] for bare in frames.bare(data, records, allow)]


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("contents", [[], [b""], CONTENTS, ROWS, [*CONTENTS, *ROWS]], ids=len)
def test_rows_of_all_kinds_are_opened_together(frames: Frames, contents: list[bytes]) -> None:
    data, records = rows_of(frames, contents)
    assert bare_contents(frames, data, records) == contents
    assert [bare[1:-4] for bare in frames.bare(data, records)] == contents


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("number", [3, 40, 60])
@pytest.mark.parametrize("at", [0, 1, 12, -5, -1])
def test_a_damaged_row_among_many_is_named(frames: Frames, number: int, at: int) -> None:
    data, records = rows_of(frames, ROWS)
    bad = bytearray(data[number])
    bad[at] ^= 4
    with pytest.raises(Corrupt, match=f"row {number}\\b"):
        bare_contents(frames, [*data[:number], bytes(bad), *data[number + 1 :]], records)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("number", [3, 40, 60])
def test_a_row_whose_checksum_holds_but_which_zstd_cannot_unpack_is_named(number: int) -> None:
    frames = Frames("zstd")
    data, records = rows_of(frames, ROWS)
    for rubbish in (data[number][:-20], data[number][:9] + b"rubbish", data[number][:9], b""):
        given = [*data[:number], rubbish + pack_crc(crc32(rubbish)), *data[number + 1 :]]
        with pytest.raises(Corrupt, match=f"row {number}\\b"):
            bare_contents(frames, given, records)


@pytest.mark.usefixtures("at_once")
def test_rows_that_unpack_to_too_much_together_are_refused() -> None:
    frames = Frames("zstd")
    data, records = rows_of(frames, ROWS)
    total = sum(map(len, ROWS))
    assert bare_contents(frames, data, records, total) == ROWS
    with pytest.raises(OverBudget):
        bare_contents(frames, data, records, total - 1)


@pytest.mark.usefixtures("at_once")
def test_a_dictionary_that_is_not_loaded_is_named_before_anything_is_unpacked() -> None:
    data, records = rows_of(Frames("zstd"), ROWS)
    with pytest.raises(LacksDictionary, match="row 33"):
        bare_contents(Frames("zstd"), data, records, 1 << 30)
