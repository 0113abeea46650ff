"""Message shapes: the role of a message, the tool calls it makes and answers, and problems that providers refuse.

Pure, and free of any provider's library. A message is a dict that is never changed here, only read, in the shapes of
OpenAI (chat and responses), Anthropic, LangChain, Gemini, pydantic-ai, the Vercel AI SDK and the transcripts of coding
agents (`transcript_lines`). A call and its result have the same id (or the same tool name, if a shape has no ids).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from backtrail import transcript_lines
from backtrail.model import text_of

Message = dict[str, Any]

_ID_KEYS = ("id", "uuid", "message_id", "messageId")
_WRAPPER_KEYS = ("data", "kwargs", "message", "content")  # keys under which a shape wraps the message itself
_ROLES = {
    "human": "user",
    "request": "user",
    "ai": "assistant",
    "model": "assistant",
    "gemini": "assistant",
    "response": "assistant",
}
_CALL_ID_KEYS = ("call_id", "tool_call_id", "toolCallId", "tool_use_id", "id")
_CALL_KEYS = ("functionCall", "function_call")  # Gemini's, in both spellings
_RESPONSE_KEYS = ("functionResponse", "function_response")
_FUNCTION_ROLE = "function"  # the role of results in OpenAI's first shape, which has no ids
_TOOL_KEYS = frozenset({"tool_calls", "tool_call_id", "function_call", "call_id", "parts"})
_CALL_BLOCKS = frozenset({"tool_use", "tool-call", "function_call"})
_RESULT_BLOCKS = frozenset({"tool_result", "tool-result", "tool-return", "retry-prompt", "function_call_output"})

ProblemKind = Literal["unanswered call", "orphan result", "two user turns"]


class Problem(msgspec.Struct, frozen=True):
    """A problem in a conversation for which providers refuse it."""

    kind: ProblemKind
    index: int  #: of the message in the list that was checked
    call_id: str | None = None
    message_id: str | None = None  #: filled in by the session

    def __str__(self) -> str:
        what = {
            "unanswered call": f"tool call {self.call_id!r} has no result",
            "orphan result": f"the result of {self.call_id!r} has no call before it",
            "two user turns": "a user turn follows a user turn",
        }
        return f"message {self.message_id or self.index}: {what[self.kind]}"


def body(message: Message) -> Message:
    """The message itself, without the wrapper that a shape may put around it; nothing if it is a line of a transcript
    that is no message."""
    if "role" not in message:
        if transcript_lines.agent_of(message) is not None:
            return transcript_lines.body(message) or {}
        for key in _WRAPPER_KEYS:
            inner = message.get(key)
            if type(inner) is dict:
                return inner
    return message


def own_id(message: Message) -> str | None:
    """The id that a message carries under one of the usual keys."""
    for level in (message, body(message)):
        for key in _ID_KEYS:
            value = level.get(key)
            if type(value) is str and value:
                return value
            if type(value) is int:
                return text_of(value)
    return None


def role(message: Message) -> str:
    """The role: user, assistant, system, tool, …; "" if the message has none."""
    inner = body(message)
    for level in (inner, message) if inner else ():
        for key in ("role", "type", "kind"):
            value = level.get(key)
            if type(value) is str and value not in ("message", "constructor"):
                return _ROLES.get(value, value)
    name = message.get("id")  # LangChain's own serialisation names the class instead
    if type(name) is list and name and type(name[-1]) is str:
        kind = name[-1].removesuffix("Message").removesuffix("MessageChunk").lower()
        return _ROLES.get(kind, kind)
    return ""


def blocks(message: Message) -> Iterator[Message]:
    """The blocks of a message's content that are dicts."""
    inner = body(message)
    for part in (inner.get("content"), inner.get("parts")):
        if type(part) is list:
            yield from (block for block in part if type(block) is dict)


def _is_plain_text(message: Message) -> bool:
    """True if a message obviously has neither calls nor results. A shortcut: most messages have none, and every message
    that is read is checked."""
    return type(message.get("content")) is str and "role" in message and _TOOL_KEYS.isdisjoint(message)


