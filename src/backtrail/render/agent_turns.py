"""Turns of a coding agent: what was asked, which tools ran, what came back, how long it took and how many tokens.

Made from the raw lines of a transcript. A turn begins with a prompt and ends before the next one; the lines in between
that are no messages still count: they have the tokens and the duration. Lines that repeat an earlier one under the same
id (Gemini CLI writes a message again when its tools have run) replace it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from backtrail import message_shapes, transcript_lines
from backtrail.render.jsonable import short_text
from backtrail.render.message_parser import ParsedMessage, parse_message
from backtrail.transcript_lines import Line

_LABEL_WIDTH = 120
_MAX_TOKENS = 1 << 53  # of one request: more is no count


class ToolUse(msgspec.Struct, frozen=True):
    """A tool call with its result; `result` is None while there is none."""

    id: str
    name: str
    arguments: str
    result: str | None = None
    failed: bool = False


class Tokens(msgspec.Struct, frozen=True):
    """Tokens of all requests of a turn: read by the model, of which `cached` came from a cache, and written by it."""

    input: int = 0
    cached: int = 0
    output: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(self.input + other.input, self.cached + other.cached, self.output + other.output)


class TurnStart(msgspec.Struct, frozen=True):
    """The prompt that begins a turn: its line, the agent's own id of the turn, its text and its time."""

    index: int
    turn_id: str | None
    prompt: str
    at: datetime | None


class AgentTurn(msgspec.Struct, frozen=True):
    """One turn. `duration` is in seconds; it and `tokens` are None if the transcript does not have them."""

    turn_id: str | None
    prompt: str
    reply: str
    tools: tuple[ToolUse, ...]
    errors: tuple[str, ...]
    tokens: Tokens | None
    duration: float | None
    started_at: datetime | None
    model: str | None


def label_of(prompt: str) -> str | None:
    """The label of a turn: its prompt on one line, shortened."""
    return short_text(prompt, _LABEL_WIDTH).strip() or None


def find_turns(lines: Iterable[Any]) -> list[TurnStart]:
    """The prompts in a transcript, without those that the agent itself took back."""
    found: list[TurnStart] = []
    for index, line in enumerate(lines):
        if type(line) is not dict:
            continue
        back = taken_back(line)
        if type(back) is int:
            del found[-back:]
        elif back is not None:
            kept = next((n for n, turn in enumerate(found) if turn.turn_id == back), 0)
            del found[kept:]  # Gemini CLI: an id that it does not know clears everything
        elif transcript_lines.is_prompt(line):
            id = transcript_lines.turn_id(line)
            if id is None or all(turn.turn_id != id for turn in found[-1:]):
                text = parse_message(line).text
                found.append(TurnStart(index, id, text, transcript_lines.written_at(line)))
    return found


def taken_back(line: Line) -> str | int | None:
    """The turns that the agent itself took back with this line: the number of the last ones (Codex), or the id of the
    first one (Gemini CLI); None if it took none back."""
    if type(back := line.get("$rewindTo")) is str:
        return back
    payload = line.get("payload")
    if type(payload) is not dict or payload.get("type") != "thread_rolled_back":
        return None
    count = payload.get("num_turns")
    return count if type(count) is int and 0 < count < 1 << 31 else None


def read_turn(lines: Sequence[Any]) -> AgentTurn:
    """One turn, from its lines; those before its prompt are left out."""
    own = [line for line in lines if type(line) is dict]
    first = next((n for n, line in enumerate(own) if transcript_lines.is_prompt(line)), 0)
    own = own[first:]
    read = [(line, parse_message(line)) for line in _newest_of_each_id(own)]
    parsed = [message for _, message in read if not message.bookkeeping]
    prompt = parsed[0].text if parsed and parsed[0].role == "user" else ""
    said = [message.text for message in parsed if message.role == "assistant" and message.text]
    start = transcript_lines.written_at(own[0]) if own else None
    return AgentTurn(
        next((id for id in map(transcript_lines.turn_id, own) if id is not None), None),
        prompt,
        said[-1] if said else "",
        _tools(parsed),
        tuple(error for error in map(_error, own) if error),
        tokens_of_lines(own),
        _duration(own, start, [line for line, message in read if message.role in ("assistant", "tool")]),
        start,
        next((model for model in map(_model, reversed(own)) if model), None),
    )


def _newest_of_each_id(lines: list[Line]) -> list[Line]:
    """The lines, where of several with one id only the last is kept, at the place of the first."""
    kept: dict[Any, Line] = {}
    for number, line in enumerate(lines):
        id = message_shapes.own_id(line)
        repeats = transcript_lines.agent_of(line) in ("gemini", "opencode") and id is not None
        kept[id if repeats else number] = line
    return list(kept.values())


