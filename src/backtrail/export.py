"""Exports a session or a run as text, for other programs or for people.

* `jsonl`: a header line, then one message per line. `store.import_()` reads it back.
* `markdown`: a transcript. Each role is a heading; tool calls, results and anything that is not prose are fenced.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
from pathlib import Path
from typing import Any, Literal

import msgspec

from backtrail import message_shapes
from backtrail.encode.tagged_json import to_json
from backtrail.errors import Corrupt, InvalidInput, ThreadNotFound
from backtrail.history.context import Context
from backtrail.history.records import to_datetime
from backtrail.history.run_status import base_kind
from backtrail.history.thread_core import ThreadCore
from backtrail.message_shapes import Message
from backtrail.model import MAX_NUMBER, Hole, text_of
from backtrail.owned_files import replace_atomically
from backtrail.transcript_lines import is_bookkeeping

_HALVES = re.compile("[\ud800-\udfff]")  # of surrogate pairs: no file can hold them as text

FORMAT_KEY = "backtrail"  # the key in the header line of the JSONL that holds the version of the format
Format = Literal["jsonl", "markdown"]
_BACKTICKS = re.compile("`+")
_SUFFIXES: dict[str, Format] = {".md": "markdown", ".markdown": "markdown", ".jsonl": "jsonl"}


class Document(msgspec.Struct, frozen=True):
    """A session or a run, read for an export."""

    id: str
    kind: str
    created: dt.datetime
    updated: dt.datetime
    messages: list[Message | Hole]
    fields: dict[str, Any]  #: everything else in the state


async def read_document(context: Context, id: str, at: Any = None) -> Document:
    """Read a session, a run, or any thread with messages."""
    thread: ThreadCore[Any] = ThreadCore(context, id)
    context.check_open()
    head = await context.engine.head(thread.id)
    if head is None:
        raise ThreadNotFound(id)
    state = await thread.load(at, salvage=True)
    if isinstance(state, Hole):
        raise Corrupt(state.where, state.reason)
    # A session or a run may have begun without a message; in any other thread there must be a list of them.
    default: list[Message | Hole] | None = [] if base_kind(head.kind) in ("session", "run") else None
    messages = state.get("messages", default) if type(state) is dict else None
    if type(messages) is not list or not all(type(message) in (dict, Hole) for message in messages):
        raise InvalidInput(f"thread {id!r} has no list of messages to export: load() gives its state")
    fields = {name: value for name, value in state.items() if name != "messages"}
    return Document(id, base_kind(head.kind), to_datetime(head.created), to_datetime(head.updated), messages, fields)


def check_format(format: str | None, to: Any) -> Format:
    """The format by its name, or else by the suffix of the file `to`."""
    if to is not None and not isinstance(to, str | os.PathLike):
        raise InvalidInput(f"to must be a path, not {type(to).__qualname__}")
    if format is None:
        return _SUFFIXES.get(Path(to).suffix, "jsonl") if to is not None else "jsonl"
    if format not in ("jsonl", "markdown"):
        raise InvalidInput(f"format={format!r} is unknown: use 'jsonl' or 'markdown'")
    return "jsonl" if format == "jsonl" else "markdown"


def render(document: Document, format: Format) -> str:
    """The text of a document."""
    return _jsonl(document) if format == "jsonl" else _markdown(document)


def write_file(text: str, to: Any) -> Path:
    """Write a file atomically, for its owner only. A link in its place is refused."""
    path = Path(to)
    try:
        replace_atomically(path, [text.encode()])
    except OSError as error:
        raise InvalidInput(f"{str(path)!r} cannot be written: {error.strerror}") from error
    return path


# -- JSONL ------------------------------------------------------------------------------------------------------------


def _jsonl(document: Document) -> str:
    header: dict[str, Any] = {
        FORMAT_KEY: 1,
        "kind": document.kind,
        "id": document.id,
        "created_at": document.created.isoformat(),
        "updated_at": document.updated.isoformat(),
    }
    if document.kind == "run":
        header["fields"] = to_json(document.fields)
    else:
        header |= {
            name: to_json(document.fields[name]) for name in ("summary", "user_turns") if name in document.fields
        }
    return "".join(f"{_json_line(value)}\n" for value in (header, *map(to_json, document.messages)))


def _json_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


# -- Markdown ---------------------------------------------------------------------------------------------------------


def _markdown(document: Document) -> str:
    count = sum(not _is_bookkeeping(message) for message in document.messages)
    facts = [
        f"{document.kind}, {count} messages",
        f"last changed {document.updated:%Y-%m-%d %H:%M} UTC",
    ]
    facts += [
        f"{name}: {text_of(document.fields[name])}" for name in ("task", "iteration") if document.fields.get(name)
    ]
    parts = [f"# {_one_line(document.id)}", " · ".join(map(_one_line, facts))]
    if document.fields.get("system_prompt"):
        parts += ["## system prompt", text_of(document.fields["system_prompt"])]
    if document.fields.get("summary"):
        parts += ["## summary of what came before", text_of(document.fields["summary"])]
    for number, message in enumerate(document.messages, _first_number(document)):
        if isinstance(message, Hole):
            parts += [f"## damaged · {number}", _one_line(str(message))]
            continue
        if _is_bookkeeping(message):
            continue
        parts.append(f"## {_one_line(message_shapes.role(message) or 'message')} · {number}")
        parts += _paragraphs(message) or ["*(nothing)*"]
    return _HALVES.sub("\N{REPLACEMENT CHARACTER}", "\n\n".join(parts)) + "\n"


def _is_bookkeeping(message: Any) -> bool:
    """True for a line of a coding agent's transcript that is no message; it is in every other format."""
    return type(message) is dict and is_bookkeeping(message)


