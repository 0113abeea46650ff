"""The parameters of each operation, as types: requests are validated by them, and the OpenAPI document shows them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from backtrail.model import Kind

Name = Annotated[str, Meta(min_length=1, max_length=512)]
Limit = Annotated[int, Meta(ge=1, le=1000)]
Count = Annotated[int, Meta(ge=0)]
Json = dict[str, Any]


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parameters of one operation."""


class EmptyRequest(ApiRequest, frozen=True, kw_only=True):
    """No parameters."""


class OpenRequest(ApiRequest, frozen=True, kw_only=True):
    """The code in a link that opens the page."""

    code: Annotated[str, Meta(max_length=100)]


class ThreadsRequest(ApiRequest, frozen=True, kw_only=True):
    """A page of the list of threads. `search`: part of the name, ignoring case. `since`, `until`: dates of the last
    change. `label`, `tag`: of the head. `failed`: the last message is a tool that failed. `damaged`: cannot be read
    whole. `waiting`: runs with a question. `describe`: with a title and the last message."""

    search: str = ""
    prefix: str = ""
    kind: Kind | None = None
    since: str | None = None
    until: str | None = None
    label: str = ""
    tag: str = ""
    failed: bool = False
    damaged: bool = False
    waiting: bool = False
    describe: bool = False
    after: str | None = None
    limit: Limit = 100


class FindRequest(ApiRequest, frozen=True, kw_only=True):
    """Messages at the heads, of one thread or of all whose names begin with `prefix` and contain `search`: with a text,
    ignoring case, a role, a tool, a result that failed. Or checkpoints with a label or a tag, or of some dates."""

    thread: Name | None = None
    prefix: str = ""
    search: str = ""
    kind: Kind | None = None
    text: str = ""
    role: str = ""
    tool: str = ""
    failed: bool = False
    label: str = ""
    tag: str = ""
    since: str | None = None
    until: str | None = None
    limit: Limit = 500


class HealthRequest(ApiRequest, frozen=True, kw_only=True):
    """`survey`: also how much could be freed, for which all of the store is read."""

    survey: bool = False


class ThreadRequest(ApiRequest, frozen=True, kw_only=True):
    """One thread."""

    thread: Name


class HistoryRequest(ThreadRequest, frozen=True, kw_only=True):
    """A page of the history, newest first, as rows of a graph. `start` counts from the newest. `at`: begin so that this
    checkpoint is in the middle of the page, instead."""

    start: Count = 0
    at: str | None = None
    limit: Limit = 100
    trail: bool = False


class FilteredRequest(ThreadRequest, frozen=True, kw_only=True):
    """What a step or a turn must have: a message of a role, a tool, a tool that failed; a label, a tag; some dates."""

    role: str = ""
    tool: str = ""
    failed: bool = False
    label: str = ""
    tag: str = ""
    since: str | None = None
    until: str | None = None


class StepsRequest(FilteredRequest, frozen=True, kw_only=True):
    """The steps that a filter keeps, newest first. Steps are looked at from the place `below` down to `above`, counted
    from the oldest; a request ends after some of them, and the next goes on."""

    below: Count | None = None
    above: Count = 0
    limit: Limit = 60


class TurnsRequest(ThreadRequest, frozen=True, kw_only=True):
    """A page of the turns of a coding agent's session, newest first. `start` counts from the newest."""

    start: Count = 0
    limit: Limit = 50


class TurnRequest(ThreadRequest, frozen=True, kw_only=True):
    """One turn of a coding agent's session. `whole`: do not cut long texts."""

    number: Count
    whole: bool = False


class CheckpointRequest(ThreadRequest, frozen=True, kw_only=True):
    """One checkpoint. `at`: `@`, `@~2`, a step, a label, an id or the start of one."""

    at: str = "@"


class MessagesRequest(CheckpointRequest, frozen=True, kw_only=True):
    """`limit` messages from `start` on; without `start`, the last ones. `whole`: do not cut long texts."""

    start: Count | None = None
    limit: Limit = 50
    whole: bool = False


class ConversationRequest(FilteredRequest, frozen=True, kw_only=True):
    """A page of the turns of a conversation, newest first: of those that a filter keeps. `at`: as in other requests."""

    at: str = "@"
    start: Count = 0
    limit: Limit = 50


class ImageRequest(CheckpointRequest, frozen=True, kw_only=True):
    """An image: its place among the images of a message, and the index of the message."""

    message: Count
    image: Count = 0


class StateRequest(CheckpointRequest, frozen=True, kw_only=True):
    """One level of the state. `path` is a JSON list of keys and indexes. `whole`: do not cut long texts."""

    path: str = "[]"
    start: Count = 0
    limit: Limit = 100
    whole: bool = False


class DiffRequest(ThreadRequest, frozen=True, kw_only=True):
    """The changes from `a` to `b`. `b` is a checkpoint of `other`, if that is given; then both are heads by default,
    else the checkpoint before the head is compared with the head. `since_fork`: from the last checkpoint that both have
    in common."""

    a: str | None = None
    b: str = "@"
    other: Name | None = None
    since_fork: bool = False
    limit: Limit = 200


