"""The checksum of everything that is stored: CRC-32, as in zlib, gzip and PNG.

zlib-ng computes it many times faster than the zlib of most systems: a load of 3.7 MB spends 0.2 ms on it instead of 1
to 2. It is the same number, so a machine without zlib-ng reads and writes the same stores.
"""

from __future__ import annotations

import struct

try:
    from zlib_ng.zlib_ng import crc32
except ImportError:  # no wheel for this platform: `pyproject.toml` asks for it only where there is one
    from zlib import crc32

__all__ = ["SOUND", "crc32", "pack_crc"]

SOUND = 0x2144DF1C  #: CRC-32 of any bytes followed by their own little-endian CRC-32
pack_crc = struct.Struct("<I").pack
