"""JSONL stores with one line changed and sealed again."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from functools import cache
from pathlib import Path

from blake3 import blake3

import backtrail
from fuzz.mutate import JSON_SCALARS, change, damage
from fuzz.targets import battery

_SUM = b',"sum":"'


@cache
def _store() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "store")
        with backtrail.open(f"jsonl:{root}", durability="normal") as store:
            battery.fill(store)
        return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def make(rng: random.Random) -> bytes:
    """All files of a store, with one line of one of them changed."""
    files = dict(_store())
    name = rng.choice([name for name, data in files.items() if data])
    lines = files[name].splitlines(keepends=True)
    number = rng.randrange(len(lines))
    lines[number] = _changed(lines[number], rng)
    files[name] = b"".join(lines)
    return json.dumps({name: data.decode("latin-1") for name, data in files.items()}).encode()


def _changed(line: bytes, rng: random.Random) -> bytes:
    body, found, _ = line.rpartition(_SUM)
    if not found:
        return damage(line, rng)
    try:
        fresh = json.dumps(change(json.loads(body + b"}"), rng, JSON_SCALARS), separators=(",", ":")).encode()[:-1]
    except (ValueError, RecursionError):
        fresh = damage(body, rng)
    if rng.random() < 0.3:
        fresh = damage(body, rng)
    return fresh + _SUM + blake3(fresh).hexdigest(8).encode() + b'"}\n'


def attempt(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "store")
        for name, text in json.loads(data).items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("latin-1"))
        with backtrail.open(f"jsonl:{root}", durability="normal") as store:
            battery.read_all(store)
            battery.write_some(store)
        shutil.rmtree(root)