def _tools(messages: list[ParsedMessage]) -> tuple[ToolUse, ...]:
    calls = {call.id: ToolUse(call.id, call.name, call.arguments) for m in messages for call in m.calls}
    for result in (result for message in messages for result in message.results):
        call = calls.get(result.id)
        if call is not None:
            calls[result.id] = msgspec.structs.replace(call, result=result.text, failed=result.failed)
    return tuple(calls.values())


# -- what each agent notes beside its messages -------------------------------------------------------------------------


def _error(line: Line) -> str:
    if line.get("isApiErrorMessage"):  # Claude Code
        return parse_message(line).text
    if line.get("type") == "error" and transcript_lines.agent_of(line) == "gemini":
        return parse_message(line).text
    payload, info = line.get("payload"), line.get("info")
    if type(payload) is dict and payload.get("type") in ("error", "stream_error", "turn_aborted"):  # Codex
        return str(payload.get("message") or payload.get("reason") or payload["type"])
    failure = info.get("error") if type(info) is dict else None  # opencode
    if type(failure) is dict:
        data = failure.get("data")
        return str((data.get("message") if type(data) is dict else None) or failure.get("name") or "error")
    return ""


def _model(line: Line) -> str:
    for level in (line, line.get("message"), line.get("info"), line.get("payload")):
        found = (level.get("model") or level.get("modelID")) if type(level) is dict else None
        if type(found) is str:
            return found
    return ""


def _duration(lines: list[Line], start: datetime | None, answers: list[Line]) -> float | None:
    """The duration that the agent measured, or else the time from the prompt to the last answer."""
    for line in reversed(lines):
        payload = line.get("payload")
        ended = type(payload) is dict and payload.get("type") == "task_complete"
        measured = payload.get("duration_ms") if ended and type(payload) is dict else None
        if line.get("subtype") == "turn_duration":
            measured = line.get("durationMs")
        if type(measured) is int and 0 <= measured < _MAX_TOKENS:
            return measured / 1000
    end = next((at for at in map(_ended_at, reversed(answers)) if at is not None), None)
    return max(0.0, (end - start).total_seconds()) if start is not None and end is not None else None


def _ended_at(line: Line) -> datetime | None:
    info = line.get("info")
    times = info.get("time") if type(info) is dict else None
    if type(times) is dict and type(times.get("completed")) is int:
        return transcript_lines.written_at({"info": {"time": {"created": times["completed"]}}})
    return transcript_lines.written_at(line)


def tokens_of_lines(lines: Sequence[Line]) -> Tokens | None:
    """The tokens of all requests. A request may be counted in several lines, of which the last is right."""
    requests: dict[Any, Tokens] = {}
    older: list[Tokens] = []  # Codex before it had a line for each request
    for number, line in enumerate(lines):
        agent = transcript_lines.agent_of(line)
        if agent == "claude" and type(message := line.get("message")) is dict:
            usage = message.get("usage")
            if type(usage) is dict and line.get("type") == "assistant":
                key = (
                    _text_or(message.get("id"), number),
                    _text_or(line.get("requestRef") or line.get("requestId"), ""),
                )
                requests[key] = _claude_tokens(usage)
        elif agent == "codex":
            payload = line["payload"]
            if line.get("type") == "token_usage_record" and type(usage := payload.get("usage")) is dict:
                requests[number] = _codex_tokens(usage)
            info = payload.get("info") if payload.get("type") == "token_count" else None
            if type(info) is dict and type(usage := info.get("last_token_usage")) is dict:
                older.append(_codex_tokens(usage))
        elif agent == "gemini" and type(usage := line.get("tokens")) is dict:
            given = Tokens(_count(usage, "input"), _count(usage, "cached"), _count(usage, "output", "thoughts"))
            requests[_text_or(line.get("id"), number)] = given
        elif agent == "opencode" and type(usage := line["info"].get("tokens")) is dict:
            requests[_text_or(line["info"].get("id"), number)] = _opencode_tokens(usage)
    counted = list(requests.values()) or older
    return sum(counted, Tokens()) if counted else None


def _text_or(value: Any, other: Any) -> Any:
    return value if type(value) is str else other


def _claude_tokens(usage: dict[str, Any]) -> Tokens:
    cached = _count(usage, "cache_read_input_tokens")
    read = _count(usage, "input_tokens", "cache_creation_input_tokens") + cached
    return Tokens(read, cached, _count(usage, "output_tokens"))


def _codex_tokens(usage: dict[str, Any]) -> Tokens:
    return Tokens(_count(usage, "input_tokens"), _count(usage, "cached_input_tokens"), _count(usage, "output_tokens"))


def _opencode_tokens(usage: dict[str, Any]) -> Tokens:
    cache = usage.get("cache")
    cached, made = (_count(cache, "read"), _count(cache, "write")) if type(cache) is dict else (0, 0)
    return Tokens(_count(usage, "input") + cached + made, cached, _count(usage, "output", "reasoning"))


def _count(usage: dict[str, Any], *names: str) -> int:
    found = (usage.get(name) for name in names)
    return sum(value for value in found if type(value) is int and 0 <= value < _MAX_TOKENS)