def _first_number(document: Document) -> int:
    """The number of the first message; a caller may have saved something else under its key."""
    first = document.fields.get("first")
    return first if type(first) is int and 0 <= first < MAX_NUMBER else 1


def _paragraphs(message: Message) -> list[str]:
    """The parts of a message in their order, each as a paragraph or a fenced block."""
    inner = message_shapes.body(message)
    parts: list[str] = []
    for key in ("content", "parts"):
        content = inner.get(key)
        for block in content if type(content) is list else [content]:
            parts += _block(block, "result" if message_shapes.role(message) in ("tool", "function") else "")
    for key in ("tool_calls", "toolCalls"):
        if type(inner.get(key)) is list:
            parts += [_call(call) for call in inner[key] if type(call) is dict]
    known = message_shapes.calls(message) or message_shapes.results(message)
    return parts or ([_fence("json", inner)] if known else [])


def _block(block: Any, kind: str) -> list[str]:
    if block is None or block == "":
        return []
    if type(block) is str:
        return [_fence(kind, block) if kind else block]
    if type(block) is not dict:
        return [_fence("", _readable_json(block))]
    text = block.get("text") if type(block.get("text")) is str else None
    if text is not None and set(block) <= {"type", "text", "annotations", "citations", "cache_control", "logprobs"}:
        return [_fence(kind, text) if kind else text] if text else []
    if block.get("part_kind") in ("text", "user-prompt", "system-prompt") and type(block.get("content")) is str:
        return [block["content"]]
    if message_shapes.calls({"content": [block]}):
        return [_call(block)]
    return [_fence("json", block)]


def _call(call: Message) -> str:
    name, arguments = message_shapes.name_and_arguments(call)
    shown = _one_line(name or "?").replace("`", " ")
    return f"calls `{shown}`\n\n{_fence('json', {} if arguments is None else arguments)}"


def _fence(language: str, value: Any) -> str:
    text = value if type(value) is str else _readable_json(value)
    longest = max(map(len, _BACKTICKS.findall(text)), default=0)
    marks = "`" * max(3, longest + 1)
    return f"{marks}{language}\n{text}\n{marks}"


def _readable_json(value: Any) -> str:
    """JSON for people: binary data is replaced by its size."""
    return json.dumps(_without_data(to_json(value)), ensure_ascii=False, indent=2)


def _without_data(value: Any) -> Any:
    if type(value) is dict:
        if "$bytes" in value:
            return f"({len(value['$bytes']) * 3 // 4:,} bytes)"
        return {key: _without_data(item) for key, item in value.items()}
    if type(value) is list:
        return [_without_data(item) for item in value]
    if type(value) is str and len(value) > 2000 and " " not in value[:2000]:
        return f"({len(value):,} characters of data)"
    return value


def _one_line(text: str) -> str:
    return " ".join(text.split())
