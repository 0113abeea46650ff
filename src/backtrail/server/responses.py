"""The responses of each operation, as types: mypy holds the handlers to them, and the OpenAPI document shows them."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from backtrail.model import Shape
from backtrail.render.json_records import (
    ChangeJson,
    CheckpointJson,
    FailureJson,
    ForkJson,
    PendingJson,
    RunStepJson,
    ThreadJson,
    TokensJson,
)
from backtrail.render.turn_details import TurnJson
from backtrail.server.conversation_responses import MessageJson


class StoreResponse(TypedDict):
    """The store that is served."""

    name: str
    version: str
    read_only: bool
    stats: dict[str, Any]


class ThreadRowJson(ThreadJson):
    """A thread in the list. `title`: the task of a run, or the beginning of what a user said first; `last`: that of the
    last message; `label`: of the head; `failed`: the last message is a tool that failed, or the run failed; `status`:
    of a run. All of them are empty unless `describe` was requested."""

    title: str
    last: str
    label: str | None
    failed: bool
    status: str | None


class LoggedErrorJson(TypedDict):
    """A warning or an error that was logged."""

    at: str
    level: str
    message: str


class JanitorJson(TypedDict):
    """The janitor that worked last in the store, in whatever process, and what its last round freed, null before the
    first. `next_round` is null if it was stopped."""

    running: bool
    every: float
    rounds: int
    errors: int
    last_round: str | None
    next_round: str | None
    last_error: str | None
    freed: dict[str, int] | None


class HealthResponse(TypedDict):
    """Figures of the store; `mirror` is its status, null without one, and so is `janitor`; `pending`: questions of
    runs that wait for an answer, of which about 100 are counted; `growth` are [seconds since 1970, bytes]."""

    healthy: bool
    problem: str | None
    engine: str
    version: str
    seconds: float
    stats: dict[str, Any]
    mirror: dict[str, Any] | None
    janitor: JanitorJson | None
    pending: int
    growth: list[list[float]]
    errors: list[LoggedErrorJson]


class ThreadsResponse(TypedDict):
    """A page of threads; `next` is the `after` of the next page, null on the last."""

    threads: list[ThreadRowJson]
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
    line leaves it downwards (`open`). `added` summarizes its changes; `preview` and `role` show its newest message;
    `failed`: a tool failed in it. `model`, `tokens` and `cost` are those of its messages, `seconds` is the time since
    the step before; what is not known is null."""

    lane: int
    joins: list[int]
    through: list[int]
    open: bool
    on_trail: bool
    added: str
    preview: str
    role: str
    failed: bool
    model: str | None
    tokens: TokensJson | None
    cost: float | None
    seconds: float | None


class HistoryResponse(TypedDict):
    """A page of a thread's history, newest first. Rows that were sent before stay as they are while `layout` is the
    same: new ones came above them, and that is all. `index`: the place of the checkpoint `at`, null if there is
    none."""

    thread: ThreadJson
    layout: int
    index: int | None
    total: int
    start: int
    lanes: int
    rows: list[HistoryRowJson]


class StepRowJson(HistoryRowJson):
    """A checkpoint that a filter keeps, and its place in the whole history, counted from the oldest."""

    place: int


class StepsResponse(TypedDict):
    """The steps that a filter keeps, newest first. `below` is the `below` of the next request, null if there are no
    more to look at. Places stay as they are while `layout` is the same."""

    thread: ThreadJson
    layout: int
    total: int
    below: int | None
    rows: list[StepRowJson]


class ChartPointJson(TypedDict):
    """One or several steps: the one of them that wrote most, and the longest time since the step before."""

    step: int
    written: int
    size: int
    seconds: float


class SizesResponse(TypedDict):
    """The number of steps, the bytes that all of them wrote, and the size of the state now; `points` are some of them,
    at most a few hundred."""

    steps: int
    written: int
    size: int
    points: list[ChartPointJson]


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


class ValueResponse(TypedDict):
    """A value of the state, as JSON."""

    value: Any


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


class FileEntryJson(TypedDict):
    """An entry of a folder of a snapshot."""

    name: str
    kind: Literal["file", "folder", "link"]
    size: int


class TreeResponse(TypedDict):
    """A folder of a snapshot, folders first; `more` counts what was left out."""

    entries: list[FileEntryJson]
    more: int


class SideJson(TypedDict):
    """One side of a comparison: its messages from where the two part, and how many those are."""

    thread: str
    checkpoint: CheckpointJson
    total: int
    messages: list[MessageJson]


class ComparisonResponse(TypedDict):
    """Two checkpoints: the last one that both come from, the number of messages at the beginning that are the same, and
    the changes from the left to the right. `files` is null unless both were saved with files."""

    left: SideJson
    right: SideJson
    ancestor: CheckpointJson | None
    key: str | None
    same: int
    total: int
    changes: list[ChangeJson]
    files_total: int
    files: list[FileChangeJson] | None


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


class RunResponse(TypedDict):
    """A run; `status` is null if the thread is none. `steps` are the last of `steps_total`."""

    status: str | None
    task: str
    result: Any
    error: FailureJson | None
    due_at: str | None
    steps: list[RunStepJson]
    steps_total: int
    questions: list[PendingJson]


class PendingResponse(TypedDict):
    """Questions that wait for an answer, newest first."""

    questions: list[PendingJson]


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
