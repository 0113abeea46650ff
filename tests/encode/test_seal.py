"""Sealed frames are bound to their record and opened by the ring only; stores with keys; the information that raw files
still reveal."""

from __future__ import annotations

import datetime as dt
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.encode.frame import Frames
from backtrail.encode.seal import Ring, SealedFrames, check_keys, lock_ring, unlock_ring
from backtrail.errors import BacktrailError, Corrupt, InvalidInput, Unavailable, UnsupportedFormat

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))


@pytest.fixture
def frames() -> SealedFrames:
    return SealedFrames(Ring.new())


@pytest.mark.parametrize("content", [b"", b"x", b"secret " * 100, bytes(100_000)])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_what_was_sealed_opens_at_its_place(content: bytes, compression: str | None) -> None:
    frames = SealedFrames(Ring.new(), compression)
    frame = frames.wrap(content, "here")
    assert frames.unwrap(frame, "here") == content
    assert b"secret" not in frame
    assert frames.wrap(content, "here") != frame
    assert frames.open_bound(frames.bind(content, b"facts"), b"facts", "a head") == content


def test_a_frame_opens_nowhere_else(frames: SealedFrames) -> None:
    frame = frames.wrap(b"content", "step 3 of branch 01: payload")
    for elsewhere in ("step 4 of branch 01: payload", "step 3 of branch 02: payload", "step 3 of branch 01: root", ""):
        with pytest.raises(Corrupt):
            frames.unwrap(frame, elsewhere)
    with pytest.raises(Corrupt):
        frames.open_bound(frames.bind(b"note", b"step 3"), b"step 4", "a head")


def test_each_flipped_bit_is_found(frames: SealedFrames) -> None:
    frame = frames.wrap(b"content", "here")
    for at in range(len(frame)):
        for bit in range(8):
            bad = frame[:at] + bytes([frame[at] ^ 1 << bit]) + frame[at + 1 :]
            with pytest.raises(BacktrailError):
                frames.unwrap(bad, "here")
    for cut in range(len(frame)):
        with pytest.raises(BacktrailError):
            frames.unwrap(frame[:cut], "here")


def test_a_plain_frame_is_refused(frames: SealedFrames) -> None:
    for plain in (Frames().wrap(b"content", "here"), Frames("zstd").wrap(b"content" * 100, "here")):
        with pytest.raises(Corrupt):
            frames.unwrap(plain, "here")
        with pytest.raises(Corrupt):
            frames.bare([plain], ["here"])
    with pytest.raises(UnsupportedFormat):
        Frames().unwrap(frames.wrap(b"content", "here"), "here")
    with pytest.raises(UnsupportedFormat):
        Frames().bare([frames.wrap(b"content", "here")], ["here"])


def test_names_of_blobs_are_keyed(frames: SealedFrames) -> None:
    assert frames.blob_id(b"same") == frames.blob_id(b"same")
    assert frames.blob_id(b"same") not in (SealedFrames(Ring.new()).blob_id(b"same"), Frames().blob_id(b"same"))


def test_a_ring_opens_with_its_key_only() -> None:
    ring = Ring.new()
    locked = lock_ring(ring, KEY, 7)
    assert unlock_ring(locked, [OTHER, KEY], 7) == (ring, 1)
    with pytest.raises(InvalidInput):
        unlock_ring(locked, [KEY], 8)
    assert all(secret not in locked for secret in (ring.names, *ring.keys, KEY))
    with pytest.raises(InvalidInput, match="wrong key"):
        unlock_ring(locked, [OTHER], 7)
    with pytest.raises(Corrupt):
        unlock_ring(locked[:-9] + b"x" + locked[-8:], [KEY], 7)


def test_a_grown_ring_still_opens_what_was_sealed_before(frames: SealedFrames) -> None:
    ring = Ring.new()
    old = SealedFrames(ring)
    frame = old.wrap(b"content", "here")
    grown = SealedFrames(ring.grown())
    assert grown.unwrap(frame, "here") == b"content"
    with pytest.raises(Unavailable, match="open it again"):
        old.unwrap(grown.wrap(b"content", "here"), "here")


