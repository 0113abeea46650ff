"""Ids of checkpoints: time-ordered UUIDs.

Their random ends are drawn ahead, so that a save makes no call of the operating system for them.
"""

from __future__ import annotations

import os
import struct

_FRONT = struct.Struct(">QB")


def new_id(created: int) -> bytes:
    """A UUIDv7: the time to a quarter of a microsecond, then 62 random bits."""
    milli, micro = divmod(created, 1000)
    tail = _random_tail()
    return _FRONT.pack(milli << 16 | 0x7000 | micro << 2, tail[0] & 0x3F | 0x80) + tail[1:]


_TAIL = 8  # bytes
_TAILS_AHEAD = 512
_tails: list[bytes] = []


def _random_tail() -> bytes:
    """The random end of an id. It was drawn ahead: a call of the system lets other threads run in the middle of a save,
    and one of them may end the process."""
    while True:
        try:
            return _tails.pop()
        except IndexError:
            _draw_tails()


def _draw_tails() -> None:
    drawn = os.urandom(_TAIL * _TAILS_AHEAD)
    _tails.extend(drawn[at : at + _TAIL] for at in range(0, len(drawn), _TAIL))


def _draw_tails_anew() -> None:
    """In a forked child: the parent uses the inherited ones."""
    _tails.clear()
    _draw_tails()


_draw_tails()
os.register_at_fork(after_in_child=_draw_tails_anew)


def uuid_text(data: bytes) -> str:
    """16 bytes in the usual text form of a UUID."""
    text = data.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
