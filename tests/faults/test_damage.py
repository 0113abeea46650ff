"""A fuzzer over damaged stores: always a typed error or the right data, never a crash, a hang or wrong data."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.errors import BacktrailError

pytestmark = pytest.mark.slow

KEY = bytes(range(32))
CODECS: dict[str, dict[str, Any]] = {"plain": {}, "zstd": {"compression": "zstd"}, "sealed": {"key": KEY}}
ROUNDS = 60
Bytes = bytearray


def build(url: str, options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    with backtrail.open(url, **options) as store:
        for name in ("a", "b"):
            thread = store.thread(name)
            for n in range(12):
                thread.append(
                    "messages", [{"n": n, "text": f"{name} {n} " * 25}], label=f"l{n}" if n % 3 == 0 else None
                )
            thread.update({"paper": f"{name} paper " * 9000, "wide": {f"k{n}": f"v{n} " * 20 for n in range(60)}})
            thread.annotate(2, tags=["x"])
            thread.fork(f"{name}-fork", at=5).append("messages", [{"n": "fork"}])
            thread.rewind(9)
            thread.append("messages", [{"n": "rewound", "text": "y" * 300}])
        return states(store)


def states(store: Any) -> dict[str, dict[str, Any]]:
    return {
        info.id: {c.id: store.thread(info.id).load(c.id) for c in store.thread(info.id).history(all=True)}
        for info in store.threads()
    }


def flip(data: Bytes, rng: random.Random) -> None:
    for _ in range(rng.choice([1, 1, 3, 20])):
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)


def zero(data: Bytes, rng: random.Random) -> None:
    at, size = rng.randrange(len(data)), rng.choice([1, 16, 512, 8192])
    data[at : at + size] = bytes(len(data[at : at + size]))


def noise(data: Bytes, rng: random.Random) -> None:
    at, size = rng.randrange(len(data)), rng.choice([4, 64, 4096])
    data[at : at + size] = rng.randbytes(len(data[at : at + size]))


def cut(data: Bytes, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def repeat(data: Bytes, rng: random.Random) -> None:
    """A page, or a stretch, written in another's position."""
    size = rng.choice([64, 8192])
    one, other = (rng.randrange(max(1, len(data) // size)) * size for _ in range(2))
    data[other : other + size] = data[one : one + size]


DAMAGES: list[Callable[[Bytes, random.Random], None]] = [flip, flip, zero, noise, cut, repeat]


def damaged(directory: Path, file: Path, rng: random.Random) -> Iterator[str]:
    """The store at `directory` with one of its files damaged, again and again."""
    kept = directory.with_name("kept")
    shutil.copytree(directory, kept)
    for number in range(ROUNDS):
        shutil.rmtree(directory)
        shutil.copytree(kept, directory)
        data = Bytes(file.read_bytes())
        damage = DAMAGES[number % len(DAMAGES)]
        damage(data, rng)
        file.write_bytes(data)
        yield f"{damage.__name__} in round {number}"


def look(url: str, options: dict[str, Any], right: dict[str, dict[str, Any]], told: str) -> None:
    """Everything that a user may do with a store; it may be refused, but it may not go wrong."""
    try:
        store = backtrail.open(url, **options)
    except BacktrailError:
        return
    with store:
        for name, known in right.items():
            thread = store.thread(name)
            for ask in (thread.history, thread.load, lambda thread=thread: thread.tail("messages", 3)):
                try:
                    ask()
                except BacktrailError:
                    continue
            for id, state in known.items():
                try:
                    assert thread.load(id) == state, told
                except BacktrailError:
                    continue
        for ask in (store.threads, store.verify, store.stats, lambda: store.prune(dry_run=True)):
            try:
                ask()
            except BacktrailError:
                continue
        try:
            store.thread("new").save({"a": 1})
            assert store.thread("new").load() == {"a": 1}, told
        except BacktrailError:
            return


@pytest.mark.parametrize("codec", CODECS)
def test_a_damaged_sqlite_file_never_gives_wrong_data(codec: str, tmp_path: Path) -> None:
    directory = tmp_path / "store"
    directory.mkdir()
    options = {**CODECS[codec], "durability": "normal"}
    url = str(directory / "s.db")
    right = build(url, options)
    for told in damaged(directory, directory / "s.db", random.Random(codec)):
        look(url, options, right, told)


@pytest.mark.parametrize("codec", CODECS)
def test_damaged_jsonl_lines_never_give_wrong_data(codec: str, tmp_path: Path) -> None:
    directory = tmp_path / "store"
    url = f"jsonl:{directory}"
    right = build(url, CODECS[codec])
    file = max((path for path in directory.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    for told in damaged(directory, file, random.Random(codec)):
        look(url, CODECS[codec], right, told)
