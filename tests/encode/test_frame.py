"""Frames wrapped and unwrapped with one call are the same as one by one, and as safe."""

from __future__ import annotations

import os
from typing import Any

import pytest

from backtrail.encode import frame
from backtrail.encode.frame import Frames, train
from backtrail.encode.seal import Ring, SealedFrames
from backtrail.errors import BacktrailError, Corrupt, UnsupportedFormat

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
    data[4] = newer + frame._crc.pack(frame.zlib.crc32(newer))
    with pytest.raises(UnsupportedFormat, match="newer"):
        opened(frames, data, names, sizes)


def test_a_sealed_blob_opens_at_no_other_place() -> None:
    frames = SealedFrames(Ring.new(), "zstd", 1)
    data, names, sizes = wrapped(frames)
    with pytest.raises(BacktrailError):
        frames.unwrap_blobs(data, names, sizes, ["elsewhere"] * len(names))