@pytest.mark.parametrize("key", [b"", b"short", bytes(31), bytes(33), "short", "zz" * 32, 7, [], [KEY, b"x"], None])
def test_what_is_no_key_is_refused(key: Any) -> None:
    with pytest.raises(InvalidInput, match="key"):
        check_keys(key)


def test_a_key_can_be_text() -> None:
    assert check_keys(KEY.hex()) == (KEY,)
    assert check_keys("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=") == (KEY,)
    assert check_keys([KEY, OTHER]) == (KEY, OTHER)
    with backtrail.open(f"memory:?key={KEY.hex()}") as store:
        store.thread("t").save({"a": 1})
        assert store.thread("t").load() == {"a": 1}


# -- stores -----------------------------------------------------------------------------------------------------------


SECRETS = [
    "mushroom",
    "Zanzibar",
    "quicksilver",
    "tangerine",
    "obelisk",
    "marzipan",
    "palimpsest",
    "gargoyle",
    "xylophone",
]


def build(store: Any) -> None:
    text, label, tag, custom, name, summary, paper, policy, _ = SECRETS
    thread = store.thread("t")
    thread.save({"messages": [{"text": f"{text} {n} " * 50} for n in range(5)], name: 1}, label=label, tags=[tag])
    thread.annotate(1, label=f"{label} again", custom={custom: custom})
    for n in range(70):
        thread.append("messages", [{"text": f"{text} {n} and so on " * 30}], custom={custom: [custom]})
    thread.update({"paper": f"{paper} " * 20_000, "wide": {f"{name} {n}": f"{text} " * 20 for n in range(90)}})
    thread.retain(backtrail.Retention(keep_last=90, keep_tags=(policy,)))
    thread.fork("fork").save({"x": text}, label=label)
    thread.rewind(3)
    session = store.session("chat")
    session.add("user", f"{text} and more")
    session.set_summary(f"{summary} " * 10)


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_no_secret_is_in_the_raw_file(compression: str | None, tmp_path: Path) -> None:
    place = tmp_path / "store"
    place.mkdir()
    with backtrail.open(place / "s.db", key=KEY, compression=compression) as store:
        build(store)
        folder = tmp_path / "work"
        folder.mkdir()
        (folder / f"{SECRETS[8]}.txt").write_text(f"{SECRETS[6]} in a file")
        store.workspace(folder, name="files").snapshot(label=SECRETS[1])
        assert store.verify().ok
    raw = b"".join(path.read_bytes() for path in place.iterdir())
    found = [secret for secret in SECRETS if secret.encode() in raw]
    assert found == []
    assert b"chat" in raw  # ids of threads are not secret


def test_the_same_words_are_found_in_a_store_without_a_key(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "s.db") as store:
        build(store)
    raw = (tmp_path / "s.db").read_bytes()
    assert sum(secret.encode() in raw for secret in SECRETS) >= 8


def test_a_sealed_store_opens_with_its_key_only(opener: Any) -> None:
    store = opener(key=KEY)
    store.thread("t").save({"a": 1}, label="x")
    again = opener(key=[OTHER, KEY])
    assert again.thread("t").load() == {"a": 1}
    assert again.thread("t").history()[0].label == "x"
    with pytest.raises(InvalidInput, match="wrong key"):
        opener(key=OTHER)
    with pytest.raises(UnsupportedFormat, match="key"):
        opener()


def test_a_plain_store_is_not_opened_with_a_key(opener: Any) -> None:
    opener().thread("t").save({"a": 1})
    with pytest.raises(InvalidInput, match="copy"):
        opener(key=KEY)
    assert opener().thread("t").load() == {"a": 1}


def test_an_empty_store_with_a_key_is_sealed_from_the_start(opener: Any) -> None:
    opener(key=KEY)
    with pytest.raises(UnsupportedFormat):
        opener()


