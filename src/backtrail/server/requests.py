"""What the API is asked, as typed records: a request is checked against them, and the OpenAPI text is made of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Name = Annotated[str, Meta(min_length=1, max_length=512)]
Limit = Annotated[int, Meta(ge=1, le=1000)]
Count = Annotated[int, Meta(ge=0)]
Json = dict[str, Any]


class Ask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of one operation."""


class AskNothing(Ask, frozen=True, kw_only=True):
    """No parameters."""


class AskThreads(Ask, frozen=True, kw_only=True):
    """A page of the list of threads. `search`: part of the name, in any case."""

    search: str = ""
    prefix: str = ""
    kind: str | None = None
    after: str | None = None
    limit: Limit = 100


class AskThread(Ask, frozen=True, kw_only=True):
    """One thread."""

    thread: Name


class AskHistory(AskThread, frozen=True, kw_only=True):
    """A page of the history, newest first, as rows of a graph. `start` counts from the newest."""

    start: Count = 0
    limit: Limit = 100
    trail: bool = False


class AskCheckpoint(AskThread, frozen=True, kw_only=True):
    """One checkpoint. `at`: `@`, `@~2`, a step, a label, an id or the start of one."""

    at: str = "@"


class AskMessages(AskCheckpoint, frozen=True, kw_only=True):
    """Messages `start` up to `stop`; without `start`, the last `limit`. `whole`: do not cut long texts."""

    start: Count | None = None
    limit: Limit = 50
    whole: bool = False


class AskState(AskCheckpoint, frozen=True, kw_only=True):
    """One level of the state. `path` is a JSON list of keys and numbers."""

    path: str = "[]"
    start: Count = 0
    limit: Limit = 100
    whole: bool = False


class AskDiff(AskThread, frozen=True, kw_only=True):
    """What changed from `a` to `b`."""

    a: str
    b: str = "@"
    limit: Limit = 200


class AskExport(AskCheckpoint, frozen=True, kw_only=True):
    """A checkpoint as a file."""

    form: Literal["jsonl", "markdown", "json"] = "jsonl"


class Facts(Ask, frozen=True, kw_only=True):
    """What may be said about a checkpoint when it is saved. `expect`: the id that must be the head, null for a thread
    that must not exist yet."""

    thread: Name
    label: str | None = None
    tags: list[str] = []
    custom: Json = {}
    expect: str | msgspec.UnsetType | None = msgspec.UNSET


class Save(Facts, frozen=True, kw_only=True):
    """Save a whole state."""

    state: Json


class Append(Facts, frozen=True, kw_only=True):
    """Add items at the end of the list `key`."""

    items: list[Any]
    key: Name = "messages"


class Update(Facts, frozen=True, kw_only=True):
    """Set some top-level keys."""

    changes: Json


class ForkTo(AskCheckpoint, frozen=True, kw_only=True):
    """Start a new thread at a checkpoint; `to` names it."""

    to: str | None = None


class AskFiles(AskCheckpoint, frozen=True, kw_only=True):
    """The files at a checkpoint, compared with those at `base`: by default at the last one before that has any."""

    base: str | None = None
    limit: Limit = 200


class Rewind(AskThread, frozen=True, kw_only=True):
    """Move the head to a checkpoint. `files`: the directory goes along, or nothing moves. `dry_run`: only tell what
    would be left behind, and which files would change."""

    at: str
    files: bool = False
    dry_run: bool = False


class Undo(AskThread, frozen=True, kw_only=True):
    """Take back the last move of the head; `files`: the last restore of the directory as well."""

    files: bool = False


class Annotate(AskCheckpoint, frozen=True, kw_only=True):
    """Change what is said about a checkpoint; what is not given stays."""

    label: str | msgspec.UnsetType | None = msgspec.UNSET
    tags: list[str] | msgspec.UnsetType = msgspec.UNSET
    custom: Json | msgspec.UnsetType = msgspec.UNSET


class Delete(AskThread, frozen=True, kw_only=True):
    """Delete a thread, or one checkpoint of it."""

    at: str | None = None
