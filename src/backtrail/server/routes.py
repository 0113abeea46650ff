"""The table of operations: what can be asked where. Routes and the OpenAPI text are both made of it."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from backtrail.server import requests, responses
from backtrail.server.handlers import Handlers

ROOT = "/api/v1"


class Operation(NamedTuple):
    """One thing that can be asked. GET takes its parameters from the query, POST from a JSON body."""

    method: str
    path: str
    call: Callable[[Handlers, Any], Any]

    @property
    def writes(self) -> bool:
        return self.method == "POST"

    @property
    def asked(self) -> type[requests.Ask]:
        """The type of the parameters."""
        hints = typing.get_type_hints(self.call)
        return next(hint for name, hint in hints.items() if name != "return")  # type: ignore[no-any-return]

    @property
    def told(self) -> Any:
        """The type of the answer."""
        return typing.get_type_hints(self.call)["return"]


OPERATIONS = (
    Operation("GET", "/store", Handlers.about),
    Operation("GET", "/threads", Handlers.threads),
    Operation("GET", "/thread", Handlers.thread),
    Operation("GET", "/history", Handlers.history),
    Operation("GET", "/sizes", Handlers.sizes),
    Operation("GET", "/checkpoint", Handlers.checkpoint),
    Operation("GET", "/messages", Handlers.messages),
    Operation("GET", "/state", Handlers.state),
    Operation("GET", "/diff", Handlers.diff),
    Operation("GET", "/files", Handlers.files),
    Operation("POST", "/save", Handlers.save),
    Operation("POST", "/append", Handlers.append),
    Operation("POST", "/update", Handlers.update),
    Operation("POST", "/fork", Handlers.fork),
    Operation("POST", "/rewind", Handlers.rewind),
    Operation("POST", "/undo", Handlers.undo),
    Operation("POST", "/annotate", Handlers.annotate),
    Operation("POST", "/delete", Handlers.delete),
)
STREAMS = (
    ("/export", requests.AskExport, "A checkpoint as a file: JSON, messages line by line, or Markdown.", "text/plain"),
    (
        "/events",
        requests.AskNothing,
        "Server-sent events: `threads` with what changed and what is gone, for as long as the connection is open.",
        "text/event-stream",
    ),
)


def openapi(version: str) -> dict[str, Any]:
    """The API in OpenAPI 3.1."""
    types = [op.asked for op in OPERATIONS if op.writes] + [op.told for op in OPERATIONS] + [responses.Refusal]
    _, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {ROOT + op.path: {op.method.lower(): _describe(op)} for op in OPERATIONS}
    for path, asked, summary, media in STREAMS:
        paths[ROOT + path] = {
            "get": {
                "operationId": path.strip("/"),
                "summary": summary,
                "parameters": _parameters(asked),
                "responses": {"200": {"description": "The text.", "content": {media: {"schema": {"type": "string"}}}}}
                | _refusals(),
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "backtrail",
            "version": version,
            "description": "A backtrail store over HTTP. Every call needs the header `Authorization: Bearer <token>`.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _describe(op: Operation) -> dict[str, Any]:
    told = {"$ref": f"#/components/schemas/{op.told.__name__}"}
    described: dict[str, Any] = {
        "operationId": op.path.strip("/"),
        "summary": " ".join((op.call.__doc__ or "").split()),
        "responses": {"200": {"description": "The answer.", "content": {"application/json": {"schema": told}}}}
        | _refusals(),
    }
    if op.writes:
        body = {"$ref": f"#/components/schemas/{op.asked.__name__}"}
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    else:
        described["parameters"] = _parameters(op.asked)
    return described


def _refusals() -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Refusal"}
    return {"default": {"description": "A refusal.", "content": {"application/json": {"schema": schema}}}}


def _parameters(asked: type[requests.Ask]) -> list[dict[str, Any]]:
    _, components = msgspec.json.schema_components([asked])
    schema = components[asked.__name__]
    return [
        {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": field}
        for name, field in schema.get("properties", {}).items()
    ]
