"""Values on the command line: JSON, or text if it is none."""

from __future__ import annotations

from typing import Any

import msgspec


def value_of(text: str) -> Any:
    """The value that a person wrote: `true`, `3`, `{"a": 1}`, or plain text."""
    try:
        return msgspec.json.decode(text.encode())
    except (ValueError, RecursionError):
        return text
