"""Changed files for a terminal: unified diffs in colour, or a line where there is no text to compare."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from rich.text import Text

from backtrail.cli.output import safe

if TYPE_CHECKING:
    from backtrail.workspace import Change

_STYLES = {"+": "added", "-": "removed", "@": "dim", "~": "changed"}


def lines(changes: Iterable[Change]) -> Iterable[Text]:
    """The lines to print."""
    for change in changes:
        for text in (change.text or str(change)).splitlines():
            yield Text(safe(text), _STYLES.get(text[:1], ""))


def plain(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """The same for `--json`."""
    return [msgspec.to_builtins(change) for change in changes]
