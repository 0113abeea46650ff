"""Sealed frames: everything that reaches an engine is encrypted with AES-256-GCM and bound to its record.

A store has a *ring* of its own: a secret for the names of blobs, and one or more data keys. The ring is kept in the
store, encrypted with the user's key; so a user's key can be replaced without touching a single row, and rows written
from then on are sealed with a fresh data key. A sealed frame is a flag byte, the number of the data key, a random
nonce, the ciphertext with its tag, and the CRC-32 that every frame ends with, by which damage is distinguished from a
wrong key.

The name of the record (which row, which part of it, which blob) is the associated data, so a frame that was moved to
another record does not open. Blobs are named by a keyed hash: without the ring, equal contents cannot be recognized.
"""

from __future__ import annotations

import os
import struct
from base64 import b64decode
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import msgspec
from blake3 import blake3

from backtrail.encode.checksum import SOUND, crc32, pack_crc
from backtrail.encode.frame import BEHIND, SEALED, Allow, Frames, check_sound
from backtrail.errors import Corrupt, InvalidInput, MissingExtra, Unavailable, UnsupportedFormat
from backtrail.model import Budget

_KEY = 32
_NONCE = 12
_MAGIC = b"backtrail ring 1\n"
_HEAD = struct.Struct("<BB")  # flag, number of the data key
_LEAST = _HEAD.size + _NONCE + 16 + 4  # an empty content, sealed
_MAX_KEYS = 255
_SEALED_FLAG = bytes([SEALED])
_HINT = "make one with secrets.token_bytes(32), and give it as bytes, as 64 hexadecimal digits or in base64"


class Ring(msgspec.Struct, frozen=True, array_like=True):
    """The secrets of one store. `keys` only grows; the last one seals what is written now."""

    names: bytes
    keys: tuple[bytes, ...]

    def __repr__(self) -> str:  # without the secrets
        return f"Ring({len(self.keys)} data keys)"

    @classmethod
    def new(cls) -> Ring:
        """The ring of a new store."""
        return cls(os.urandom(_KEY), (os.urandom(_KEY),))

    def grown(self) -> Ring:
        """The same ring with one more data key."""
        if len(self.keys) >= _MAX_KEYS:
            raise InvalidInput(f"the store has had {_MAX_KEYS} data keys: copy it into a new one with copy_to()")
        return Ring(self.names, (*self.keys, os.urandom(_KEY)))


def check_keys(value: Any) -> tuple[bytes, ...]:
    """The user's keys, the current one first: one key, or a list of them."""
    given = list(value) if isinstance(value, (list, tuple)) else [value]
    if not given:
        raise InvalidInput(f"key is an empty list: {_HINT}")
    return tuple(_key(one) for one in given)


def _key(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray)) and len(value) == _KEY:
        return bytes(value)
    if isinstance(value, str):
        try:
            raw = bytes.fromhex(value) if len(value) == 2 * _KEY else b64decode(value, validate=True)
        except ValueError:
            raw = b""
        if len(raw) == _KEY:
            return raw
    raise InvalidInput(f"a key is {_KEY} random bytes: {_HINT}")


def lock_ring(ring: Ring, key: bytes, created: int) -> bytes:
    """The ring in its stored form, encrypted with `key`. It is bound to the time when it was made, by which two stores
    tell whether they have the same ring."""
    nonce = os.urandom(_NONCE)
    content = msgspec.msgpack.encode(ring)
    sealed = _MAGIC + nonce + _cipher(_wrapping(key)).encrypt(nonce, content, _ring_facts(created))
    return sealed + pack_crc(crc32(sealed))


def unlock_ring(data: bytes, keys: Sequence[bytes], created: int) -> tuple[Ring, int]:
    """The ring that was made at this time, and the index of the key that opened it."""
    if type(data) is not bytes or crc32(data) != SOUND or not data.startswith(_MAGIC):
        raise Corrupt("the key ring of the store", "its checksum does not hold")
    at = len(_MAGIC)
    nonce, body = data[at : at + _NONCE], data[at + _NONCE : -4]
    for number, key in enumerate(keys):
        try:
            content = _cipher(_wrapping(key)).decrypt(nonce, body, _ring_facts(created))
        except _invalid_tag():
            continue
        return msgspec.msgpack.decode(content, type=Ring), number
    raise InvalidInput("wrong key: the store is encrypted with another one; nothing was read or changed")


