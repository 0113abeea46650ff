"""The checksum is zlib's CRC-32, whoever computes it."""

from __future__ import annotations

import subprocess
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backtrail.encode.checksum import SOUND, crc32, pack_crc
from backtrail.encode.frame import Frames

_WITHOUT = "import sys; sys.modules['zlib_ng'] = sys.modules['zlib_ng.zlib_ng'] = None\n"
_PROGRAM = """
from backtrail.encode import checksum
from backtrail.encode.frame import Frames
print(checksum.crc32.__module__, Frames().wrap(b"content", "here").hex(), Frames().bind(b"note", b"facts").hex())
"""


@given(st.binary(), st.integers(0, 2**32 - 1))
def test_it_is_the_one_of_zlib(data: bytes, before: int) -> None:
    assert crc32(data) == zlib.crc32(data)
    assert crc32(data, before) == zlib.crc32(data, before)
    assert crc32(memoryview(data)) == zlib.crc32(data)


@given(st.binary())
def test_bytes_with_their_own_checksum_have_the_sound_one(data: bytes) -> None:
    assert crc32(data + pack_crc(crc32(data))) == SOUND


@pytest.mark.parametrize("before", ["", _WITHOUT], ids=["as installed", "without zlib-ng"])
def test_the_same_bytes_are_written_without_zlib_ng(before: str) -> None:
    program = [sys.executable, "-c", before + _PROGRAM]
    module, frame, note = subprocess.run(program, check=True, capture_output=True, text=True).stdout.split()
    assert module == "zlib" or not before
    assert frame == Frames().wrap(b"content", "here").hex()
    assert note == Frames().bind(b"note", b"facts").hex()
