"""The suites: which tests of a framework run on backtrail's stores, and which cannot apply."""

from __future__ import annotations

from dataclasses import dataclass, field

APIS = ("blocking", "async")
_EVERY_SYNC = tuple(f"{engine}-blocking" for engine in ("memory", "sqlite", "jsonl", "redis", "postgres"))
# The suites construct a store before their event loop runs, which an AsyncStore over a server's client does not allow.
_ASYNC = tuple(f"{engine}-async" for engine in ("memory", "sqlite", "jsonl"))


@dataclass(frozen=True)
class Suite:
    """Tests of one framework."""

    name: str
    package: str  #: whose source distribution has the tests
    tests: tuple[str, ...]  #: files, relative to it
    options: tuple[str, ...] = ()  #: more arguments for pytest
    cannot_apply: dict[str, str] = field(default_factory=dict)  #: node id -> why it is left out
    stores: tuple[str, ...] = _EVERY_SYNC + _ASYNC


SUITES = [
    Suite(
        name="claude",
        package="claude-agent-sdk",
        tests=(
            "tests/test_session_helpers_store.py",
            "tests/test_session_import.py",
            "tests/test_session_resume.py",
            "tests/test_session_store_anyio.py",
            "tests/test_session_store_conformance.py",
            "tests/test_session_summary.py",
            "tests/test_transcript_mirror.py",
        ),
    ),
]
