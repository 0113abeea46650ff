"""The examples in README.md, CONTRIBUTING.md and docs/ are run as tests, each page from top to bottom, in a directory
of its own."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser


def _enter(namespace: dict[str, Any]) -> None:
    folder = tempfile.TemporaryDirectory()
    page, temporary = Path(folder.name, "page"), Path(folder.name, "temporary")
    page.mkdir()
    temporary.mkdir()
    namespace["_before"] = (folder, Path.cwd(), tempfile.tempdir)
    os.chdir(page)
    tempfile.tempdir = str(temporary)  # a page makes directories that it need not clear away


def _leave(namespace: dict[str, Any]) -> None:
    folder, before, tempfile.tempdir = namespace["_before"]
    os.chdir(before)
    folder.cleanup()


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "CONTRIBUTING.md", "docs/*.md"],
    excludes=[
        "docs/adapters.md",  # its programs need the frameworks: tests/adapters runs them where those are
        "docs/observability.md",  # sets what a process can set only once: tests/test_telemetry.py runs it in its own
    ],
    setup=_enter,
    teardown=_leave,
).pytest()
