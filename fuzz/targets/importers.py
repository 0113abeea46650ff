"""Files to import: samples of every format, changed."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import backtrail
from backtrail.importers import FORMATS
from fuzz.mutate import JSON_SCALARS, change, damage
from fuzz.targets import battery

_MESSAGES = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "text", "text": "yes"}]}]
_ENTRY = {"type": "user", "uuid": "a", "parentUuid": None, "sessionId": "s", "timestamp": "2026-01-01T00:00:00Z"}
_SAMPLES: dict[str, list[Any]] = {
    "openai": [{"id": "s", "messages": _MESSAGES, "summary": "x"}],
    "picoclaw": [{"key": "s", "messages": _MESSAGES, "summary": "", "created": "2026-01-01T00:00:00Z"}],
    "ductwork": [{"run_id": "r", "task_name": "t", "iteration": 2, "messages": _MESSAGES, "input_tokens": 3}],
    "openrouter": [
        {"sessions": {"s": {"ID": "s", "Messages": _MESSAGES, "UserTurns": 1, "Checkpoints": {"m": _MESSAGES}}}}
    ],
    "claude": [
        _ENTRY | {"message": _MESSAGES[0], "isSidechain": False},
        _ENTRY | {"type": "assistant", "uuid": "b", "parentUuid": "a", "message": _MESSAGES[1]},
        {"type": "summary", "leafUuid": "b", "summary": "all"},
    ],
    "backtrail": [
        {"backtrail": 1, "kind": "session", "id": "s", "created_at": "2026-01-01T00:00:00+00:00"},
        *_MESSAGES,
    ],
}


def make(rng: random.Random) -> bytes:
    format = rng.choice(list(_SAMPLES))
    lines = [change(line, rng, JSON_SCALARS) if rng.random() < 0.6 else line for line in _SAMPLES[format]]
    try:
        text = "\n".join(map(json.dumps, lines)).encode()
    except RecursionError:
        text = b"[" * 5000
    if rng.random() < 0.3:
        text = damage(text, rng)
    return rng.choice(("", format)).encode() + b"\n" + text


def attempt(data: bytes) -> None:
    format, _, content = data.partition(b"\n")
    with tempfile.TemporaryDirectory() as folder, backtrail.open("memory:") as store:
        path = Path(folder, f"file{'.jsonl' if len(content) % 2 else '.json'}")
        path.write_bytes(content)
        report = store.import_(path, format=format.decode() or None)
        assert format.decode() in ("", *FORMATS)
        for line in report.imported:
            assert line.id is not None and store.thread(line.id).exists(), "imported, but not there"
        battery.read_all(store)
