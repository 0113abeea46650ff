"""Ignore rules: `.gitignore` and `.backtrailignore`, nested and negated, as git reads them.

pathspec's `GitIgnoreSpec` translates each line by itself, so that one bad pattern cannot disable the rest. git decides
name by name on the way down and never enters an ignored directory; so a pattern is matched only against the item
itself here, never against its parents. Runs of patterns with the same sign become one regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from backtrail.errors import MissingExtra

IGNORE_FILES = (b".gitignore", b".backtrailignore")  # a later file overrides an earlier one of the same directory

_DIRECTORY_GROUP = b"(?P<ps_d>/)"


class Rules:
    """The ignore rules of one directory: its own, then those of the directories above it."""

    __slots__ = ("bad", "groups", "parent", "start")

    def __init__(self, lines: Iterable[bytes] = (), directory: bytes = b"", parent: Rules | None = None) -> None:
        self.parent = parent
        self.start = len(directory)
        self.bad: list[bytes] = []  #: lines that are not patterns
        groups: list[tuple[bool, list[bytes]]] = []
        for line in lines:
            translated = self._translate(line)
            if translated is None:
                continue
            ignores, regex = translated
            if not groups or groups[-1][0] != ignores:
                groups.append((ignores, []))
            groups[-1][1].append(regex)
        self.groups = [
            (ignores, re.compile(b"|".join(b"(?:%s)" % regex for regex in regexes), re.DOTALL).search)
            for ignores, regexes in reversed(groups)
        ]

    def _translate(self, line: bytes) -> tuple[bool, bytes] | None:
        try:
            from pathspec import GitIgnoreSpec
        except ImportError as error:
            raise MissingExtra("store.workspace()", "files") from error
        try:
            pattern = next(iter(GitIgnoreSpec.from_lines([line]).patterns), None)
            if pattern is None or pattern.include is None or pattern.regex is None:
                return None
            return pattern.include, _match_itself(pattern.regex.pattern)
        except (ValueError, re.error):
            self.bad.append(line)
            return None

    def ignores(self, path: bytes, is_dir: bool) -> bool:
        """True if the item at `path` (from the root) is ignored, given that no directory above it is."""
        subject = path + b"/" if is_dir else path
        rules: Rules | None = self
        while rules is not None:
            for ignores, search in rules.groups:
                if search(subject[rules.start :]):
                    return ignores
            rules = rules.parent
        return False

    def below(self, directory: bytes, files: Iterable[bytes]) -> Rules:
        """The rules inside `directory` (from the root, ending in a slash), given its ignore files' contents."""
        lines = [line for data in files for line in data.removeprefix(b"\xef\xbb\xbf").splitlines()]
        return Rules(lines, directory, self) if lines else self


def _match_itself(regex: bytes) -> bytes:
    """Narrow pathspec's expression, which also matches everything below a match, to the item itself."""
    if _DIRECTORY_GROUP in regex:
        return regex.replace(_DIRECTORY_GROUP, b"/") + rb"\Z"
    if regex.endswith(b"/"):  # "name/**": everything inside, but not the directory
        return regex + b"."
    return regex
