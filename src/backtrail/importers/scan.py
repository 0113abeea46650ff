"""Finding and reading the files of an import: which there are, and what JSON they hold.

A line that is damaged costs that line, is named by its number, and nothing more; a torn last line is the usual end of a
file whose writer was killed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from backtrail.errors import InvalidInput
from backtrail.importers.model import BadFile, Content

SUFFIXES = (".json", ".jsonl")
META = ".meta.json"  # belongs to the .jsonl beside it
_SHOWN = 5  # damaged lines that are named one by one


def scan(target: Any) -> list[tuple[Path, str]]:
    """The files to import, each with a name for what it holds: a file, a directory with all below it, or several."""
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
    return path.name.endswith(META) and path.with_name(path.name.removesuffix(META) + ".jsonl").exists()


def read(path: Path, name: str) -> Content:
    """What a file holds; `BadFile` if that is no JSON."""
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
        return Content(path, name, value=json.loads(text))
    except (ValueError, RecursionError) as error:
        if "\n" in text.strip():
            lines = _read_lines(path, name, text)
            if not lines.notes:
                return lines  # lines of JSON under the wrong name
        raise BadFile(f"it is not JSON: {error}") from error


def _read_lines(path: Path, name: str, text: str) -> Content:
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
    more = [f"and {len(bad) - _SHOWN} more such lines"] if len(bad) > _SHOWN else []
    return Content(path, name, lines=lines, notes=(*bad[:_SHOWN], *more))
