"""Messages and turns in the responses of the API, as types; `responses` has everything else."""

from __future__ import annotations

from typing import Any, TypedDict

from backtrail.render.json_records import TokensJson


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


class StepJson(TypedDict):
    """A checkpoint, in short."""

    id: str
    step: int
    created_at: str


class ImageJson(TypedDict):
    """An image of a message: `/image` has its bytes, unless `size` is 0 and `url` says where they are."""

    media_type: str
    size: int
    url: str


class MessageJson(TypedDict):
    """One message, whatever framework wrote it, and the step that added it. `bookkeeping`: a line of a transcript that
    is no message. `model`, `tokens`, `cost` and `at`, its time, are null if the message does not have them."""

    index: int  # its place in the list, from 0 on
    number: int  # for people, from 1 on; a session's messages keep theirs when older ones are cut away
    role: str
    text: Any
    thinking: Any
    calls: list[ToolCallJson]
    results: list[ToolResultJson]
    extra: list[Any]
    images: list[ImageJson]
    bookkeeping: bool
    model: str | None
    tokens: TokensJson | None
    cost: float | None
    at: str | None
    step: StepJson | None


class ToolCountJson(TypedDict):
    """A tool, how often it was called in a row, and how many of these calls failed."""

    name: str
    count: int
    failed: int


class ConversationTurnJson(TypedDict):
    """A turn: the messages from `start` up to `stop`, and the steps that added the first and the last of them.
    `duration` is in seconds. What is not known is null."""

    number: int
    start: int
    stop: int
    prompt: str
    reply: str
    tools: list[ToolCountJson]
    more_tools: int
    failed: int
    tokens: TokensJson | None
    cost: float | None
    model: str | None
    started_at: str | None
    duration: float | None
    roles: list[str]
    first: StepJson | None
    last: StepJson | None


class TotalsJson(TypedDict):
    """The sums of turns; `by_model` are the tokens of each model, for a table of prices."""

    turns: int
    failed: int
    tokens: TokensJson | None
    cost: float | None
    by_model: dict[str, dict[str, int]]


class ConversationResponse(TypedDict):
    """A page of the turns that the filter keeps, newest first, how many those are, and their sums."""

    total: int
    start: int
    turns: list[ConversationTurnJson]
    totals: TotalsJson


class MessagesResponse(TypedDict):
    """A page of a conversation; `key` is null if the state has none."""

    key: str | None
    total: int
    start: int
    messages: list[MessageJson]
