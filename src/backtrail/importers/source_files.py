"""Finds the files of an import, and reads their JSON.

A damaged line is left out and reported by its number; the rest of the file is imported. A torn last line is the usual
end of a file whose writer was killed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from backtrail.errors import InvalidInput
from backtrail.importers.model import BadFile, FileContent

SUFFIXES = (".json", ".jsonl")
META_SUFFIX = ".meta.json"  # belongs to the .jsonl beside it
_MAX_NOTES = 5  # damaged lines reported one by one


def find_files(target: Any) -> list[tuple[Path, str]]:
    """The files in `target`, each with a default id. `target` is a file, a directory (searched recursively), or a list
    of them."""
    targets = list(target) if isinstance(target, list | tuple) else [target]
    found: list[tuple[Path, str]] = []
    for one in targets:
        if not isinstance(one, str | os.PathLike):
            raise InvalidInput(f"import_() takes paths, not {type(one).__qualname__}")
        path = Path(one)
        if path.is_dir():
            below = (file for file in sorted(path.rglob("*")) if file.suffix in SUFFIXES and file.is_file())
            found += [(file, file.relative_to(path).with_suffix("").as_posix()) for file in below if not _is_meta(file)]
        elif path.is_file():
            found.append((path, path.stem))
        else:
            raise InvalidInput(f"there is no file or directory {str(path)!r} to import")
    return found


def _is_meta(path: Path) -> bool:
    return path.name.endswith(META_SUFFIX) and path.with_name(path.name.removesuffix(META_SUFFIX) + ".jsonl").exists()


def read_file(path: Path, name: str) -> FileContent:
    """The content of a file; `BadFile` if it is not JSON."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise BadFile(f"it cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadFile(f"it is not UTF-8 text (byte {error.start})") from error
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
