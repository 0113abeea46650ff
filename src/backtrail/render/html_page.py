"""A conversation, or two side by side, as one HTML file that opens offline: to give to somebody who has no store.

Everything that was stored is escaped text. The file has no script and loads nothing: its own policy forbids both. What
the person chose to leave out is not in it at all.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence
from typing import Any

from backtrail.render.message_facts import facts_of
from backtrail.render.message_parser import ParsedMessage, ToolCall, ToolResult, parse_message

LEFT_OUT = ("thinking", "arguments", "results", "system", "images", "facts")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_FENCE = re.compile(r"^```[^\n]*\n(.*?)(?:^```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_STYLE = """
:root { color-scheme: light dark; --line: #ddd6ca; --soft: #6b655b; --code: #f3f0ea; --red: #b3351f; }
@media (prefers-color-scheme: dark) { :root { --line: #3a362f; --soft: #aba396; --code: #26241f; --red: #f5886f; } }
body { font: 15px/1.55 system-ui, sans-serif; margin: 0 auto; padding: 24px 20px 60px; max-width: 860px; }
body.two { max-width: 1400px; }
.sides { display: grid; grid-template-columns: 1fr 1fr; gap: 28px; }
@media (max-width: 700px) { .sides { grid-template-columns: 1fr; } }
h1 { font-size: 20px; overflow-wrap: anywhere; } h2 { font-size: 16px; overflow-wrap: anywhere; }
.note { color: var(--soft); font-size: 13px; }
article { border-left: 3px solid var(--line); padding-left: 14px; margin: 18px 0; }
header { color: var(--soft); font-size: 13px; } header b { margin-right: 8px; }
p { white-space: pre-wrap; overflow-wrap: anywhere; margin: 6px 0; }
pre { background: var(--code); padding: 10px 12px; border-radius: 8px; overflow: auto; white-space: pre-wrap;
  overflow-wrap: anywhere; font-size: 13px; }
summary { cursor: pointer; overflow-wrap: anywhere; } .failed summary { color: var(--red); }
img { max-width: 100%; }
"""


def conversation_page(title: str, note: str, messages: Sequence[Any], leave_out: Sequence[str] = ()) -> str:
    """One conversation. `leave_out`: some of `LEFT_OUT`."""
    return _page(title, f"<p class=note>{_text(note)}</p>{_articles(messages, leave_out, 1)}")


def comparison_page(
    title: str, note: str, sides: Sequence[tuple[str, Sequence[Any], int]], leave_out: Sequence[str] = ()
) -> str:
    """Conversations side by side: for each its name, its messages, and the number of the first."""
    columns = "".join(
        f"<section><h2>{_text(name)}</h2>{_articles(messages, leave_out, first)}</section>"
        for name, messages, first in sides
    )
    return _page(title, f"<p class=note>{_text(note)}</p><div class=sides>{columns}</div>", "two")


def _page(title: str, body: str, kind: str = "") -> str:
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{_text(title)}</title>'
        f'<style>{_STYLE}</style></head><body class="{kind}"><h1>{_text(title)}</h1>{body}</body></html>\n'
    )


def _articles(messages: Sequence[Any], leave_out: Sequence[str], first: int) -> str:
    results: dict[str, ToolResult] = {}
    parsed = [parse_message(message) for message in messages]
    for message in parsed:
        results |= {result.id: result for result in message.results if result.id}
    called = {call.id for message in parsed for call in message.calls}
    shown = []
    for number, (raw, message) in enumerate(zip(messages, parsed, strict=True), first):
        if message.bookkeeping or (message.role == "system" and "system" in leave_out):
            continue
        facts = "" if "facts" in leave_out else _facts(raw)
        body = _message(message, results, called, leave_out)
        if body:
            head = f"<header><b>{_text(message.role)}</b>#{number} {facts}</header>"
            shown.append(f"<article>{head}{body}</article>")
    return "\n".join(shown)


def _message(message: ParsedMessage, results: dict[str, ToolResult], called: set[str], leave_out: Sequence[str]) -> str:
    parts = []
    if message.thinking and "thinking" not in leave_out:
        parts.append(_fold("Thinking", message.thinking))
    if message.text:
        parts.append(_prose(message.text))
    parts += [_call(call, results.get(call.id), leave_out) for call in message.calls]
    if "results" not in leave_out:
        loose = [result for result in message.results if result.id not in called]
        parts += [_fold(result.name or "result", result.text, result.failed) for result in loose]
    parts += [_fold("more", extra) for extra in message.extra]
    if "images" not in leave_out:
        for image in message.images:
            data = base64.b64encode(image.data).decode()
            source = f'<img alt="" src="data:{_text(image.media_type)};base64,{data}">'
            parts.append(source if image.data else f"<p class=note>image at {_text(image.url)}</p>")
    return "".join(parts)


def _call(call: ToolCall, result: ToolResult | None, leave_out: Sequence[str]) -> str:
    given = "" if "arguments" in leave_out else call.arguments
    answer = result.text if result is not None and "results" not in leave_out else ""
    state = "no result" if result is None else "failed" if result.failed else "done"
    return _fold(f"{call.name or 'tool'}: {state}", "\n\n".join(filter(None, (given, answer))), state == "failed")


def _facts(raw: Any) -> str:
    facts = facts_of(raw)
    found = [facts.model or ""]
    if facts.tokens is not None:
        found.append(f"{facts.tokens.input:,} → {facts.tokens.output:,} tokens")
    if facts.at is not None:
        found.append(facts.at.isoformat(" ", "seconds"))
    return _text(" · ".join(filter(None, found)))


def _fold(title: str, body: str, failed: bool = False) -> str:
    inside = f"<pre>{_text(body)}</pre>" if body else ""
    return f'<details class="{"failed" if failed else ""}"><summary>{_text(title)}</summary>{inside}</details>'


def _prose(text: str) -> str:
    """Text in fences becomes code; all of it stays text."""
    parts, at = [], 0
    for fence in _FENCE.finditer(text):
        parts += [f'<p dir="auto">{_text(text[at : fence.start()].strip())}</p>', f"<pre>{_text(fence[1])}</pre>"]
        at = fence.end()
    parts.append(f'<p dir="auto">{_text(text[at:].strip())}</p>')
    return "".join(parts).replace('<p dir="auto"></p>', "")


def _text(value: str) -> str:
    return html.escape(value.encode("utf-8", "replace").decode("utf-8"))
