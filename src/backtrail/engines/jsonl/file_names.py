"""File names for lineages: readable, never the same for two of them, and allowed on every file system.

A name of a few lower-case letters, digits, `-`, `_` and `.` is used as it is. In any other name the remaining
characters are replaced, and `~` and a hash of the whole name are added. A name with upper case gets a hash, too,
because some file systems do not distinguish it from lower case.
"""

from __future__ import annotations

import re

from blake3 import blake3

SUFFIX = ".jsonl"

_PLAIN = re.compile(r"[a-z0-9_]([a-z0-9_.-]{0,78}[a-z0-9_-])?")
_NOT_READABLE = re.compile(r"[^A-Za-z0-9_]+")
_RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")


def file_name(lineage: str) -> str:
    """The name of the file that holds a lineage."""
    if _PLAIN.fullmatch(lineage) and not _RESERVED.fullmatch(lineage):
        return lineage + SUFFIX
    readable = _NOT_READABLE.sub("-", lineage).strip("-")[:60].rstrip("-")
    digest = blake3(lineage.encode("utf-8", "surrogatepass")).hexdigest(12)
    return f"{readable}~{digest}{SUFFIX}"
