"""Projects for tests: a directory, a store beside it, and the workspace that joins the two."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import backtrail
from backtrail.engines.memory import MemoryEngine
from fix_stores import APIS, EVERY_ENGINE, Opener, open_stores

Contents = dict[bytes, tuple[str, int, bytes]]


class Project:
    """A directory, its workspace `ws`, and the store."""

    def __init__(self, base: Path, open_store: Callable[[], Any]) -> None:
        self.base = base
        self.root = base / "root"
        self.root.mkdir()
        self.cache = base / "cache"
        self._open_store = open_store
        self._opened: list[Any] = []
        self.store = self._open()
        self.ws = self.workspace()

    def workspace(self, **options: Any) -> Any:
        """Another handle on the same workspace, as another process would have one."""
        options.setdefault("cache", self.cache)
        return self.store.workspace(options.pop("root", self.root), **options)

    def reopen(self) -> Any:
        """Another handle, over a store that was opened again."""
        self.store = self._open()
        self.ws = self.workspace()
        return self.ws

    def _open(self) -> Any:
        store = self._open_store()
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()

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
        return sorted(os.fsdecode(path) for path in contents_of(self.root))

    def contents(self) -> Contents:
        return contents_of(self.root)


def contents_of(root: Path) -> Contents:
    """Everything under a directory by path: kind, mode, and content or link target."""
    found: Contents = {}
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
def shared_dir() -> Iterator[Path]:
    """A directory that every user can write to."""
    with tempfile.TemporaryDirectory(prefix="backtrail-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.fixture(params=["memory", "sqlite", "jsonl"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    """A project on each engine that needs no server."""
    target = {"memory": MemoryEngine(), "jsonl": f"jsonl:{tmp_path / 'log'}", "sqlite": tmp_path / "store.db"}
    made = Project(tmp_path, lambda: backtrail.open(target[request.param]))
    yield made
    made.close()


@pytest.fixture
def sqlite_project(tmp_path: Path) -> Iterator[Project]:
    """A project on SQLite only, for tests that do not depend on the engine."""
    made = Project(tmp_path, lambda: backtrail.open(tmp_path / "store.db"))
    yield made
    made.close()


@pytest.fixture(params=[f"{engine}-{api}" for engine in EVERY_ENGINE for api in APIS])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens the same store again and again, on every engine, through the sync and the async facade."""
    engine, _, api = request.param.partition("-")
    yield from open_stores(engine, api, tmp_path, request)
