"""Raw damage to the files of a store, plain, compressed and encrypted: what loads is what was saved."""

from __future__ import annotations

import json
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import backtrail
from backtrail.errors import BacktrailError
from fuzz.mutate import damage
from fuzz.targets import battery

_OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "zstd": {"compression": "zstd"},
    "sealed": {"key": bytes(range(32))},
}
_ENGINES = ("sqlite", "jsonl")


@cache
def _store(engine: str, options: str) -> tuple[dict[str, bytes], dict[tuple[str, str], Any]]:
    """The files of a store, and all states in it."""
    with tempfile.TemporaryDirectory() as folder:
        with backtrail.open(_url(engine, Path(folder)), durability="normal", **_OPTIONS[options]) as store:
            battery.fill(store)
            states = {
                (info.id, checkpoint.id): store.thread(info.id).load(checkpoint)
                for info in store.threads()
                for checkpoint in store.thread(info.id).history(all=True)
            }
        root = Path(folder)
        return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}, states


def _url(engine: str, folder: Path) -> str:
    return f"jsonl:{folder / 'store'}" if engine == "jsonl" else str(folder / "s.db")


def make(rng: random.Random) -> bytes:
    engine, options = rng.choice(_ENGINES), rng.choice(list(_OPTIONS))
    files = dict(_store(engine, options)[0])
    name = rng.choice([name for name, data in files.items() if data])
    files[name] = damage(files[name], rng)
    return json.dumps([engine, options, {name: data.decode("latin-1") for name, data in files.items()}]).encode()


def attempt(data: bytes) -> None:
    engine, options, files = json.loads(data)
    right = _store(engine, options)[1]
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("latin-1"))
        with backtrail.open(_url(engine, Path(folder)), durability="normal", **_OPTIONS[options]) as store:
            for (thread, checkpoint), state in right.items():
                try:
                    found = store.thread(thread).load(checkpoint)
                except BacktrailError:
                    continue
                assert found == state, f"{thread} {checkpoint} loads as other data"
            battery.read_all(store)
            battery.write_some(store)
