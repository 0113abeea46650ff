"""The leases of a store: one small file, replaced as a whole. The caller holds the lock.

Tokens come from one counter for all names, so no token is given twice, even after a lease was deleted.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from backtrail.engines.base import RELEASED, Lease, Taken
from backtrail.errors import DECODE_ERRORS, Corrupt
from backtrail.owned_files import read_bytes, replace_atomically

_KEPT = 86_400_000_000  #: microseconds after its expiry, a lease is deleted


class _Record(msgspec.Struct):
    owner: str
    token: int
    expires: int


class _File(msgspec.Struct):
    token: int = 0
    leases: dict[str, _Record] = {}


class Leases:
    def __init__(self, directory: Path) -> None:
        self._path = directory / "leases.json"

    def token(self, name: str) -> int | None:
        """The newest token of a lease."""
        held = self._read().leases.get(name)
        return None if held is None else held.token

    def take(self, name: str, owner: str, ttl: float) -> Lease | Taken:
        file, now = self._read(), _now()
        held = file.leases.get(name)
        expires = now + round(ttl * 1_000_000)
        if held is not None and held.expires > now and held.owner != owner:
            return Taken(held.owner, held.expires)
        if held is not None and held.owner == owner and held.expires != RELEASED:
            held.expires = expires
        else:
            file.token += 1
            held = file.leases[name] = _Record(owner, file.token, expires)
        self._write(file)
        return Lease(name, owner, held.token, expires)

    def release(self, name: str, owner: str) -> bool:
        file = self._read()
        held = file.leases.get(name)
        if held is None or held.owner != owner or held.expires <= _now():
            return False
        held.expires = RELEASED
        self._write(file)
        return True

    def forget(self) -> None:
        """Delete leases that expired long ago."""
        file, limit = self._read(), _now() - _KEPT
        kept = {name: held for name, held in file.leases.items() if held.expires > limit}
        if len(kept) < len(file.leases):
            file.leases = kept
            self._write(file)

    def _read(self) -> _File:
        try:
            return msgspec.json.decode(read_bytes(self._path), type=_File)
        except FileNotFoundError:
            return _File()
        except DECODE_ERRORS as error:
            raise Corrupt(str(self._path), str(error)) from error

    def _write(self, file: _File) -> None:
        replace_atomically(self._path, [msgspec.json.encode(file)])


def _now() -> int:
    return time.time_ns() // 1000
