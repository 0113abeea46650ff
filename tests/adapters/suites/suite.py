"""What a suite is, and the stores that it runs on."""

from __future__ import annotations

from dataclasses import dataclass, field

APIS = ("blocking", "async")
EVERY_SYNC = tuple(f"{engine}-blocking" for engine in ("memory", "sqlite", "jsonl", "redis", "postgres"))
# The suites construct a store before their event loop runs, which an AsyncStore over a server's client does not allow.
ASYNC = tuple(f"{engine}-async" for engine in ("memory", "sqlite", "jsonl"))


@dataclass(frozen=True)
class Suite:
    """Tests of one framework."""

    name: str
    plugin: str  #: the module beside this one that puts backtrail's classes in
    package: str  #: whose source distribution has the tests, unless they are only in its repository
    tests: tuple[str, ...]  #: files, relative to it
    repository: str = ""
    commit: str = ""  #: of the repository
    options: tuple[str, ...] = ()  #: more arguments for pytest
    cannot_apply: dict[str, str] = field(default_factory=dict)  #: node id -> why it is left out
    stores: tuple[str, ...] = EVERY_SYNC + ASYNC
