"""Parses messages of any framework into one shape: role, text, tool calls and their results.

Knows the message formats of OpenAI (chat and responses), Anthropic, Google, LangChain, pydantic-ai, the Vercel AI SDK
and the transcripts of Claude Code, Codex, Gemini CLI and opencode. Anything else is kept as JSON in `extra`: nothing is
left out. A line of a transcript that is no message is parsed as `bookkeeping`, which viewers do not show.

The Markdown of `backtrail.export` does not use this: it writes the blocks of a message in their order, and this gathers
them by kind.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from backtrail import Hole, Outline, Unregistered, message_shapes, transcript_lines
from backtrail.model import MAX_NUMBER, text_of
from backtrail.render.jsonable import to_json
from backtrail.render.message_images import Image, image_of

_ROLES = {
    "human": "user",
    "ai": "assistant",
    "model": "assistant",
    "gemini": "assistant",
    "function": "tool",
    "developer": "system",
}
_RESULT_BLOCKS = ("tool_result", "tool-result")
_CONVERSATION_KEYS = ("messages", "history", "conversation", "events", "items", "chat")


_HEADING = 100_000  # characters of a result in which its exit code is looked for
_EXIT_CODE = re.compile(r"^(?:Process exited with code|Exit Code:) [1-9]", re.MULTILINE)


class ToolCall(msgspec.Struct, frozen=True):
    """A tool call."""

    id: str
    name: str
    arguments: str


class ToolResult(msgspec.Struct, frozen=True):
    """The result of a tool call; `id` is that of the call."""

    id: str
    name: str
    text: str
    failed: bool = False


class ParsedMessage(msgspec.Struct, frozen=True):
    """One message. `thinking` is the model's reasoning, `extra` holds everything that fits nowhere else, as JSON."""

    role: str
    text: str = ""
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    extra: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()
    bookkeeping: bool = False  #: a line of a coding agent's transcript that is no message


def conversation_key(outline: Outline) -> str | None:
    """The top-level key of the state that holds the messages, if there is one."""
    lists = [part for part in outline.parts if part.kind == "list" and isinstance(part.name, str)]
    names = {str(part.name) for part in lists}
    for key in _CONVERSATION_KEYS:
        if key in names:
            return key
    return None


def is_message(value: Any) -> bool:
    """True if a value can be a message: a number, such as one of a saved embedding, cannot."""
    return isinstance(value, dict | str | Unregistered | Hole)


def first_number(outline: Outline) -> int:
    """The number of the first message that a state still has. Messages are numbered from 1, and those of a session keep
    their numbers when older ones are cut away: `first` is a field of its state."""
    fields = {part.name: part.value for part in outline.parts if part.known}
    first = fields.get("first")
    return first if "user_turns" in fields and type(first) is int and 0 <= first < MAX_NUMBER else 1


def parse_message(value: Any) -> ParsedMessage:
    """Parse any message-like value."""
    if isinstance(value, Unregistered):
        value = value.value
    if isinstance(value, Hole):
        return ParsedMessage("damaged", str(value))
    if isinstance(value, str):
        return ParsedMessage("message", value)
    if not isinstance(value, dict):
        return ParsedMessage("message", extra=(_text(value),))
    if transcript_lines.is_bookkeeping(value):
        return ParsedMessage(_str(value.get("type")) or "bookkeeping", extra=(_text(value),), bookkeeping=True)
    agent = transcript_lines.agent_of(value)
    if agent is not None:
        return _parse_line(value, agent)
    return _parse(value)


def _parse_line(line: dict[Any, Any], agent: transcript_lines.Agent) -> ParsedMessage:
    """Parse a line of a coding agent's transcript. What it wrote in the person's name is not shown as the person's."""
    found = _parse(message_shapes.body(line))
    if agent in ("codex", "gemini"):
        found = msgspec.structs.replace(found, results=tuple(map(_with_exit_code, found.results)))
    if found.role == "user" and not transcript_lines.is_prompt(line):
        found = msgspec.structs.replace(found, role="tool" if found.results else "system")
    return found


