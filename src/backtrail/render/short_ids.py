"""Short ids for people: of each id the shortest start that tells it from the others."""

from __future__ import annotations

from collections.abc import Iterable

_MIN_ID_PREFIX = 8


def shorten_ids(ids: Iterable[str]) -> dict[str, str]:
    """For each id its shortest unique prefix of at least eight characters."""
    ordered = sorted(set(ids))
    short = {}
    for i, id in enumerate(ordered):
        near = [*ordered[max(0, i - 1) : i], *ordered[i + 1 : i + 2]]
        length = max([_MIN_ID_PREFIX, *(_common_prefix_length(id, other) + 1 for other in near)])
        short[id] = id[:length].rstrip("-")
    return short


def _common_prefix_length(a: str, b: str) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