def calls(message: Message) -> list[str]:
    """The ids of the tool calls that a message makes."""
    if _is_plain_text(message):
        return []
    inner = body(message)
    found: list[str] = []
    listed = inner.get("tool_calls")
    if type(listed) is list:
        found += [_call_id(call) for call in listed if type(call) is dict]
    kind = inner.get("type")
    if type(kind) is str and kind.endswith("_call") and type(inner.get("call_id")) is str:
        found.append(inner["call_id"])
    if type(inner.get("function_call")) is dict:
        found.append(_call_id(inner["function_call"]))
    listed = inner.get("toolCalls")  # Gemini CLI's
    if type(listed) is list:
        found += [_call_id(call) for call in listed if type(call) is dict]
    for block in blocks(message):
        if _kind(block) in _CALL_BLOCKS:
            found.append(_call_id(block))
        found += [_call_id(block[key]) for key in _CALL_KEYS if type(block.get(key)) is dict]
    return list(dict.fromkeys(found))


def name_and_arguments(call: Message) -> tuple[str, Any]:
    """The tool that a call names, "" if none, and its arguments, None if there are none."""
    inner = next((call[key] for key in ("function", *_CALL_KEYS) if type(call.get(key)) is dict), call)
    names = (level.get(key) for level in (inner, call) for key in ("name", "tool_name", "toolName"))
    arguments = next((inner[key] for key in ("arguments", "args", "input") if key in inner), None)
    return text_of(next(filter(None, names), "")), arguments


def results(message: Message) -> list[str]:
    """The ids of the tool calls that a message answers."""
    if _is_plain_text(message) and message["role"] != "function":
        return []
    inner = body(message)
    found: list[str] = []
    if type(inner.get("tool_call_id")) is str:
        found.append(inner["tool_call_id"])
    elif inner.get("role") == "function":
        found.append(_call_id(inner))
    kind = inner.get("type")
    if type(kind) is str and kind.endswith("_call_output") and type(inner.get("call_id")) is str:
        found.append(inner["call_id"])
    for block in blocks(message):
        if _kind(block) in _RESULT_BLOCKS and _has_call_id(block):
            found.append(_call_id(block))
        found += [_call_id(block[key]) for key in _RESPONSE_KEYS if type(block.get(key)) is dict]
    return list(dict.fromkeys(found))


def _kind(block: Message) -> str:
    kind = block.get("type") or block.get("part_kind")
    return kind if type(kind) is str else ""


def _has_call_id(block: Message) -> bool:
    return any(type(block.get(key)) is str for key in _CALL_ID_KEYS[:4])


def _call_id(call: Message) -> str:
    for key in _CALL_ID_KEYS:
        value = call.get(key)
        if type(value) is str and value:
            return value
    name = call.get("name") or call.get("tool_name") or ""
    return f"name:{name}"


def is_user_turn(message: Message) -> bool:
    """True if a person speaks in this message. A user message with nothing but tool results is not a turn, nor is one
    that a coding agent wrote in the person's name."""
    if transcript_lines.agent_of(message) is not None:
        return transcript_lines.is_prompt(message)
    return role(message) == "user" and not (results(message) and not _has_other_content(message))


def _has_other_content(message: Message) -> bool:
    said = [block for block in blocks(message) if not (_is_result(block))]
    content = body(message).get("content")
    return bool(said) or (type(content) is str and bool(content) and "tool_call_id" not in body(message))


def _is_result(block: Message) -> bool:
    return _kind(block) in _RESULT_BLOCKS or bool(block.keys() & set(_RESPONSE_KEYS))


def user_turns(messages: Sequence[Message]) -> int:
    """The number of user turns among the messages."""
    return sum(map(is_user_turn, messages))


