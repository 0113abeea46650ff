"""The note of a saver in a checkpoint's `custom`, beside LangGraph's metadata: who saved it, and after which one.

| field | |
| --- | --- |
| `by` | random bytes: two savers may choose one id, and one is refused; one that is replaced has another author |
| `after` | the 16 bytes of its parent's id |
| `parent` | instead of `after`: LangGraph's id of the parent, if that is no UUID, or if it has not been saved |
| `id` | LangGraph's id, if that is not backtrail's |
| `metadata` | LangGraph's metadata, if it cannot stand in `custom` as it is |
| `no_parents` | the metadata has no `parents`, see below |

Nearly every checkpoint has the first two and no other, so these are stored as one byte string. And nearly all metadata
has `source`, `step` and empty `parents` (those of a subgraph are not empty), in this order: then `parents` is left out.
"""

from __future__ import annotations

import os
from typing import Any, Final

from backtrail.adapters.langgraph.message_codec import RESERVED_KEY
from backtrail.model import Checkpoint

_AUTHOR_BYTES: Final = 6
_PARENTS_AT: Final = 2  # the index of `parents` in metadata


def new_author() -> bytes:
    """The author of one save."""
    return os.urandom(_AUTHOR_BYTES)


def with_note(metadata: dict[str, Any], note: dict[str, Any]) -> dict[str, Any]:
    """The `custom` of a checkpoint."""
    items = list(metadata.items())
    if items[_PARENTS_AT : _PARENTS_AT + 1] == [("parents", {})]:
        del items[_PARENTS_AT]
    elif "parents" not in metadata and "metadata" not in note:
        note = {**note, "no_parents": True}
    short = note["by"] + note["after"] if note.keys() == {"by", "after"} else note
    return {**dict(items), RESERVED_KEY: short}


def note_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """The note of the saver that wrote a checkpoint; empty if it was saved by other means."""
    stored = checkpoint.custom.get(RESERVED_KEY, {})
    if type(stored) is bytes:
        return {"by": stored[:_AUTHOR_BYTES], "after": stored[_AUTHOR_BYTES:]}
    return stored if type(stored) is dict else {}


def metadata_of(checkpoint: Checkpoint) -> Any:
    """LangGraph's metadata of a checkpoint, as plain data."""
    note = note_of(checkpoint)
    if "metadata" in note:
        return note["metadata"]
    items = [item for item in checkpoint.custom.items() if item[0] != RESERVED_KEY]
    if "no_parents" not in note and "parents" not in checkpoint.custom:
        items.insert(_PARENTS_AT, ("parents", {}))
    return dict(items)
