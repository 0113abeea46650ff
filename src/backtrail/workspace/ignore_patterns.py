"""Ignore patterns: one line of a `.gitignore` becomes a regular expression that never takes long.

A `*` may match in many ways, and an ordinary expression tries all of them in combination: a name of 200 letters and a
pattern of 20 stars would keep it busy for years. But the first way that fits is always good enough. What stands between
two stars of a name has a fixed length, and between two `**` a fixed number of directories; so the earliest place for it
leaves the most room for what follows. Atomic groups say just that: once found, a place is never looked for again. The
work for one pattern and one path is at most the product of their lengths.

What a line means is git's (dir.c and wildmatch.c in git's sources), its oddities included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

MAX_NAME, MAX_PATH = 255, 4096  # bytes: a pattern that needs more matches nothing

_ALL = set(range(1, 256))
_SPECIAL = re.compile(rb"[*?\[\\]")
_CLASSES: dict[bytes, Callable[[int], bool]] = {
    b"alnum": lambda c: chr(c).isalnum(),
    b"alpha": lambda c: chr(c).isalpha(),
    b"blank": lambda c: c in b" \t",
    b"cntrl": lambda c: c < 32 or c == 127,
    b"digit": lambda c: chr(c).isdigit(),
    b"graph": lambda c: 32 < c < 127,
    b"lower": lambda c: chr(c).islower(),
    b"print": lambda c: 32 <= c < 127,
    b"punct": lambda c: 32 < c < 127 and not chr(c).isalnum(),
    b"space": lambda c: c in b" \t\n\r",
    b"upper": lambda c: chr(c).isupper(),
    b"xdigit": lambda c: c in b"0123456789abcdefABCDEF",
}

# The parts of a pattern: an expression for one byte, or one of these.
_STAR = b"*"  # anything but a slash
_DIRECTORIES = b"**/"  # any number of directories
_ANYTHING = b"**"
_SKIPPED = {b"": b"", _DIRECTORIES: b"(?:[^/]*/)*?", _ANYTHING: b".*?"}


class Pattern(NamedTuple):
    """One line of an ignore file."""

    regex: bytes
    includes_again: bool  #: the line began with !
    only_directories: bool
    by_name: bool  #: compared with the last name of a path, and not with the path from the ignore file's directory


def parse(line: bytes) -> Pattern | None:
    """The pattern in a line (without its end); None if it is empty, a comment, or can never match."""
    text = _without_trailing_spaces(line.partition(b"\0")[0])
    if not text or text.startswith(b"#"):
        return None
    includes_again = text.startswith(b"!")
    text = text.removeprefix(b"!")
    only_directories = text.endswith(b"/")
    text = text.removesuffix(b"/")
    by_name = b"/" not in text
    # git compares all that precedes the first special character as it is, and the rest is a pattern of its own.
    text = text.removeprefix(b"/")
    special = _SPECIAL.search(text)
    literal = b"" if by_name else text if special is None else text[: special.start()]
    try:
        parts = list(_parts(text[len(literal) :]))
    except ValueError:
        return None
    if len(literal) + len(parts) - parts.count(_STAR) > (MAX_NAME if by_name else MAX_PATH):
        return None
    if by_name:
        parts = [_STAR if part == _ANYTHING else part for part in parts]
    return Pattern(re.escape(literal) + _expression(parts) + rb"\Z", includes_again, only_directories, by_name)


def _without_trailing_spaces(line: bytes) -> bytes:
    end = len(line)
    while end and line[end - 1] == 0x20:
        end -= 1
    backslashes = len(line[:end]) - len(line[:end].rstrip(b"\\"))
    return line[: end + 1] if backslashes % 2 and end < len(line) else line[:end]  # an escaped space stays


def _parts(text: bytes) -> Iterator[bytes]:
    """The parts of a pattern; `ValueError` if it can never match."""
    at = 0
    while at < len(text):
        char = text[at : at + 1]
        if char == b"*":
            end = at
            while text[end : end + 1] == b"*":
                end += 1
            begins = at == 0 or text[at - 1 : at] == b"/"
            ends = end == len(text) or text[end : end + 1] == b"/" or text[end : end + 2] == b"\\/"
            if end - at == 1 or not (begins and ends):
                yield _STAR
            elif text[end : end + 1] == b"/":
                yield _DIRECTORIES
                end += 1
            else:
                yield _ANYTHING
            at = end
        elif char == b"?":
            yield b"[^/]"
            at += 1
        elif char == b"[":
            expression, at = _set(text, at + 1)
            yield expression
        else:
            at += char == b"\\"
            if at == len(text):
                raise ValueError("a backslash at the end")
            yield re.escape(text[at : at + 1])
            at += 1


def _set(text: bytes, at: int) -> tuple[bytes, int]:
    """The expression for a set of characters, which begins after its bracket, and where it ends."""
    negated = text[at : at + 1] in (b"!", b"^")
    at += negated
    found: set[int] = set()
    before = 0  # the character that a range may begin with
    first = True
    while first or text[at : at + 1] != b"]":
        first = False
        char = _byte(text, at)
        if char == 0x5C:  # a backslash
            at += 1
            char = _byte(text, at)
            found.add(char)
        elif char == 0x2D and before and at + 1 < len(text) and text[at + 1] != 0x5D:  # a range
            at += 1
            if _byte(text, at) == 0x5C:
                at += 1
            found.update(range(before, _byte(text, at) + 1))
            char = 0
        elif text[at : at + 2] == b"[:":
            end = text.find(b"]", at + 2)
            if end < 0:
                raise ValueError("a class without an end")
            if end > at + 2 and text[end - 1] == 0x3A:
                belongs = _CLASSES.get(text[at + 2 : end - 1])
                if belongs is None:
                    raise ValueError("an unknown class")
                found.update(filter(belongs, range(128)))
                at, char = end, 0
            else:
                found.add(char)
        else:
            found.add(char)
        before = char
        at += 1
    if negated:
        found = _ALL - found
    found.discard(0x2F)
    if not found:
        raise ValueError("nothing is in the set")
    return _one_of(frozenset(found)), at + 1


@lru_cache(256)
def _one_of(found: frozenset[int]) -> bytes:
    """The expression for one of these characters, as ranges: a list would be a thousand bytes for each `[!a]`."""
    ranges: list[bytes] = []
    for first in sorted(char for char in found if char - 1 not in found):
        last = first
        while last + 1 in found:
            last += 1
        ranges.append(b"\\x%02x-\\x%02x" % (first, last) if last > first else b"\\x%02x" % first)
    return b"[" + b"".join(ranges) + b"]"


def _byte(text: bytes, at: int) -> int:
    if at >= len(text):
        raise ValueError("a set without an end")
    return text[at]


def _expression(parts: list[bytes]) -> bytes:
    """The regular expression of a whole pattern. Each star is followed by the earliest place of what comes up to the
    next star, and each ** by that of what comes up to the next **."""
    runs: list[tuple[bytes, list[bytes]]] = [(b"", [])]  # what comes before a run, and its parts
    for part in parts:
        if part in (_DIRECTORIES, _ANYTHING):
            runs.append((part, []))
        else:
            runs[-1][1].append(part)
    result: list[bytes] = []
    for number, (before, run) in enumerate(runs):
        last = number == len(runs) - 1
        body = _SKIPPED[before] + _run(run, last=last)
        result.append(body if last or not before else b"(?>%b)" % body)
    return b"".join(result)


def _run(parts: list[bytes], *, last: bool) -> bytes:
    chunks: list[list[bytes]] = [[]]
    for part in parts:
        if part == _STAR:
            chunks.append([])
        else:
            chunks[-1].append(part)
    first, *others = map(b"".join, chunks)
    result = [first]
    for number, chunk in enumerate(others, 1):
        final = last and number == len(others)
        result.append(b"[^/]*" + chunk if final else b"(?>[^/]*?%b)" % chunk)
    return b"".join(result)