def open_results(messages: Sequence[Message]) -> set[str]:
    """The ids of calls that these messages answer but do not make: the calls must come before them."""
    made: set[str] = set()
    lacking: set[str] = set()
    for message in messages:
        # `_is_plain_text`, inlined: this runs for every message of every window that is read.
        if (
            type(message.get("content")) is str
            and message.get("role", _FUNCTION_ROLE) != _FUNCTION_ROLE
            and _TOOL_KEYS.isdisjoint(message)
        ):
            continue
        made.update(calls(message))
        lacking.update(id for id in results(message) if id not in made)
    return lacking


def problems(messages: Sequence[Message], *, alternating: bool = False) -> list[Problem]:
    """The problems in the order of the messages. `alternating`: two user turns in a row are one as well."""
    found: list[Problem] = []
    waiting: dict[str, int] = {}
    before_was_user = False
    for index, message in enumerate(messages):
        answered = results(message)
        found += [Problem("orphan result", index, id) for id in answered if waiting.pop(id, None) is None]
        speaks = is_user_turn(message)
        if alternating and speaks and before_was_user:
            found.append(Problem("two user turns", index))
        if role(message) in ("user", "assistant", "tool") or answered:
            before_was_user = speaks
        waiting.update((id, index) for id in calls(message))
    found += [Problem("unanswered call", index, id) for id, index in waiting.items()]
    return sorted(found, key=lambda problem: problem.index)


# -- repairing -------------------------------------------------------------------------------------------------------

INTERRUPTED = "[backtrail: this call was interrupted; its result was never recorded]"
NO_REPLY = "[backtrail: no reply was recorded]"


def repair(messages: Sequence[Message], *, alternating: bool = False) -> list[Message]:
    """The messages without problems: a marked result is added for each unanswered call, orphan results are removed and,
    with `alternating`, a marked reply is added between two user turns. The given messages are not changed."""
    added: dict[int, list[Message]] = {}  # after the message of that index
    orphans: dict[int, set[str]] = {}
    unanswered: dict[int, list[str]] = {}
    for problem in problems(messages):
        if problem.kind == "unanswered call":
            unanswered.setdefault(problem.index, []).append(problem.call_id or "")
        else:
            orphans.setdefault(problem.index, set()).add(problem.call_id or "")
    last_answer = _last_answers(messages)
    for index, ids in unanswered.items():
        added.setdefault(last_answer[index], []).extend(_marked_results(messages[index], ids))
    repaired: list[Message] = []
    for index, message in enumerate(messages):
        kept = _without_results(message, orphans[index]) if index in orphans else message
        if kept is not None:
            repaired.append(kept)
        repaired += added.get(index, ())
    if not alternating:
        return repaired
    found = problems(repaired, alternating=True)
    doubled = {problem.index for problem in found if problem.kind == "two user turns"}
    return [part for i, m in enumerate(repaired) for part in ((_marked_reply(m), m) if i in doubled else (m,))]


def _last_answers(messages: Sequence[Message]) -> list[int]:
    """For each message, the index of the last message that answers calls of it, or its own. Answers follow a call
    without a message between them that answers none."""
    found = list(range(len(messages)))
    last: dict[str, int] = {}  # call -> the last message that answers it, in the run of answers after this message
    for index in range(len(messages) - 1, -1, -1):
        for id in calls(messages[index]):
            found[index] = max(found[index], last.get(id, index))
        answered = results(messages[index])
        if not answered:
            last.clear()
        for id in answered:
            last.setdefault(id, index)
    return found


