"""Finds the files of an import, and reads their JSON.

A damaged line is left out and reported by its number; the rest of the file is imported. A torn last line is the usual
end of a file whose writer was killed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from backtrail.errors import InvalidInput, UnsafePath
from backtrail.importers.model import BadFile, FileContent
from backtrail.owned_files import open_regular

SUFFIXES = (".json", ".jsonl")
META_SUFFIX = ".meta.json"  # belongs to the .jsonl beside it
MAX_BYTES = 1 << 30  # of one file, which is read into memory
_MAX_NOTES = 5  # damaged lines reported one by one


def find_files(target: Any) -> list[tuple[Path, str]]:
    """The files in `target`, each with a default id. `target` is a file, a directory (searched recursively), or a list
    of them. A path that is named may be a link; links inside a directory are found, and refused when they are read,
    because whoever made the directory may have pointed them anywhere."""
    targets = list(target) if isinstance(target, list | tuple) else [target]
    found: list[tuple[Path, str]] = []
    for one in targets:
        if not isinstance(one, str | os.PathLike):
            raise InvalidInput(f"import_() takes paths, not {type(one).__qualname__}")
        path = Path(one)
        if path.is_dir():
            found += [(file, file.relative_to(path).with_suffix("").as_posix()) for file in sorted(_below(path))]
        elif path.is_file():
            found.append((path.resolve(), path.stem))
        else:
            raise InvalidInput(f"there is no file or directory {str(path)!r} to import")
    return found


def _below(directory: Path) -> Iterator[Path]:
    """The files below a directory, in directories that are no links; also directories that cannot be listed, which fail
    when they are read."""
    unreadable: list[Path] = []
    for folder, _, names in os.walk(directory, onerror=lambda error: unreadable.append(Path(error.filename))):
        for name in names:
            file = Path(folder, name)
            if file.suffix in SUFFIXES and not _is_meta(file):
                yield file
    yield from unreadable


def _is_meta(path: Path) -> bool:
    return path.name.endswith(META_SUFFIX) and path.with_name(path.name.removesuffix(META_SUFFIX) + ".jsonl").exists()


def read_file(path: Path, name: str) -> FileContent:
    """The content of a file; `BadFile` if it is not JSON."""
    text = read_text(path)
    if not text.strip():
        raise BadFile("it is empty")
    if path.suffix == ".jsonl":
        return _read_lines(path, name, text)
    try:
        return FileContent(path, name, value=json.loads(text))
    except (ValueError, RecursionError) as error:
        if "\n" in text.strip():
            lines = _read_lines(path, name, text)
            if not lines.notes:
                return lines  # JSON lines in a file named .json
        raise BadFile(f"it is not JSON: {error}") from error


def read_text(path: Path) -> str:
    """The text of a regular file, which is not a link."""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MAX_BYTES:
                raise BadFile(f"it has {size:,} bytes, and at most {MAX_BYTES:,} are read at once: split it")
            return file.read(size).decode("utf-8-sig")
    except UnsafePath as error:
        raise BadFile("it is a link or not a regular file, which is not followed: name the file itself") from error
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadFile(f"it cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadFile(f"it is not UTF-8 text (byte {error.start})") from error


def _read_lines(path: Path, name: str, text: str) -> FileContent:
    lines: list[tuple[int, dict[str, Any]]] = []
    bad: list[str] = []
    # Only \n ends a line: a JSON string may hold the other characters that str.splitlines() takes for one.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            bad.append(f"line {number} is damaged and was left out: {error}")
            continue
        if type(value) is dict:
            lines.append((number, value))
        else:
            bad.append(f"line {number} is no JSON object and was left out")
    if not lines:
        raise BadFile(f"none of its lines is a JSON object ({bad[0]})" if bad else "it is empty")
    more = [f"and {len(bad) - _MAX_NOTES} more such lines"] if len(bad) > _MAX_NOTES else []
    return FileContent(path, name, lines=lines, notes=(*bad[:_MAX_NOTES], *more))
