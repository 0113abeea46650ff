"""The export formats of the command line and the inspector: those of `Store.export`, and the whole state as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from backtrail import Checkpoint, Store, Thread, export
from backtrail.render.json_records import checkpoint_json
from backtrail.render.jsonable import to_json

MEDIA_TYPES = {"jsonl": "application/x-ndjson", "markdown": "text/markdown", "json": "application/json"}


def format_of(path: Path | None) -> str:
    """The format selected by the suffix of a file."""
    return "json" if path is not None and path.suffix == ".json" else export.check_format(None, path)


def export_checkpoint(store: Store, thread: Thread[Any], checkpoint: Checkpoint, format: str) -> str:
    """The text of a checkpoint in `format`."""
    if format != "json":
        return store.export(thread.id, format=export.check_format(format, None), at=checkpoint)
    document = {"checkpoint": checkpoint_json(checkpoint), "state": to_json(thread.load(checkpoint, salvage=True))}
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"
