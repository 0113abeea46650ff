"""The new lines of an agent's transcript, at the cost of what is new.

A transcript is a file of lines that the agent appends to. `Position` says how far it was read, and has digests of what
stood at the beginning and just before the end of that: if the file is shorter now, or one of the two differs, the agent
has rewritten it, or it is another file, and all of it is read again. A last line without its end is left for later.

A line is kept as the JSON object that it is; one that is none is kept as text, or bytes, in an object of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import msgspec

from backtrail.errors import FilesError, UnsafePath
from backtrail.owned_files import open_regular

UNPARSED = "unparsed"  #: the key of a line that is not a JSON object
MAX_NEW = 256 * 2**20  #: bytes that one read takes; the rest is for the next one
MAX_STEP = 64 * 2**20  #: bytes of one step
MAX_UNPACKED = 4 * 2**30  #: bytes that a compressed transcript may unpack to
_BEGINNING, _FIRST_LINES = 4 * 2**20, 50  # in which a transcript tells whose it is
_WINDOW = 4096  # bytes that are compared, at the beginning and before the end of what was read


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """How far a transcript was read."""

    path: str
    offset: int = 0  #: bytes; of a compressed transcript, those that it holds
    first: str = ""  #: digest of the first bytes
    last: str = ""  #: digest of the last bytes before `offset`


class NewLines(msgspec.Struct, frozen=True):
    """What a read found."""

    lines: list[dict[str, Any]]
    position: Position
    rewritten: bool = False  #: `lines` are all that the file has: what was read before is not its beginning any more
    rest: int = 0  #: bytes after `position`: an unfinished line, or more than one read takes


def read_new(path: str, known: Position | None, *, parsed: bool = True) -> NewLines | None:
    """The lines of the transcript at `path` after the known position; None if there is no such file. Without `parsed`,
    every line is kept as text."""
    with _open(path) as file:
        if file is None:
            return None
        offset = known.offset if known is not None and _unchanged(file, known) else 0
        file.seek(offset)
        data = file.read(MAX_NEW + 1)
        end = data.rfind(b"\n", 0, MAX_NEW) + 1
        if not end and len(data) > MAX_NEW:
            end = MAX_NEW  # one line longer than everything that is read at once
        keep = parse_line if parsed else unparsed
        lines = [keep(line) for line in data[:end].split(b"\n") if line.strip()]
        stop = offset + end
        rewritten = known is not None and known.offset > 0 and not offset
        return NewLines(lines, _position_at(file, path, stop), rewritten, len(data) - end)


def parse_line(line: bytes) -> dict[str, Any]:
    """One line as it is kept."""
    for decode in (msgspec.json.decode, json.loads):  # the second knows halves of surrogate pairs
        try:
            value = decode(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value
        break
    return unparsed(line)


def unparsed(line: bytes) -> dict[str, Any]:
    """A line that is not a JSON object, as it is kept."""
    try:
        return {UNPARSED: line.decode()}
    except UnicodeDecodeError:
        return {UNPARSED: line}


@contextlib.contextmanager
def _open(path: str) -> Iterator[IO[bytes] | None]:
    """The transcript, or the compressed one that the agent has put in its place; None if there is neither."""
    for name in (path, f"{path}.zst"):
        try:
            handle = open_regular(Path(name))
        except (FileNotFoundError, NotADirectoryError, UnsafePath):
            continue  # a transcript is a plain file of the agent's
        with os.fdopen(handle, "rb") as file:
            if not name.endswith(".zst"):
                yield file
                return
            with _decompressed(file, name) as plain:
                yield plain
            return
    yield None


def _decompressed(file: IO[bytes], name: str) -> IO[bytes]:
    """A compressed transcript, unpacked into a file that has no name."""
    import tempfile

    import zstandard

    plain = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
    with zstandard.ZstdDecompressor().stream_reader(file) as reader:
        while chunk := reader.read(2**20):
            plain.write(chunk)
            if plain.tell() > MAX_UNPACKED:
                plain.close()
                raise FilesError(name, f"the transcript unpacks to more than {MAX_UNPACKED:,} bytes")
    return plain


def _unchanged(file: IO[bytes], known: Position) -> bool:
    """True if the file begins with what was read of it."""
    file.seek(0, os.SEEK_END)
    if file.tell() < known.offset:
        return False
    length = min(_WINDOW, known.offset)
    file.seek(0)
    if _digest(file.read(length)) != known.first:
        return False
    file.seek(known.offset - length)
    return _digest(file.read(length)) == known.last


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def read_steps(path: str, known: Position | None, begins: Callable[[dict[str, Any]], bool]) -> Iterator[NewLines]:
    """The same lines as `read_new` gives, in steps, each with the position at its end: a step begins at every line for
    which `begins` is true, and where one would be too long. No more than one step is in memory. Nothing if there is no
    such file."""
    with _open(path) as file:
        if file is None:
            return
        start = known.offset if known is not None and _unchanged(file, known) else 0
        rewritten = known is not None and known.offset > 0 and not start
        lines: list[dict[str, Any]] = []
        begun = end = start
        file.seek(start)
        while (raw := file.readline(MAX_NEW)) and (raw.endswith(b"\n") or len(raw) == MAX_NEW):
            if raw.strip():
                line = parse_line(raw.rstrip(b"\n"))
                starts = begins(line)
                if lines and (starts or end - begun + len(raw) > MAX_STEP):
                    yield NewLines(lines, _position_at(file, path, end), rewritten)
                    file.seek(end + len(raw))
                    lines, begun = [], end
                lines.append(line)
            end += len(raw)
        if lines:
            yield NewLines(lines, _position_at(file, path, end), rewritten, len(raw))


def first_lines(path: str) -> list[dict[str, Any]]:
    """The lines at the beginning of a transcript, which tell whose it is."""
    with _open(path) as file:
        if file is None:
            return []
        file.seek(0)
        data = file.read(_BEGINNING)
    return [parse_line(line) for line in data.split(b"\n")[:_FIRST_LINES] if line.strip()]


def _position_at(file: IO[bytes], path: str, stop: int) -> Position:
    length = min(_WINDOW, stop)
    file.seek(0)
    first = _digest(file.read(length))
    file.seek(stop - length)
    return Position(path=path, offset=stop, first=first, last=_digest(file.read(length)))