def _marked_results(message: Message, ids: list[str]) -> list[Message]:
    """Results that say "interrupted" for these calls of a message, in the message's shape."""
    inner = body(message)
    if type(inner.get("type")) is str and inner["type"].endswith("_call"):
        outputs: list[Message] = [
            {"type": f"{inner['type']}_output", "call_id": id, "output": INTERRUPTED} for id in ids
        ]
        return outputs if inner is message else [{"type": "response_item", "payload": output} for output in outputs]
    if type(inner.get("toolCalls")) is list:
        made = {_call_id(call): call for call in inner["toolCalls"] if type(call) is dict}
        answers = [_marked_block({"functionCall": made.get(id, {"name": id})}, id) for id in ids]
        return [{"type": "user", "timestamp": message.get("timestamp"), "content": answers}]
    if inner.get("tool_calls"):
        if "role" in inner:
            return [{"role": "tool", "tool_call_id": id, "content": INTERRUPTED} for id in ids]
        return [{"type": "tool", "tool_call_id": id, "content": INTERRUPTED} for id in ids]
    if type(inner.get("function_call")) is dict:
        return [{"role": "function", "name": id.removeprefix("name:"), "content": INTERRUPTED} for id in ids]
    by_id = {_block_call_id(block): block for block in blocks(message)}
    parts = [_marked_block(by_id.get(id, {}), id) for id in ids]
    if "parts" in inner:
        reply: Message = {"kind": "request", "parts": parts} if "kind" in inner else {"role": "user", "parts": parts}
        return [{"author": message.get("author"), "content": reply} if inner is message.get("content") else reply]
    answer = {"role": "tool" if parts[0].get("type") == "tool-result" else "user", "content": parts}
    if inner is not message and "uuid" in message:  # a line of a transcript: wrapped, and a child of the call's line
        kept: Message = {key: message[key] for key in ("sessionId", "cwd") if key in message}
        return [{"type": "user", "parentUuid": message["uuid"], **kept, "message": answer}]
    return [answer]


def _block_call_id(block: Message) -> str:
    for key in _CALL_KEYS:
        if type(block.get(key)) is dict:
            return _call_id(block[key])
    return _call_id(block)


def _marked_block(block: Message, id: str) -> Message:
    if block.get("part_kind") == "tool-call":
        name = block.get("tool_name", "")
        return {"part_kind": "tool-return", "tool_name": name, "tool_call_id": id, "content": INTERRUPTED}
    if block.get("type") == "tool-call":
        output = {"type": "error-text", "value": INTERRUPTED}
        return {"type": "tool-result", "toolCallId": id, "toolName": block.get("toolName", ""), "output": output}
    for key, answer in zip(_CALL_KEYS, _RESPONSE_KEYS, strict=True):
        if type(block.get(key)) is dict:
            call = block[key]
            response = {"name": call.get("name", ""), "response": {"error": INTERRUPTED}}
            return {answer: {**({"id": call["id"]} if "id" in call else {}), **response}}
    return {"type": "tool_result", "tool_use_id": id, "content": INTERRUPTED, "is_error": True}


def _marked_reply(message: Message) -> Message:
    inner = body(message)
    agent = transcript_lines.agent_of(message)
    if agent == "codex":
        said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": NO_REPLY}]}
        return {"type": "response_item", "payload": said}
    if agent == "gemini":
        return {"type": "gemini", "timestamp": message.get("timestamp"), "content": NO_REPLY}
    if agent == "opencode":
        return {"info": {"role": "assistant"}, "parts": [{"type": "text", "text": NO_REPLY}]}
    if "kind" in inner:
        return {"kind": "response", "parts": [{"part_kind": "text", "content": NO_REPLY}]}
    if "parts" in inner:
        reply: Message = {"role": "model", "parts": [{"text": NO_REPLY}]}
        return {"author": "backtrail", "content": reply} if inner is message.get("content") else reply
    if "role" not in inner and inner.get("type") == "human":
        return {"type": "ai", "content": NO_REPLY}
    return {"role": "assistant", "content": NO_REPLY}


def _without_results(message: Message, ids: set[str]) -> Message | None:
    """The message without its results for these calls; None if there is nothing else in it."""
    inner = body(message)
    for key in ("content", "parts"):
        part = inner.get(key)
        if type(part) is list:
            kept = [block for block in part if not (type(block) is dict and _result_id(block) in ids)]
            if len(kept) < len(part):
                if not kept:
                    return None
                lighter = {**inner, key: kept}
                return lighter if inner is message else {k: lighter if v is inner else v for k, v in message.items()}
    return None


def _result_id(block: Message) -> str | None:
    for key in _RESPONSE_KEYS:
        if type(block.get(key)) is dict:
            return _call_id(block[key])
    return _call_id(block) if _is_result(block) else None
