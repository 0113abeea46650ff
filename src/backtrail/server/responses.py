"""The responses of each operation, as types: mypy holds the handlers to them, and the OpenAPI document shows them."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from backtrail.model import Shape
from backtrail.render.json_records import ChangeJson, CheckpointJson, ForkJson, ThreadJson
from backtrail.render.turn_details import TurnJson


class StoreResponse(TypedDict):
    """The store that is served."""

    name: str
    version: str
    read_only: bool
    stats: dict[str, Any]


class ThreadsResponse(TypedDict):
    """A page of threads; `next` is the `after` of the next page, null on the last."""

    threads: list[ThreadJson]
    next: str | None


class ThreadResponse(TypedDict):
    """One thread, with the threads that it was forked from and up to 100 others of its lineage. `more_forks` is the
    number of those that were left out, and 900 if there are more than that."""

    thread: ThreadJson
    head: CheckpointJson
    forks: list[ForkJson]
    more_forks: int


class HistoryRowJson(CheckpointJson):
    """A checkpoint as a row of the graph: its lane, the lanes that join it from above, the lanes that pass by, and if a
    line leaves it downwards (`open`). `added` summarizes its changes; `preview` and `role` show its newest message."""

    lane: int
    joins: list[int]
    through: list[int]
    open: bool
    on_trail: bool
    added: str
    preview: str
    role: str


class HistoryResponse(TypedDict):
    """A page of a thread's history, newest first."""

    thread: ThreadJson
    total: int
    start: int
    lanes: int
    rows: list[HistoryRowJson]


class SizesResponse(TypedDict):
    """The number of steps, the bytes that all of them wrote, and the size of the state now; `points` are [step, bytes
    written, size of the state], at most a few hundred."""

    steps: int
    written: int
    size: int
    points: list[list[int]]


class ToolCallJson(TypedDict):
    """A tool call. Long texts are `{"$cut": "the start", "size": n}`, unless `whole` was requested."""

    id: str
    name: str
    arguments: Any


class ToolResultJson(TypedDict):
    """The result of a tool call."""

    id: str
    name: str
    text: Any
    failed: bool


class MessageJson(TypedDict):
    """One message, whatever framework wrote it."""

    index: int  # its place in the list, from 0 on
    number: int  # for people, from 1 on; a session's messages keep theirs when older ones are cut away
    role: str
    text: Any
    thinking: Any
    calls: list[ToolCallJson]
    results: list[ToolResultJson]
    extra: list[Any]
    bookkeeping: bool  # a line of a coding agent's transcript that is no message


class MessagesResponse(TypedDict):
    """A page of a conversation; `key` is null if the state has none."""

    key: str | None
    total: int
    start: int
    messages: list[MessageJson]


class StateEntryJson(TypedDict):
    """One entry of a dict or a list; if it is not `known`, request its own path."""

    name: str | int
    kind: Shape
    type: str | None
    size: int
    count: int | None
    known: bool
    value: Any


class StateResponse(TypedDict):
    """One level of a state."""

    path: list[str | int]
    kind: Shape
    type: str | None
    size: int
    count: int | None
    start: int
    entries: list[StateEntryJson]
    value: Any


class DiffResponse(TypedDict):
    """The changes from `a` to `b`; `total` counts also those that were left out."""

    a: CheckpointJson
    b: CheckpointJson
    total: int
    changes: list[ChangeJson]


class ForkResponse(TypedDict):
    """The new thread."""

    thread: ThreadJson


class FileChangeJson(TypedDict):
    """One changed file. `text` is a unified diff if both sides are text. `unsaved`: it was edited since the last
    snapshot; a restore keeps the edit in a safety snapshot."""

    path: str
    kind: Literal["added", "removed", "changed", "mode", "type"]
    unsaved: bool
    text: Any


class FilesResponse(TypedDict):
    """The changes in the directory since `base`. `snapshot` is null if the checkpoint has no files, `base` if no
    checkpoint before it has any, `root` if this machine knows no directory of the workspace."""

    snapshot: str | None
    base: CheckpointJson | None
    root: str | None
    total: int
    changes: list[FileChangeJson]


class TurnsResponse(TypedDict):
    """A page of the turns of a session, newest first. If the thread keeps no session of a coding agent, there are none,
    and `agent` is null."""

    agent: str | None
    total: int
    start: int
    turns: list[TurnJson]


class ToolUseJson(TypedDict):
    """A tool call with its result, which is null while there is none."""

    id: str
    name: str
    arguments: Any
    result: Any
    failed: bool


class TurnResponse(TypedDict):
    """One turn: its whole prompt and answer, its tool calls in order, and the files that it changed. `files` is null if
    they are not known, and `files_missing` says why; the totals count also what was left out."""

    turn: TurnJson
    prompt: Any
    reply: Any
    tools: list[ToolUseJson]
    tools_total: int
    files: list[FileChangeJson] | None
    files_total: int
    files_missing: str | None


class KeptFileJson(TypedDict):
    """A file that a restore leaves alone although the snapshot does not have it, and the reason."""

    path: str
    reason: str


class RestoreJson(TypedDict):
    """What a restore does to a directory. `files` are changed, or removed if their `kind` says so; `kept` stay. Both
    lists are cut; the totals are not. All of it is empty if no directory is restored."""

    files: list[FileChangeJson]
    files_total: int
    removed_total: int
    kept: list[KeptFileJson]
    kept_total: int


class RewindResponse(RestoreJson):
    """The new head, the checkpoints that are left behind, and the files; `done` is false for a dry run."""

    head: CheckpointJson
    left: list[str]
    done: bool


class RedoResponse(RestoreJson):
    """The head after the redo, and the files."""

    head: CheckpointJson


class UndoResponse(RestoreJson):
    """The head after the undo, and the files."""

    head: CheckpointJson


class DeleteResponse(TypedDict):
    """The thread, or the checkpoint of it, that was deleted."""

    deleted: str
    at: str | None


class ErrorJson(TypedDict):
    """The reason why a request failed."""

    type: str
    message: str


class ErrorResponse(TypedDict):
    """The body of every response that is not a success."""

    error: ErrorJson