def _ring_facts(created: int) -> bytes:
    return _MAGIC + f"{created}".encode()


class SealedFrames(Frames):
    """Frames that only the holder of the ring can make or open."""

    def __init__(
        self, ring: Ring, compression: str | None = None, level: int | None = None, most: int = Budget().bytes
    ) -> None:
        super().__init__(compression, level, most)
        self._ciphers = [_cipher(key) for key in ring.keys]
        self._names = ring.names

    def use(self, ring: Ring) -> None:
        """Switch to a ring with more keys; copies of these frames share the list."""
        self._ciphers[:] = [_cipher(key) for key in ring.keys]
        self._names = ring.names

    def renamed(self, ring: Ring) -> Ring:
        """Another ring, with these frames' secret for blob names."""
        return Ring(self._names, ring.keys)

    def wrap(self, content: bytes, record: str, dictionary: bytes = b"") -> bytes:
        return self._seal(self._pack(content, dictionary), record.encode())

    def wrap_all(self, contents: Sequence[bytes], records: Iterable[str]) -> list[bytes]:
        return [
            self._seal(packed, record.encode())
            for packed, record in zip(self._pack_all(contents), records, strict=True)
        ]

    def unwrap(self, frame: bytes, record: str, allow: Allow | None = None) -> bytes:
        return self._unpack(self._open(frame, record.encode(), record), record, allow)

    def unwrap_blobs(
        self, frames: Sequence[bytes], ids: Sequence[bytes], sizes: Sequence[int], records: Iterable[str]
    ) -> list[memoryview]:
        where = list(records)
        opened = [memoryview(self._open(f, p.encode(), p)) for f, p in zip(frames, where, strict=True)]
        found = self._unpack_all(opened, ids, sizes)
        return self._each_blob(frames, ids, sizes, where) if found is None else found

    def bare(self, frames: Sequence[bytes], records: Iterable[str], allow: Allow | None = None) -> Sequence[bytes]:
        where = list(records)
        opened = [self._open(f, p.encode(), p) + BEHIND for f, p in zip(frames, where, strict=True)]
        return self._unpack_rows(opened, where, allow)

    def bind(self, content: bytes, facts: bytes) -> bytes:
        return self._seal(content, facts)

    def open_bound(self, data: bytes, facts: bytes, record: str) -> bytes:
        return self._open(data, facts, record)

    def blob_id(self, content: bytes | memoryview) -> bytes:
        return blake3(content, key=self._names).digest()

    def _seal(self, packed: bytes, bound: bytes) -> bytes:
        nonce = os.urandom(_NONCE)
        number = len(self._ciphers) - 1
        sealed = _HEAD.pack(SEALED, number) + nonce + self._ciphers[number].encrypt(nonce, packed, bound)
        return sealed + pack_crc(crc32(sealed))

    def _open(self, frame: bytes, bound: bytes, record: str) -> bytes:
        check_sound(frame, record, _LEAST)
        if frame[0] != SEALED:
            raise Corrupt(record, "it is not encrypted, but its store is")
        number = frame[1]
        if number >= len(self._ciphers):
            raise Unavailable(f"{record} is sealed with a newer data key: the store was rekeyed, open it again")
        try:
            return self._ciphers[number].decrypt(frame[2 : 2 + _NONCE], frame[2 + _NONCE : -4], bound)
        except _invalid_tag():
            raise Corrupt(record, "it was not written here with this store's key: forged, moved or put back") from None


def data_key_of(frame: bytes) -> int:
    """The number of the data key that a sealed frame was made with; 0 for one that is not sealed."""
    return frame[1] if frame[:1] == _SEALED_FLAG and len(frame) >= _LEAST else 0


def require_crypto() -> None:
    """`MissingExtra` unless the cipher can be imported."""
    _cipher(bytes(_KEY))


def refuse_sealed() -> UnsupportedFormat:
    """The error for an encrypted store that is opened without a key."""
    return UnsupportedFormat("the store is encrypted: open it with key=…")


def _wrapping(key: bytes) -> bytes:
    return blake3(key, derive_key_context="backtrail 2026-11 key ring").digest()


class _Cipher(Protocol):
    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...
    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...


def _cipher(key: bytes) -> _Cipher:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise MissingExtra("encryption", "crypto") from error
    return AESGCM(key)


def _invalid_tag() -> type[Exception]:
    from cryptography.exceptions import InvalidTag

    return InvalidTag
