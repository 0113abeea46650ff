"""A desk: a directory, a store beside it, and a workspace that joins the two."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import backtrail
from fix_stores import APIS, EVERY_ENGINE, Opener, open_stores

Picture = dict[bytes, tuple[str, int, bytes]]


class Desk:
    """What a test needs of a directory and its workspace."""

    def __init__(self, base: Path, target: Callable[[], Any]) -> None:
        self.base = base
        self.root = base / "root"
        self.root.mkdir()
        self.cache = base / "cache"
        self._target = target
        self.store = backtrail.open(target())
        self.ws = self.workspace()

    def workspace(self, **options: Any) -> Any:
        """Another handle on the same workspace, as another process would have it."""
        options.setdefault("cache", self.cache)
        return self.store.workspace(options.pop("root", self.root), **options)

    def reopen(self) -> Any:
        """Another handle over a store that was opened anew."""
        self.store = backtrail.open(self._target())
        self.ws = self.workspace()
        return self.ws

    def write(self, path: str, content: str | bytes = b"", mode: int | None = None) -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        if mode is not None:
            target.chmod(mode)
        return target

    def read(self, path: str) -> str:
        return (self.root / path).read_text()

    def names(self) -> list[str]:
        """All paths under the root, sorted."""
        return sorted(os.fsdecode(path) for path in picture(self.root))

    def picture(self) -> Picture:
        return picture(self.root)


def picture(root: Path) -> Picture:
    """Everything under a directory: its kind, its mode, and its content or target."""
    found: Picture = {}
    base = os.fsencode(root)
    for folder, folders, files in os.walk(base):
        for name in folders + files:
            path = os.path.join(folder, name)
            facts = os.lstat(path)
            mode = stat.S_IMODE(facts.st_mode)
            rel = os.path.relpath(path, base)
            if stat.S_ISLNK(facts.st_mode):
                found[rel] = ("link", 0, os.readlink(path))
            elif stat.S_ISDIR(facts.st_mode):
                found[rel] = ("dir", mode, b"")
            elif stat.S_ISREG(facts.st_mode):
                found[rel] = ("file", mode, Path(os.fsdecode(path)).read_bytes())
            else:
                found[rel] = ("other", mode, b"")
    return found


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that any user can reach and write to."""
    with tempfile.TemporaryDirectory(prefix="backtrail-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture(params=["memory", "sqlite", "jsonl"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Desk:
    """A desk on each engine that needs no server."""
    if request.param == "memory":
        from backtrail.engines.memory import MemoryEngine

        engine = MemoryEngine()
        return Desk(tmp_path, lambda: engine)
    if request.param == "jsonl":
        return Desk(tmp_path, lambda: f"jsonl:{tmp_path / 'log'}")
    return Desk(tmp_path, lambda: tmp_path / "store.db")


@pytest.fixture
def lone(tmp_path: Path) -> Desk:
    """A desk on SQLite only, for what does not depend on the engine."""
    return Desk(tmp_path, lambda: tmp_path / "store.db")


@pytest.fixture(params=[f"{engine}-{api}" for engine in EVERY_ENGINE for api in APIS])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Stores on every engine there is, over both APIs: a workspace must not notice."""
    engine, _, api = request.param.partition("-")
    yield from open_stores(engine, api, tmp_path, request)