def _with_exit_code(result: ToolResult) -> ToolResult:
    """A result that failed if its text says so: Codex and Gemini CLI have the exit code of a command there."""
    failed = result.failed or _EXIT_CODE.search(result.text[:_HEADING]) is not None
    return msgspec.structs.replace(result, failed=failed)


def _parse(value: dict[Any, Any]) -> ParsedMessage:
    inner = message_shapes.body(value)
    if inner is not value and "content" in inner:  # an entry of a transcript that wraps the message
        value = {"role": value.get("type"), **inner}
    draft = _Draft(_role(value))
    kind = value.get("type")
    if _is_item(kind, "_call"):
        arguments = _first(value, "arguments", "input", "action")
        draft.calls.append(ToolCall(_str(value.get("call_id")), _item_name(value), _text(arguments)))
    elif _is_item(kind, "_call_output"):
        draft.results.append(ToolResult(_str(value.get("call_id")), "", _flat(value.get("output"))))
    elif kind == "reasoning":
        draft.thinking.append(_flat(value.get("summary") or value.get("content") or ""))
    elif draft.role == "tool" and not _has_result_blocks(value):
        result = ToolResult(
            _str(value.get("tool_call_id")),
            _str(value.get("name")),
            _text(_content_of(value)),
            value.get("status") == "error",
        )
        draft.results.append(result)
    else:
        _add_content(draft, _content_of(value))
    listed = value.get("tool_calls")
    for call in listed if isinstance(listed, list | tuple) else ():
        draft.call(call)
    _add_gemini_fields(draft, value)
    known = draft.done()
    if known == ParsedMessage(known.role) and "content" not in value and "parts" not in value:
        return ParsedMessage(known.role, extra=(_text(value),))
    return known


def _role(value: dict[Any, Any]) -> str:
    role = value.get("role") or value.get("author") or value.get("type")
    if role in (None, "message", "response", "request"):
        role = {"response": "assistant", "request": "user"}.get(text_of(value.get("kind") or role), "message")
    if role == "reasoning" or _is_item(role, "_call"):
        return "assistant"
    if _is_item(role, "_call_output"):
        return "tool"
    return _ROLES.get(name := text_of(role), name)


def _is_item(kind: Any, ending: str) -> bool:
    """True if an item of OpenAI's Responses is a call, or the output of one: there are many kinds of both."""
    return isinstance(kind, str) and kind.endswith(ending) and kind != ending


def _item_name(value: dict[Any, Any]) -> str:
    """The tool that an item of OpenAI's Responses calls; one that is built in is named by the item's type only."""
    return _str(value.get("name")) or _str(value.get("type")).removesuffix("_call")


def _add_gemini_fields(draft: _Draft, value: dict[Any, Any]) -> None:
    """The calls and thoughts of a line of Gemini CLI. The results follow in a line of their own."""
    calls, thoughts = value.get("toolCalls"), value.get("thoughts")
    for call in calls if isinstance(calls, list) else ():
        draft.call(call)
    for thought in thoughts if isinstance(thoughts, list) else ():
        if isinstance(thought, dict):
            parts = (thought.get("subject"), thought.get("description"))
            draft.thinking.append("".join(f"{_text(part)}\n" for part in parts if part))


def _content_of(value: dict[Any, Any]) -> Any:
    for key in ("content", "parts", "text"):
        if key in value:
            content = value[key]
            return content.get("parts", content) if isinstance(content, dict) else content
    return ""


def _has_result_blocks(value: dict[Any, Any]) -> bool:
    content = _content_of(value)
    return isinstance(content, list) and any(isinstance(b, dict) and b.get("type") in _RESULT_BLOCKS for b in content)