class ComparisonRequest(CheckpointRequest, frozen=True, kw_only=True):
    """A checkpoint of a thread, and one of `other`, which may be the same thread."""

    other: Name
    other_at: str = "@"
    limit: Limit = 200


class ValueRequest(CheckpointRequest, frozen=True, kw_only=True):
    """One value of the state. `path` is a JSON list of keys and indexes."""

    path: str


class ExportRequest(CheckpointRequest, frozen=True, kw_only=True):
    """A checkpoint as a file. For `html`: `leave_out` names what is left out, with commas between: thinking, arguments,
    results, system, images, facts; with `other`, a comparison with a checkpoint of that thread."""

    form: Literal["jsonl", "markdown", "json", "html"] = "jsonl"
    leave_out: str = ""
    other: Name | None = None
    other_at: str = "@"


class WriteRequest(ApiRequest, frozen=True, kw_only=True):
    """Common parameters of all saves. `expect`: the checkpoint that must be the head, null if the thread must not exist
    yet. `id`: a UUID for the new checkpoint; a request that is repeated with it is carried out once."""

    thread: Name
    label: str | None = None
    tags: list[str] = []
    custom: Json = {}
    expect: str | msgspec.UnsetType | None = msgspec.UNSET
    id: str | None = None


class SaveRequest(WriteRequest, frozen=True, kw_only=True):
    """Save a whole state."""

    state: Json


class AppendRequest(WriteRequest, frozen=True, kw_only=True):
    """Add items at the end of the list `key`."""

    items: list[Any]
    key: Name = "messages"


class UpdateRequest(WriteRequest, frozen=True, kw_only=True):
    """Set some top-level keys."""

    changes: Json


class ForkRequest(CheckpointRequest, frozen=True, kw_only=True):
    """Start a new thread at a checkpoint; `to` names it."""

    to: str | None = None


class EditRequest(CheckpointRequest, frozen=True, kw_only=True):
    """Start a new thread at a checkpoint, in which the value at `path` is another; `to` names it."""

    path: Annotated[list[str | int], Meta(min_length=1)]
    value: Any
    to: str | None = None


class FilesRequest(CheckpointRequest, frozen=True, kw_only=True):
    """The files at a checkpoint, compared with those at `base`: by default at the last one before that has any."""

    base: str | None = None
    limit: Limit = 200


class TreeRequest(CheckpointRequest, frozen=True, kw_only=True):
    """A folder, or a file, of the snapshot that was saved with a checkpoint. `path` is relative to its root."""

    path: str = ""


class RewindRequest(ThreadRequest, frozen=True, kw_only=True):
    """Move the head to a checkpoint. `files`: restore the directory too, or change nothing; `keep_untracked`: keep
    files that no snapshot holds. `dry_run`: only report what would be left behind, and what becomes of the files."""

    at: str
    files: bool = False
    keep_untracked: bool = False
    dry_run: bool = False


class UndoRequest(ThreadRequest, frozen=True, kw_only=True):
    """Take back the last move of the head; `files`: and the last restore of the directory; `keep_untracked`: keep files
    that no snapshot holds. `dry_run`: only report where the head would go, and what becomes of the files."""

    files: bool = False
    keep_untracked: bool = False
    dry_run: bool = False


class RedoRequest(ThreadRequest, frozen=True, kw_only=True):
    """Do again what the last undo took back; `files`: and restore the directory to that checkpoint's snapshot;
    `keep_untracked`: keep files that no snapshot holds. `dry_run`: only report where the head would go, and what
    becomes of the files."""

    files: bool = False
    keep_untracked: bool = False
    dry_run: bool = False


class PendingRequest(ApiRequest, frozen=True, kw_only=True):
    """Questions of runs whose names begin with `prefix`."""

    prefix: str = ""
    limit: Limit = 100


class AnswerRequest(ThreadRequest, frozen=True, kw_only=True):
    """The answer to the question `name` of a run. `digest`: of the question that was shown; `by`: who answers."""

    name: str
    value: Any
    by: str | None = None
    digest: str | None = None


class RunForkRequest(ThreadRequest, frozen=True, kw_only=True):
    """Start a new run before a step, given by its name or by its number, from 1; `to` names the run."""

    step: str | int
    to: str | None = None


class AnnotateRequest(CheckpointRequest, frozen=True, kw_only=True):
    """Change the label, tags or custom fields of a checkpoint; what is not given stays."""

    label: str | msgspec.UnsetType | None = msgspec.UNSET
    tags: list[str] | msgspec.UnsetType = msgspec.UNSET
    custom: Json | msgspec.UnsetType = msgspec.UNSET


class DeleteRequest(ThreadRequest, frozen=True, kw_only=True):
    """Delete a thread, or one checkpoint of it."""

    at: str | None = None
