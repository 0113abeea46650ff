"""A model server on loopback that speaks like four model APIs, so that real coding agents run without a network.

It answers Anthropic's Messages, OpenAI's Responses and Chat Completions, and Gemini's generateContent. A prompt with
`RUN:command ENDRUN` is answered with a call of the agent's shell tool, one with `CALL:tool {…} ENDCALL` with a call of
that tool of our MCP server, every other one with "reply number n". It keeps each request, so that a test can see
exactly what the model was shown: that is what a rewind must change.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

_RUN = re.compile(r"RUN:(.*?)ENDRUN", re.DOTALL)
_CALL = re.compile(r"CALL:(\w+) (\{.*?\}) ENDCALL", re.DOTALL)
_PROMPT = re.compile(r"PROMPT-[\w-]+")
_REPLY = re.compile(r"reply number \d+")


class Request(NamedTuple):
    """One request to the model."""

    path: str
    body: dict[str, Any]

    @property
    def shown(self) -> list[str]:
        """The conversation in the request, in order: `PROMPT-…` of prompts, "ran …" for calls of the shell tool, and
        the model's own replies; without the agent's system prompts and reminders."""
        found: list[str] = []
        for item in _items(self.body):
            found += _shown(item)
        return found


class ModelServer:
    """The server, and the requests that it got."""

    def __init__(self, server: ThreadingHTTPServer) -> None:
        self._server = server
        self._lock = threading.Lock()
        self.requests: list[Request] = []
        self.hold: str | None = None  #: requests whose conversation ends with this get no answer until `release`
        self.holding = threading.Event()  #: set as soon as there is such a request
        self._released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def add(self, request: Request) -> int:
        """Keep a request; returns its number."""
        with self._lock:
            self.requests.append(request)
            return len(self.requests)

    def answer(self, request: Request) -> None:
        """Wait while the request must not be answered."""
        if self.hold is not None and request.shown[-1:] == [self.hold]:
            self.holding.set()
            self._released.wait()

    def release(self) -> None:
        """Answer everything."""
        self.hold = None
        self._released.set()

    def last_shown(self, prompt: str) -> list[str]:
        """The conversation in the first request that holds this prompt as its last one."""
        for request in self.requests:
            shown = request.shown
            if shown and shown[-1] == prompt:
                return shown
        raise AssertionError(f"the model was never asked {prompt}: {[r.shown for r in self.requests]}")


@contextmanager
def model_server() -> Iterator[ModelServer]:
    """A running server."""

    class Handler(_Handler):
        pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Handler.model = ModelServer(server)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield Handler.model
        finally:
            Handler.model.release()
            server.shutdown()
            thread.join()


def _items(body: dict[str, Any]) -> list[Any]:
    """The items of the conversation, whatever the API."""
    given = body.get("messages") or body.get("input") or body.get("contents") or []
    return given if isinstance(given, list) else []


def _shown(item: dict[str, Any]) -> list[str]:
    content = item.get("content", item.get("parts"))
    parts = [{"text": content}] if isinstance(content, str) else list(content or [])
    parts += item.get("tool_calls") or []
    if item.get("type") == "function_call":
        parts.append(item)
    found: list[str] = []
    for part in parts:
        call = part.get("input") or part.get("function") or part.get("functionCall") or part
        arguments = call.get("arguments", call.get("args", call)) if isinstance(call, dict) else {}
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        command = arguments.get("command", arguments.get("cmd")) if isinstance(arguments, dict) else None
        if command is not None:
            found.append(f"ran {command}")
        elif isinstance(text := part.get("text"), str):
            found += _PROMPT.findall(text)[:1] + _REPLY.findall(text)[:1]
    return found


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content or [] if isinstance(part, dict))


def _asked_command(text: str) -> str | None:
    found = _RUN.findall(text)
    return found[-1].strip() if found else None


def _asked_tool(text: str, declared: list[Any]) -> tuple[str, dict[str, Any]] | None:
    """The tool of the MCP server that a prompt asks for, by the name that the agent gave it, and the arguments."""
    found = _CALL.findall(text)
    if not found:
        return None
    tool, arguments = found[-1]
    names = [name for name in declared if isinstance(name, str)]
    named = [name for name in names if name.endswith((f"backtrail__{tool}", f"backtrail_{tool}"))]
    plain = arguments.replace('\\"', '"')  # `opencode run` quotes what has spaces
    return (named[0] if named else f"mcp__backtrail__{tool}"), json.loads(plain)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model: ModelServer

    def log_message(self, *args: Any) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        self._send(b"")

    def do_GET(self) -> None:
        self._send({"models": [], "data": []})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        path = self.path.partition("?")[0]
        if "count_tokens" in path or "countTokens" in path:
            self._send({"input_tokens": 10, "totalTokens": 10})
            return
        request = Request(path, body)
        number = self.model.add(request)
        self.model.answer(request)
        if path.endswith("/messages"):
            self._anthropic(body, number)
        elif path.endswith("/responses"):
            self._responses(body, number)
        elif path.endswith("/chat/completions"):
            self._chat(body, number)
        elif "enerateContent" in path:
            self._gemini(body, number, streamed="stream" in path)
        else:
            self._send({})

    def _send(self, body: Any, kind: str = "application/json") -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except ConnectionError:
            self.close_connection = True  # the agent was killed while it waited

    def _stream(self, events: list[dict[str, Any]]) -> None:
        lines = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        self._send(lines.encode(), "text/event-stream")

    def _anthropic(self, body: dict[str, Any], number: int) -> None:
        last = next((m for m in reversed(body.get("messages", [])) if m["role"] == "user"), {"content": ""})
        answered = isinstance(last["content"], list) and any(p.get("type") == "tool_result" for p in last["content"])
        has_shell = any(tool.get("name") == "Bash" for tool in body.get("tools", []))
        command = _asked_command(_text(last["content"])) if has_shell and not answered else None
        declared = [tool.get("name") for tool in body.get("tools", [])]
        asked = _asked_tool(_text(last["content"]), declared) if has_shell and not answered else None
        if command is None and asked is None:
            block: dict[str, Any] = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": f"reply number {number}"}
        else:
            name, call = asked or ("Bash", {"command": command, "description": "as asked"})
            block = {"type": "tool_use", "id": f"toolu_{number:04d}", "name": name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(call)}
        message = {
            "id": f"msg_{number:04d}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model", "m"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 10, "output_tokens": 1},
        }
        if not body.get("stream"):
            self._send({**message, "content": [{"type": "text", "text": "ok"}], "stop_reason": "end_turn"})
            return
        reason = "end_turn" if command is None and asked is None else "tool_use"
        self._stream(
            [
                {"type": "message_start", "message": message},
                {"type": "content_block_start", "index": 0, "content_block": block},
                {"type": "content_block_delta", "index": 0, "delta": delta},
                {"type": "content_block_stop", "index": 0},
                {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}},
                {"type": "message_stop"},
            ]
        )

    def _responses(self, body: dict[str, Any], number: int) -> None:
        last = (body.get("input") or [{}])[-1]
        is_prompt = last.get("type") == "message" and last.get("role") == "user"
        command = _asked_command(_text(last.get("content"))) if is_prompt else None
        asked = _asked_tool(_text(last.get("content")), []) if is_prompt else None
        if asked is not None:
            space, _, tool = asked[0].rpartition("__")  # Codex groups the tools of a server under a name
            item = {"type": "function_call", "call_id": f"call_{number}", "name": tool, "namespace": space}
            item["arguments"] = json.dumps(asked[1])
        elif command is None:
            content = [{"type": "output_text", "text": f"reply number {number}"}]
            item = {"type": "message", "role": "assistant", "id": f"msg_{number}", "content": content}
        else:
            tools = [tool.get("name") or tool.get("type") for tool in body.get("tools", [])]
            name, arguments = "shell", {"command": ["bash", "-lc", command]}
            if "exec_command" in tools:
                name, arguments = "exec_command", {"cmd": command}  # type: ignore[dict-item]
            elif "shell_command" in tools:
                name, arguments = "shell_command", {"command": command}  # type: ignore[dict-item]
            item = {"type": "function_call", "call_id": f"call_{number}", "name": name}
            item["arguments"] = json.dumps(arguments)
        usage = dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), 0)
        details = dict.fromkeys(("input_tokens_details", "output_tokens_details"))
        done = {"id": f"resp_{number}", "usage": {**usage, **details}}
        self._stream(
            [
                {"type": "response.created", "response": {"id": f"resp_{number}"}},
                {"type": "response.output_item.done", "item": item},
                {"type": "response.completed", "response": done},
            ]
        )

    def _chat(self, body: dict[str, Any], number: int) -> None:
        last = body["messages"][-1]
        has_shell = any(tool.get("function", {}).get("name") == "bash" for tool in body.get("tools", []))
        declared = [tool.get("function", {}).get("name") for tool in body.get("tools", [])]
        is_prompt = has_shell and last["role"] == "user"
        command = _asked_command(_text(last.get("content"))) if is_prompt else None
        asked = _asked_tool(_text(last.get("content")), declared) if is_prompt else None
        delta: dict[str, Any]
        if command is None and asked is None:
            delta, reason = {"role": "assistant", "content": f"reply number {number}"}, "stop"
        else:
            name, arguments = asked or ("bash", {"command": command, "description": "as asked"})
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
            delta, reason = {"role": "assistant", "tool_calls": [call]}, "tool_calls"
        base = {"id": f"c{number}", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        chunks = [
            {**base, "choices": [{"delta": delta, "index": 0, "finish_reason": None}]},
            {**base, "choices": [{"delta": {}, "index": 0, "finish_reason": reason}]},
            {**base, "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}},
        ]
        lines = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
        self._send(lines.encode(), "text/event-stream")

    def _gemini(self, body: dict[str, Any], number: int, *, streamed: bool) -> None:
        last = (body.get("contents") or [{}])[-1]
        declared = [f.get("name") for tool in body.get("tools", []) for f in tool.get("functionDeclarations", [])]
        command = _asked_command(_text(last.get("parts"))) if "run_shell_command" in declared else None
        asked = _asked_tool(_text(last.get("parts")), declared) if "run_shell_command" in declared else None
        part: dict[str, Any] = {"text": f"reply number {number}"}
        if command is not None or asked is not None:
            name, arguments = asked or ("run_shell_command", {"command": command, "description": "as asked"})
            part = {"functionCall": {"name": name, "args": arguments}}
        answer = {
            "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
            "modelVersion": "m",
        }
        if streamed:
            self._send(f"data: {json.dumps(answer)}\n\n".encode(), "text/event-stream")
        else:
            self._send(answer)