def test_a_store_can_be_given_a_new_key(opener: Any) -> None:
    store = opener(key=KEY)
    thread = store.thread("t")
    thread.save({"a": 1, "paper": "long " * 20_000})
    assert store.rekey(OTHER) == 2
    thread.save({"a": 2, "paper": "long " * 20_000})
    with pytest.raises(InvalidInput, match="wrong key"):
        opener(key=KEY)
    again = opener(key=OTHER)
    assert [again.thread("t").load(n)["a"] for n in (1, 2)] == [1, 2]
    assert again.verify().ok
    assert again.rekey(KEY) == 3
    assert opener(key=KEY).thread("t").load()["a"] == 2
    with pytest.raises(InvalidInput):
        store.rekey(b"short")


def test_a_process_that_was_open_during_a_rekey_goes_on_or_is_told(opener: Any) -> None:
    one, two = opener(key=KEY), opener(key=KEY)
    one.thread("a").save({"n": 1})
    two.rekey(OTHER)
    one.thread("a").save({"n": 2})
    assert opener(key=OTHER).thread("a").load() == {"n": 2}
    two.thread("a").save({"n": 3})
    with pytest.raises(Unavailable, match="open it again"):
        one.thread("a").load()


def test_a_store_without_a_key_cannot_be_rekeyed(store: Any) -> None:
    with pytest.raises(InvalidInput):
        store.rekey(KEY)


def swap(db: sqlite3.Connection, table: str, column: str, one: str, other: str) -> None:
    (first,) = db.execute(f"SELECT {column} FROM {table} WHERE {one}").fetchone()
    (second,) = db.execute(f"SELECT {column} FROM {table} WHERE {other}").fetchone()
    db.execute(f"UPDATE {table} SET {column} = ? WHERE {one}", (second,))
    db.execute(f"UPDATE {table} SET {column} = ? WHERE {other}", (first,))


STEP = "pos & 4294967295 ="


@pytest.mark.parametrize(
    ("table", "column", "one", "other"),
    [
        ("steps", "payload", f"{STEP} 1", f"{STEP} 2"),
        ("steps", "root", f"{STEP} 1", f"{STEP} 2"),
        ("steps", "meta", f"{STEP} 1", f"{STEP} 2"),
        ("blobs", "data", "n = 1", "n = 2"),
        ("heads", "note", "thread = 'a'", "thread = 'b'"),
        ("heads", "step", "thread = 'a'", "thread = 'b'"),
    ],
)
def test_swapped_records_do_not_open(table: str, column: str, one: str, other: str, tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with backtrail.open(path, key=KEY) as store:
        for n in range(2):
            store.thread("a").save({"n": n, "text": f"{n} " * 100, "paper": f"{n} " * 40_000})
        store.thread("a").fork("b", at=1)
    db = sqlite3.connect(path, isolation_level=None)
    swap(db, table, column, one, other)
    db.close()
    with backtrail.open(path, key=KEY) as store:
        refused = 0
        for name, at, right in (("a", 1, 0), ("a", 2, 1), ("b", 1, 0)):
            try:
                assert store.thread(name).load(at)["n"] == right
            except BacktrailError:
                refused += 1
        assert refused
        assert not store.verify().ok


def test_what_is_visible_without_a_key_is_ids_times_and_sizes(tmp_path: Path) -> None:
    with backtrail.open(tmp_path / "s.db", key=KEY) as store:
        store.thread("t").save({"a": "b" * 1000}, label="x")
    db = sqlite3.connect(tmp_path / "s.db")
    thread, kind, created, count, size = db.execute(
        "SELECT thread, kind, created, count, size FROM heads WHERE thread = 't'"
    ).fetchone()
    assert (thread, kind, count) == ("t", "thread", 1)
    assert size > 1000
    assert created > dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp() * 1e6
    db.close()


def test_random_bytes_never_open(frames: SealedFrames) -> None:
    for size in range(0, 200, 7):
        with pytest.raises(BacktrailError):
            frames.unwrap(os.urandom(size), "here")
