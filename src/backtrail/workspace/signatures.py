"""Signatures: the fields of `lstat` that show if a file may have changed since it was read.

A signature cannot be trusted if the file changed about when it was taken: a second change within the granularity of
the timestamps would not show. Such an item is kept without one, and is read again next time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from operator import attrgetter

import msgspec

Signature = tuple[int, int, int, int, int]
signature = attrgetter("st_mtime_ns", "st_ctime_ns", "st_size", "st_ino", "st_mode")

FAR = 2**63  # nanoseconds, about the year 2262
RACY = 2 * 10**9  # nanoseconds; coarser than the timestamps of any file system in use

_encode = msgspec.msgpack.Encoder().encode


def lstat_signature(name: bytes, folder: int) -> Signature | None:
    """The signature now of an item in a folder, given by its descriptor; None if it cannot be examined."""
    try:
        return signature(os.lstat(name, dir_fd=folder))
    except OSError:
        return None


def trusted(sig: Signature, start: int) -> Signature | None:
    """The signature if it is certain to differ after any later change. None if it was made about when the walk started,
    or if its time is out of an index's range."""
    mtime, ctime = sig[0], sig[1]
    return None if ctime > start - RACY or abs(mtime - start) <= RACY or not -FAR <= mtime < FAR else sig


def packed(signatures: Sequence[Signature | None]) -> bytes | None:
    """Signatures as one byte string, which compares several times as fast as a list of tuples. None if a number in
    them is too large to be encoded."""
    try:
        return _encode(signatures)
    except OverflowError:
        return None