class _Draft:
    """A message while it is parsed."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.text: list[str] = []
        self.thinking: list[str] = []
        self.calls: list[ToolCall] = []
        self.results: list[ToolResult] = []
        self.extra: list[str] = []
        self.images: list[Image] = []

    def call(self, call: Any) -> None:
        if not isinstance(call, dict):
            self.extra.append(_text(call))
            return
        name, arguments = message_shapes.name_and_arguments(call)
        id = _first(call, "id", "tool_call_id", "call_id", "toolCallId")
        self.calls.append(ToolCall(_str(id), name, _text(arguments)))

    def result(self, block: dict[Any, Any], content: Any, *, failed: bool = False) -> None:
        id = _first(block, "tool_use_id", "tool_call_id", "toolCallId", "id")
        name = _first(block, "name", "tool_name", "toolName")
        text = _flat(self._without_images(content))
        self.results.append(ToolResult(_str(id), _str(name), text, failed or bool(block.get("is_error"))))

    def _without_images(self, content: Any) -> Any:
        """The content of a result without its images, which are the message's."""
        if not isinstance(content, list):
            return content
        found = [(block, image_of(block)) for block in content]
        self.images += [image for _, image in found if image is not None]
        return [block for block, image in found if image is None]

    def done(self) -> ParsedMessage:
        return ParsedMessage(
            self.role,
            "\n".join(self.text),
            "".join(self.thinking),
            tuple(self.calls),
            tuple(self.results),
            tuple(self.extra),
            tuple(self.images),
        )


def _add_content(draft: _Draft, content: Any) -> None:
    if isinstance(content, str):
        draft.text += [content] if content else []
    elif isinstance(content, list | tuple):
        for block in content:
            _add_block(draft, block)
    elif content is not None:
        draft.extra.append(_text(content))


def _add_block(draft: _Draft, block: Any) -> None:
    if isinstance(block, str):
        draft.text.append(block)
        return
    if isinstance(block, Unregistered):
        block = block.value
    if not isinstance(block, dict):
        draft.extra.append(_text(block))
        return
    kind = text_of(block.get("type") or block.get("part_kind") or "")
    if kind in ("tool_use", "tool-call", "tool_call"):
        draft.call(block)
    elif kind in (*_RESULT_BLOCKS, "tool-return"):
        output = _first(block, "content", "output", "result")
        wrapped = isinstance(output, dict) and set(output) == {"type", "value"}
        draft.result(block, output["value"] if wrapped else output)
    elif kind == "tool" and isinstance(state := block.get("state"), dict):
        _add_opencode_tool(draft, block, state)
    elif (image := image_of(block)) is not None:
        draft.images.append(image)
    elif kind == "thinking" or (kind == "reasoning" and isinstance(block.get("text"), str)):
        draft.thinking.append(_text(_first(block, "thinking", "content", "text")))
    elif isinstance(call := _first(block, "function_call", "functionCall"), dict):
        draft.call(call)
    elif isinstance(response := _first(block, "function_response", "functionResponse"), dict):
        answer = response.get("response")
        draft.result(response, _function_output(answer), failed=isinstance(answer, dict) and "error" in answer)
    elif isinstance(block.get("text"), str):
        draft.text.append(block["text"])
    elif isinstance(block.get("content"), str):
        draft.text.append(block["content"])
    else:
        draft.extra.append(_text(block))


def _add_opencode_tool(draft: _Draft, block: dict[Any, Any], state: dict[Any, Any]) -> None:
    """A part of opencode is a call together with its result, once it has one."""
    id, name = _str(block.get("callID")), _str(block.get("tool"))
    draft.calls.append(ToolCall(id, name, _text(state.get("input"))))
    if state.get("status") in ("completed", "error"):
        ran = state.get("metadata")
        exited = ran.get("exit") if isinstance(ran, dict) else None
        failed = state["status"] == "error" or exited not in (0, None)
        draft.results.append(ToolResult(id, name, _text(_first(state, "output", "error")), failed))


def _function_output(response: Any) -> Any:
    """The text of Google's response to a call, if it has nothing else."""
    if isinstance(response, dict) and len(response) == 1:
        [(key, value)] = response.items()
        if key in ("output", "error") and isinstance(value, str):
            return value
    return response


def _first(value: dict[Any, Any], *keys: str) -> Any:
    """The first value under one of the keys that frameworks use for it."""
    return next((value[key] for key in keys if value.get(key) is not None), None)


def _flat(value: Any) -> str:
    """A tool result as text: the texts of its blocks, or its JSON."""
    if isinstance(value, list) and all(isinstance(b, dict) and isinstance(b.get("text"), str) for b in value):
        return "\n".join(block["text"] for block in value)
    return _text(value)


def _str(value: Any) -> str:
    return "" if value is None else text_of(value)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(to_json(value), ensure_ascii=False, indent=2)
