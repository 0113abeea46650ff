"""A checkpoint as a text: its messages line by line, the conversation in Markdown, or the whole state in JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from backtrail import Checkpoint, Store, Thread
from backtrail.render.json_records import checkpoint_json
from backtrail.render.jsonable import to_json

MEDIA_TYPES = {"jsonl": "application/x-ndjson", "markdown": "text/markdown", "json": "application/json"}
_ENDINGS = {".md": "markdown", ".markdown": "markdown", ".json": "json"}


def form_of(path: Path | None) -> str:
    """The form that a file's ending asks for."""
    return _ENDINGS.get(path.suffix, "jsonl") if path is not None else "jsonl"


def write(store: Store, thread: Thread[Any], checkpoint: Checkpoint, form: str) -> str:
    """The text of `form`."""
    if form != "json":
        return store.export(thread.id, format=form, at=checkpoint)
    whole = {"checkpoint": checkpoint_json(checkpoint), "state": to_json(thread.load(checkpoint))}
    return json.dumps(whole, ensure_ascii=False, indent=2) + "\n"
