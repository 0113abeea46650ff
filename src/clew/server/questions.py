"""What the API is asked, as typed records: they are checked when a request comes in, and the OpenAPI text is made of them."""

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


class AskNothing(Ask):
    """No parameters."""


class AskThreads(Ask):
    """A page of the list of threads. `search`: part of the name, in any case."""

    search: str = ""
    prefix: str = ""
    kind: str | None = None
    after: str | None = None
    limit: Limit = 100


class AskThread(Ask):
    """One thread."""

    thread: Name


class AskHistory(AskThread):
    """A page of the history, newest first, as rows of a graph. `start` counts from the newest."""

    start: Count = 0
    limit: Limit = 100
    trail: bool = False


class AskCheckpoint(AskThread):
    """One checkpoint. `at`: `@`, `@~2`, a step, a label, an id or the start of one."""

    at: str = "@"


class AskMessages(AskCheckpoint):
    """Messages `start` up to `stop`; without `start`, the last `limit`. `whole`: do not cut long texts."""

    start: Count | None = None
    limit: Limit = 50
    whole: bool = False


class AskState(AskCheckpoint):
    """One level of the state. `path` is a JSON list of keys and numbers."""

    path: str = "[]"
    start: Count = 0
    limit: Limit = 100
    whole: bool = False


class AskDiff(AskThread):
    """What changed from `a` to `b`."""

    a: str
    b: str = "@"
    limit: Limit = 200


class AskExport(AskCheckpoint):
    """A checkpoint as a file."""

    form: Literal["json", "messages", "markdown"] = "json"


class Facts(Ask, kw_only=True):
    """What may be said about a checkpoint when it is saved. `expect`: the id that must be the head, null for a thread that must
    not exist yet."""

    thread: Name
    label: str | None = None
    tags: list[str] = []
    custom: Json = {}
    expect: str | None | msgspec.UnsetType = msgspec.UNSET


class Save(Facts):
    """Save a whole state."""

    state: Json


class Append(Facts):
    """Add items at the end of the list `key`."""

    items: list[Any]
    key: Name = "messages"


class Update(Facts):
    """Set some top-level keys."""

    changes: Json


class ForkTo(AskCheckpoint):
    """Start a new thread at a checkpoint; `to` names it."""

    to: str | None = None


class Rewind(AskThread):
    """Move the head to a checkpoint. `dry_run`: only tell what that would leave behind."""

    at: str
    dry_run: bool = False


class Annotate(AskCheckpoint):
    """Change what is said about a checkpoint; what is not given stays."""

    label: str | None | msgspec.UnsetType = msgspec.UNSET
    tags: list[str] | msgspec.UnsetType = msgspec.UNSET
    custom: Json | msgspec.UnsetType = msgspec.UNSET


class Delete(AskThread):
    """Delete a thread, or one checkpoint of it."""

    at: str | None = None
