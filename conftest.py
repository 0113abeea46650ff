"""The examples in README.md and docs/ are run as tests, each page from top to bottom in a directory of its own."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser


def _enter(namespace: dict[str, Any]) -> None:
    folder = TemporaryDirectory()
    namespace["_before"] = (folder, Path.cwd())
    os.chdir(folder.name)


def _leave(namespace: dict[str, Any]) -> None:
    folder, before = namespace["_before"]
    os.chdir(before)
    folder.cleanup()


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "docs/*.md"],
    excludes=["docs/adapters.md"],  # its programs need the frameworks: tests/adapters runs them where those are
    setup=_enter,
    teardown=_leave,
).pytest()
