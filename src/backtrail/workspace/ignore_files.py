"""Ignore rules: `.gitignore` and `.backtrailignore`, nested and negated, as git reads them.

git decides name by name on the way down and never enters an ignored directory; so a pattern is matched only against the
item itself here, never against its parents. Runs of patterns with the same sign become one regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from backtrail.workspace.ignore_patterns import Pattern, parse

IGNORE_FILES = (b".gitignore", b".backtrailignore")  # a later file overrides an earlier one of the same directory

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Rules:
    """The ignore rules of one directory: its own, then those of the directories above it."""

    __slots__ = ("groups", "parent", "start")

    def __init__(self, lines: Iterable[bytes] = (), directory: bytes = b"", parent: Rules | None = None) -> None:
        self.parent = parent
        self.start = len(directory)
        groups: list[list[Pattern]] = []
        for pattern in filter(None, map(parse, lines)):
            if not groups or groups[-1][0].includes_again != pattern.includes_again:
                groups.append([])
            groups[-1].append(pattern)
        self.groups = [_Group(patterns) for patterns in reversed(groups)]

    def ignores(self, path: bytes, is_dir: bool) -> bool:
        """True if the item at `path` (from the root) is ignored, given that no directory above it is."""
        name = path[path.rfind(b"/") + 1 :]
        rules: Rules | None = self
        while rules is not None:
            if rules.groups:
                below = path[rules.start :]
                for group in rules.groups:
                    if group.matches(name, below, is_dir):
                        return group.ignores
            rules = rules.parent
        return False

    def below(self, directory: bytes, files: Iterable[bytes]) -> Rules:
        """The rules inside `directory` (from the root, ending in a slash), given its ignore files' contents."""
        lines = [
            line.removesuffix(b"\r")
            for data in files
            for line in data.removeprefix(_BYTE_ORDER_MARK).split(b"\n")
            if line
        ]
        return Rules(lines, directory, self) if lines else self


class _Group:
    """Patterns that stand together and have the same sign. Compiled when they are first needed."""

    __slots__ = ("_compiled", "_patterns", "ignores")

    def __init__(self, patterns: list[Pattern]) -> None:
        self.ignores = not patterns[0].includes_again
        self._patterns = patterns
        self._compiled: dict[tuple[bool, bool], re.Pattern[bytes] | None] = {}

    def matches(self, name: bytes, path: bytes, is_dir: bool) -> bool:
        """True if any of them matches; `path` is that of the item from the directory of the ignore file."""
        for by_name, subject in ((True, name), (False, path)):
            for only_directories in (False, True) if is_dir else (False,):
                kind = (by_name, only_directories)
                if kind not in self._compiled:
                    self._compiled[kind] = self._compile(by_name, only_directories)
                regex = self._compiled[kind]
                if regex is not None and regex.match(subject):
                    return True
        return False

    def _compile(self, by_name: bool, only_directories: bool) -> re.Pattern[bytes] | None:
        kind = (by_name, only_directories)
        regexes = [each.regex for each in self._patterns if (each.by_name, each.only_directories) == kind]
        return re.compile(b"|".join(regexes), re.DOTALL) if regexes else None
