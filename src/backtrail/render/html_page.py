"""A conversation, or two side by side, as one HTML file that opens offline: to give to somebody who has no store.

Everything that was stored is escaped text. The file loads nothing, and the only script that its own policy lets run is
the one that was put in, which is named by its hash: it turns the text into Markdown and coloured code. Without it the
same text is shown as it is. What the person chose to leave out is not in the file at all.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence
from typing import Any

from backtrail.render.message_facts import facts_of
from backtrail.render.message_parser import ParsedMessage, ToolCall, ToolResult, parse_message

LEFT_OUT = ("thinking", "arguments", "results", "system", "images", "facts")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_SCRIPT_POLICY = "; script-src 'sha256-{}'; require-trusted-types-for 'script'; trusted-types 'none'"
_STYLE = """
:root { color-scheme: light dark; --line: #ddd6ca; --soft: #6b655b; --code: #f3f0ea; --red: #b3351f; --blue: #2c62b0;
  --green: #2c7a4b; --violet: #734899; --amber: #7f5208; --plus: #e5f3ea; --minus: #fbe7e4; --paper: #fff; }
@media (prefers-color-scheme: dark) { :root { --line: #3a362f; --soft: #aba396; --code: #26241f; --red: #f5886f;
  --blue: #85b1ef; --green: #7cc796; --violet: #c3a1e3; --amber: #dfb061; --plus: #1d3226; --minus: #3b2320;
  --paper: #1c1b18; } }
body { font: 15px/1.55 system-ui, sans-serif; margin: 0 auto; padding: 24px 20px 60px; max-width: 860px;
  background: var(--paper); }
body.two { max-width: 1400px; }
.sides { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 28px; }
@media (max-width: 700px) { .sides { grid-template-columns: minmax(0, 1fr); } }
h1 { font-size: 20px; overflow-wrap: anywhere; } h2 { font-size: 16px; overflow-wrap: anywhere; }
.note { color: var(--soft); font-size: 13px; overflow-wrap: anywhere; }
article { border-left: 3px solid var(--line); padding-left: 14px; margin: 18px 0; }
header { color: var(--soft); font-size: 13px; } header b { margin-right: 8px; }
.said { white-space: pre-wrap; overflow-wrap: anywhere; margin: 6px 0; }
.said.rendered { white-space: normal; }
.said :is(h3, h4, h5, h6) { margin: 14px 0 5px; font-size: 15px; } .said p { margin: 7px 0; }
.said .tasks { list-style: none; padding-inline-start: 4px; } .said a { color: var(--blue); }
.said blockquote { margin: 8px 0; padding-inline-start: 12px; border-inline-start: 3px solid var(--line); }
.plain { white-space: pre-wrap; }
.table { overflow-x: auto; margin: 8px 0; } table { border-collapse: collapse; font-size: 14px; }
:is(th, td) { border: 1px solid var(--line); padding: 4px 10px; text-align: start; vertical-align: top; }
.right { text-align: right; } .center { text-align: center; } .unloaded { color: var(--soft); }
code, pre { font-family: ui-monospace, Menlo, Consolas, monospace; }
code { background: var(--code); border-radius: 4px; padding: 1px 4px; font-size: .92em; } pre code { padding: 0; }
pre { background: var(--code); padding: 10px 12px; border-radius: 8px; overflow: auto; white-space: pre-wrap;
  overflow-wrap: anywhere; font-size: 13px; }
.lines > :is(span, ins, del) { display: block; text-decoration: none; }
.lines ins { background: var(--plus); } .lines del { background: var(--minus); }
.t-comment, .t-prolog, .t-doctype, .t-cdata, .dim { color: var(--soft); }
.t-string, .t-char, .t-attr-value, .t-regex, .t-inserted, .t-triple-quoted-string { color: var(--green); }
.t-keyword, .t-atrule, .t-rule, .t-important, .t-boolean, .t-builtin { color: var(--violet); }
.t-number, .t-constant, .t-symbol, .t-variable { color: var(--amber); }
.t-function, .t-class-name, .t-tag, .t-property, .t-attr-name, .t-selector, .t-key { color: var(--blue); }
.t-deleted, .failed > summary { color: var(--red); }
summary { cursor: pointer; overflow-wrap: anywhere; } img { max-width: 100%; }
"""


def conversation_page(
    title: str, note: str, messages: Sequence[Any], leave_out: Sequence[str] = (), script: str = ""
) -> str:
    """One conversation. `leave_out`: some of `LEFT_OUT`; `script`: the text of a script that renders `data-as`."""
    return _page(title, f"<p class=note>{_text(note)}</p>{_articles(messages, leave_out, 1)}", script)


def comparison_page(
    title: str,
    note: str,
    sides: Sequence[tuple[str, Sequence[Any], int]],
    leave_out: Sequence[str] = (),
    script: str = "",
) -> str:
    """Conversations side by side: for each its name, its messages, and the number of the first."""
    columns = "".join(
        f"<section><h2>{_text(name)}</h2>{_articles(messages, leave_out, first)}</section>"
        for name, messages, first in sides
    )
    return _page(title, f"<p class=note>{_text(note)}</p><div class=sides>{columns}</div>", script, "two")


def _page(title: str, body: str, script: str, kind: str = "") -> str:
    policy, code = _POLICY, ""
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        policy, code = policy + _SCRIPT_POLICY.format(digest), f"<script>{script}</script>"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{_text(title)}</title>'
        f'<style>{_STYLE}</style></head><body class="{kind}"><h1>{_text(title)}</h1>{body}{code}</body></html>\n'
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
        parts.append(f'<div class="said" data-as="markdown" dir="auto">{_text(message.text)}</div>')
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
    return _fold(f"{call.name or 'tool'}: {state}", given, state == "failed", answer=answer)


def _facts(raw: Any) -> str:
    facts = facts_of(raw)
    found = [facts.model or ""]
    if facts.tokens is not None:
        found.append(f"{facts.tokens.input:,} → {facts.tokens.output:,} tokens")
    if facts.at is not None:
        found.append(facts.at.isoformat(" ", "seconds"))
    return _text(" · ".join(filter(None, found)))


def _fold(title: str, body: str, failed: bool = False, *, answer: str = "") -> str:
    inside = "".join(
        f'<pre data-as="{"json" if text.lstrip()[:1] in ("{", "[") else "text"}">{_text(text)}</pre>'
        for text in (body, answer)
        if text
    )
    return f'<details class="{"failed" if failed else ""}"><summary>{_text(title)}</summary>{inside}</details>'


def _text(value: str) -> str:
    return html.escape(value.encode("utf-8", "replace").decode("utf-8"))
