"""What the API answers, as types: the OpenAPI text is made of them, and mypy holds the desk to them."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from backtrail.model import Shape
from backtrail.render.json_records import ChangeJson, CheckpointJson, ForkJson, ThreadJson


class About(TypedDict):
    """The store that is served."""

    name: str
    version: str
    read_only: bool
    stats: dict[str, Any]


class Threads(TypedDict):
    """A page of threads; `next` is the `after` of the next page, null on the last."""

    threads: list[ThreadJson]
    next: str | None


class Thread(TypedDict):
    """One thread."""

    thread: ThreadJson
    head: CheckpointJson
    forks: list[ForkJson]


class Row(CheckpointJson):
    """A checkpoint as a row of the graph: its lane, the lanes that join it from above, the lanes that pass by, whether
    a line leaves it downwards; and what it added to its parent's state."""

    lane: int
    joins: list[int]
    through: list[int]
    open: bool
    on_trail: bool
    added: str
    preview: str
    role: str


class History(TypedDict):
    """A page of a thread's history, newest first."""

    thread: ThreadJson
    total: int
    start: int
    lanes: int
    rows: list[Row]


class Sizes(TypedDict):
    """How many steps there are, what they wrote in all, and how large the state is now; `points` are [step, bytes
    written, bytes of state], at most a few hundred."""

    steps: int
    written: int
    size: int
    points: list[list[int]]


class Call(TypedDict):
    """A tool call. Long texts are `{"$cut": "the start", "size": n}` unless asked for whole."""

    id: str
    name: str
    arguments: Any


class Result(TypedDict):
    """What a tool answered."""

    id: str
    name: str
    text: Any
    failed: bool


class Message(TypedDict):
    """One message, whatever framework wrote it."""

    index: int
    role: str
    text: Any
    thinking: Any
    calls: list[Call]
    results: list[Result]
    extra: list[Any]


class Messages(TypedDict):
    """A stretch of a conversation."""

    key: str | None
    total: int
    start: int
    messages: list[Message]


class StateEntry(TypedDict):
    """One entry of a dict or a list; where it is not `known`, ask for its own path."""

    name: str | int
    kind: Shape
    type: str | None
    size: int
    count: int | None
    known: bool
    value: Any


class State(TypedDict):
    """One level of a state."""

    path: list[str | int]
    kind: Shape
    type: str | None
    size: int
    count: int | None
    start: int
    entries: list[StateEntry]
    value: Any


class Difference(TypedDict):
    """What changed from `a` to `b`."""

    a: CheckpointJson
    b: CheckpointJson
    total: int
    changes: list[ChangeJson]


class Forked(TypedDict):
    """The new thread."""

    thread: ThreadJson


class FileChange(TypedDict):
    """One file that differs. `text` is a unified diff where both sides are text. `unsaved`: it was edited since the
    last snapshot; a restore keeps that in a safety snapshot."""

    path: str
    kind: Literal["added", "removed", "changed", "mode", "type"]
    unsaved: bool
    text: Any


class Files(TypedDict):
    """What changed in the directory since `base`. `snapshot` is null where the checkpoint has no files, `base` where
    none before it has."""

    snapshot: str | None
    base: CheckpointJson | None
    root: str | None
    total: int
    changes: list[FileChange]


class Rewound(TypedDict):
    """Where the head stands (or would), what is no longer on the way to it, and which files change."""

    files: list[FileChange]

    head: CheckpointJson
    left: list[str]
    done: bool


class Undone(TypedDict):
    """Where the head stands now."""

    head: CheckpointJson


class Deleted(TypedDict):
    """What is gone."""

    deleted: str
    at: str | None


class Problem(TypedDict):
    """Why a request was refused."""

    type: str
    message: str


class Refusal(TypedDict):
    """The body of every answer that is not a success."""

    error: Problem
