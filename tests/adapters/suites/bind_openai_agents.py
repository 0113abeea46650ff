"""A pytest plugin: the OpenAI Agents SDK's own tests get backtrail's session for the SDK's sessions.

`SQLiteSession(id, path)` becomes a session on the store of that path, and the in-memory session of the SDK's tests one
on a store of its own.
"""

from __future__ import annotations

import ast
import sys
import types
from pathlib import Path
from typing import Any

import agents
import agents.extensions.memory.encrypt_session  # before the SDK's class is replaced, for which it has a special case
import agents.memory
import agents.memory.sqlite_session
import bound_stores
from bound_stores import finish

from backtrail.adapters.openai_agents import BacktrailSession

_stores: dict[str, Any] = {}  # by path, of the running test


class BoundSQLiteSession(BacktrailSession):
    """backtrail's session with the constructor of the SDK's."""

    def __init__(
        self, session_id: str, db_path: str | Path = ":memory:", *_tables: str, session_settings: Any = None
    ) -> None:
        path = str(db_path)
        if path == ":memory:":
            store = bound_stores.new_store()
        elif path in _stores:
            store = _stores[path]
        else:
            store = _stores[path] = bound_stores.new_store()
        super().__init__(store, session_id, session_settings=session_settings)

    def close(self) -> None:
        """The store belongs to the test."""


class BoundListSession(BacktrailSession):
    """backtrail's session with the constructor and the attributes of the list that the SDK's tests use."""

    _get_compaction_snapshot = _atomic_replace_items = None  # the list leaves these ways of compaction out

    def __init__(self, session_id: str = "test", history: list[Any] | None = None) -> None:
        super().__init__(bound_stores.new_store(), session_id)
        self._ignore_ids_for_matching = False
        if history:
            finish(self.session.extend(history))

    @property
    def _items(self) -> list[Any]:
        return finish(self.store.session(self.session_id).messages())

    saved_items = _items


def pytest_configure() -> None:
    for module in (agents, agents.memory, agents.memory.sqlite_session):
        module.SQLiteSession = BoundSQLiteSession
    _bind_list_session(Path("tests/utils/simple_session.py"))


def _bind_list_session(path: Path) -> None:
    """Load the module with the tests' in-memory session, ours in its place, so that those derived from it are too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [one for one in tree.body if not (isinstance(one, ast.ClassDef) and one.name == "SimpleListSession")]
    module = types.ModuleType("tests.utils.simple_session")
    module.SimpleListSession = BoundListSession
    exec(compile(tree, path, "exec"), vars(module))
    sys.modules[module.__name__] = module


def pytest_runtest_teardown() -> None:
    _stores.clear()
    bound_stores.end_test()
