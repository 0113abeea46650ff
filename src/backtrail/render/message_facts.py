"""What a message says about itself besides its content: the model, the tokens, the cost and the time.

Providers and frameworks note them in different places. Nothing is estimated: what is not there is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from backtrail import message_shapes, transcript_lines
from backtrail.render.agent_turns import Tokens, tokens_of_lines

_MAX = 1 << 53  # beyond that, a number is no count
_USAGE = ("usage", "usage_metadata", "usageMetadata", "token_usage", "tokens", "last_token_usage")
_WRAPPERS = ("message", "info", "payload", "response_metadata", "data", "kwargs", "additional_kwargs")
_INPUT = ("input_tokens", "prompt_tokens", "promptTokenCount", "request_tokens", "input", "inputTokens")
_OUTPUT = ("output_tokens", "completion_tokens", "candidatesTokenCount", "response_tokens", "output", "outputTokens")
_CACHED = ("cache_read_input_tokens", "cached_input_tokens", "cachedContentTokenCount", "cache_read_tokens", "cached")
_MADE = ("cache_creation_input_tokens", "cache_write_tokens")
_MODEL = ("model", "model_name", "modelID", "modelName", "model_id")
_TIME = ("timestamp", "created_at", "createdAt", "time")


class MessageFacts(msgspec.Struct, frozen=True):
    """The model that wrote a message, the tokens and the cost of the request, and the time, as far as it has them."""

    model: str | None = None
    tokens: Tokens | None = None
    cost: float | None = None
    at: datetime | None = None


def facts_of(message: Any) -> MessageFacts:
    """The facts in a message of any shape."""
    if not isinstance(message, dict):
        return MessageFacts()
    levels = _levels(message)
    return MessageFacts(_model(levels), _tokens(levels), _cost(levels), _time(levels))


def tokens_of(messages: Sequence[Any], facts: Sequence[MessageFacts]) -> Tokens | None:
    """The tokens of all requests that some messages tell of. Lines of a transcript may tell of one several times."""
    lines: list[dict[Any, Any]] = []
    found: list[Tokens | None] = []
    for message, fact in zip(messages, facts, strict=True):
        if type(message) is dict and transcript_lines.agent_of(message) is not None:
            lines.append(message)
        else:
            found.append(fact.tokens)
    found.append(tokens_of_lines(lines) if lines else None)
    counted = [tokens for tokens in found if tokens is not None]
    return sum(counted, Tokens()) if counted else None


def _levels(message: dict[Any, Any]) -> list[dict[Any, Any]]:
    """The message, and the dicts in it that may hold its facts."""
    found = [message]
    for _ in range(3):
        inner = [level[name] for level in found for name in _WRAPPERS if isinstance(level.get(name), dict)]
        inner += [body for body in [message_shapes.body(message)] if body is not message]
        found += [level for level in inner if not any(level is known for known in found)]
    return found


def _model(levels: list[dict[Any, Any]]) -> str | None:
    names = (level.get(key) for level in levels for key in _MODEL)
    return next((name for name in names if isinstance(name, str) and name), None)


def _tokens(levels: list[dict[Any, Any]]) -> Tokens | None:
    for level in levels:
        for key in _USAGE:
            usage = level.get(key)
            if not isinstance(usage, dict):
                continue
            read, wrote = _count(usage, _INPUT), _count(usage, _OUTPUT)
            if read is None and wrote is None:
                continue
            cached = _count(usage, _CACHED) or _detail(usage)
            made = _count(usage, _MADE) or 0
            # Anthropic counts what came from the cache apart from the rest; the others count it in.
            apart = cached + made if "cache_read_input_tokens" in usage or "cache_creation_input_tokens" in usage else 0
            return Tokens((read or 0) + apart, cached, wrote or 0)
    return None


def _detail(usage: dict[Any, Any]) -> int:
    for key in ("prompt_tokens_details", "input_tokens_details", "input_token_details", "cache"):
        detail = usage.get(key)
        if isinstance(detail, dict):
            return _count(detail, ("cached_tokens", "cache_read", "read")) or 0
    return 0


def _count(usage: dict[Any, Any], names: tuple[str, ...]) -> int | None:
    found = (usage.get(name) for name in names)
    return next((value for value in found if type(value) is int and 0 <= value < _MAX), None)


def _cost(levels: list[dict[Any, Any]]) -> float | None:
    found = (level.get(key) for level in levels for key in ("cost", "costUSD", "cost_usd", "total_cost_usd"))
    return next((float(value) for value in found if isinstance(value, int | float) and 0 <= value < _MAX), None)


def _time(levels: list[dict[Any, Any]]) -> datetime | None:
    for value in (level.get(key) for level in levels for key in _TIME):
        given: Any = value.get("created") if isinstance(value, dict) else value
        try:
            if isinstance(given, datetime):
                return given if given.tzinfo is not None else given.replace(tzinfo=UTC)
            if isinstance(given, str) and given:
                found = datetime.fromisoformat(given)
                return found.astimezone(UTC) if found.tzinfo is not None else found.replace(tzinfo=UTC)
            if type(given) in (int, float) and given > 0:
                return datetime.fromtimestamp(given / 1000 if given > 1e11 else given, UTC)
        except (ValueError, OverflowError, OSError):
            continue  # not a time, or none that a calendar has
    return None
