"""The store of a user's coding agents: one file in the user's data directory, not one in each project.

A rewind must not touch what it needs, and a project may be deleted, shared or published: so the store lies outside of
every project. `BACKTRAIL_AGENTS_STORE` names another one, by path or URL. Its key, if it has one, is in
`BACKTRAIL_AGENTS_KEY`, or in the file that `BACKTRAIL_AGENTS_KEY_FILE` names, or in `agents.key` beside the store: a
program that a desktop starts has no variables of a shell.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backtrail import owned_files
from backtrail.errors import InvalidInput

if TYPE_CHECKING:
    from backtrail.store import Store

STORE_VARIABLE = "BACKTRAIL_AGENTS_STORE"
KEY_VARIABLE = "BACKTRAIL_AGENTS_KEY"
KEY_FILE_VARIABLE = "BACKTRAIL_AGENTS_KEY_FILE"


def data_directory() -> Path:
    """The directory of the store, of the hook's log and of its locks; it need not exist yet."""
    base = os.environ.get("XDG_DATA_HOME", "")
    if not Path(base).is_absolute():
        home = Path("~").expanduser()
        if not home.is_absolute():
            raise InvalidInput("there is no home directory: set XDG_DATA_HOME to a directory for backtrail's data")
        base = str(home / ("Library/Application Support" if sys.platform == "darwin" else ".local/share"))
    return Path(base) / "backtrail"


def make_data_directory() -> Path:
    """The same directory, made with mode 0700 if it was missing."""
    directory = data_directory()
    owned_files.make_directories(directory)
    return directory


def store_target() -> str:
    """The path or URL of the store."""
    return os.environ.get(STORE_VARIABLE) or str(data_directory() / "agents.db")


def store_keys() -> list[str]:
    """The keys of the store, newest first; none for a store that is not encrypted."""
    if given := os.environ.get(KEY_VARIABLE):
        return [key for key in given.split(",") if key]
    named = os.environ.get(KEY_FILE_VARIABLE)
    path = Path(named) if named else data_directory() / "agents.key"
    try:
        text = owned_files.read_bytes(path).decode("ascii")
    except FileNotFoundError:
        if named:
            raise InvalidInput(f"{KEY_FILE_VARIABLE} names {path}, where there is no file: correct it") from None
        return []
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} holds no key: write it in hex or base64, as `openssl rand -hex 32` does") from None
    return text.split()


def open_user_store(*, create: bool = True) -> Store:
    """Open the store; without `create`, `NotFound` if nothing was captured yet."""
    from backtrail.store import open

    options: dict[str, Any] = {}
    target = store_target()
    if not os.environ.get(STORE_VARIABLE):
        if create:
            make_data_directory()
        options["create"] = create
    if keys := store_keys():
        options["key"] = keys
    return open(target, **options)
