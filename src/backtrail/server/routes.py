"""The table of the API's operations, from which the routes and the OpenAPI document are made."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from backtrail.server import requests, responses
from backtrail.server.handlers import Handlers

ROOT = "/api/v1"


class Operation(NamedTuple):
    """One operation of the API. GET takes its parameters from the query, POST from a JSON body."""

    method: str
    path: str
    call: Callable[[Handlers, Any], Any]

    @property
    def writes(self) -> bool:
        return self.method == "POST"

    @property
    def request_type(self) -> type[requests.ApiRequest]:
        """The type of the parameters."""
        hints = typing.get_type_hints(self.call)
        return next(hint for name, hint in hints.items() if name != "return")  # type: ignore[no-any-return]

    @property
    def response_type(self) -> Any:
        """The type of the response."""
        return typing.get_type_hints(self.call)["return"]


OPERATIONS = (
    Operation("GET", "/store", Handlers.store_info),
    Operation("GET", "/threads", Handlers.threads),
    Operation("GET", "/thread", Handlers.thread),
    Operation("GET", "/history", Handlers.history),
    Operation("GET", "/steps", Handlers.steps),
    Operation("GET", "/sizes", Handlers.sizes),
    Operation("GET", "/checkpoint", Handlers.checkpoint),
    Operation("GET", "/messages", Handlers.messages),
    Operation("GET", "/conversation", Handlers.conversation),
    Operation("GET", "/state", Handlers.state),
    Operation("GET", "/diff", Handlers.diff),
    Operation("GET", "/comparison", Handlers.comparison),
    Operation("GET", "/value", Handlers.value),
    Operation("GET", "/files", Handlers.files),
    Operation("GET", "/tree", Handlers.tree),
    Operation("GET", "/run", Handlers.run),
    Operation("GET", "/pending", Handlers.pending),
    Operation("GET", "/health", Handlers.health_report),
    Operation("GET", "/turns", Handlers.turns),
    Operation("GET", "/turn", Handlers.turn),
    Operation("POST", "/save", Handlers.save),
    Operation("POST", "/append", Handlers.append),
    Operation("POST", "/update", Handlers.update),
    Operation("POST", "/fork", Handlers.fork),
    Operation("POST", "/edit", Handlers.edit),
    Operation("POST", "/rewind", Handlers.rewind),
    Operation("POST", "/undo", Handlers.undo),
    Operation("POST", "/redo", Handlers.redo),
    Operation("POST", "/answer", Handlers.answer),
    Operation("POST", "/fork_run", Handlers.fork_run),
    Operation("POST", "/resubmit", Handlers.resubmit),
    Operation("POST", "/annotate", Handlers.annotate),
    Operation("POST", "/delete", Handlers.delete),
)
STREAMS = (
    (
        "/export",
        requests.ExportRequest,
        "A checkpoint as a file: JSON, messages line by line, or Markdown.",
        "text/plain",
    ),
    (
        "/image",
        requests.ImageRequest,
        "An image of a message, as bytes.",
        "image/*",
    ),
    (
        "/file",
        requests.TreeRequest,
        "A file of a snapshot, as bytes.",
        "application/octet-stream",
    ),
    (
        "/find",
        requests.FindRequest,
        "Messages or checkpoints, one JSON object per line, each sent as soon as it is found.",
        "application/x-ndjson",
    ),
    (
        "/events",
        requests.EmptyRequest,
        "Server-sent events: `threads` with changed and deleted threads, for as long as the connection is open.",
        "text/event-stream",
    ),
)


def openapi(version: str) -> dict[str, Any]:
    """The API as an OpenAPI 3.1 document."""
    types = (
        [op.request_type for op in OPERATIONS if op.writes]
        + [op.response_type for op in OPERATIONS]
        + [responses.ErrorResponse]
    )
    _, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    paths: dict[str, Any] = {ROOT + op.path: {op.method.lower(): _describe(op)} for op in OPERATIONS}
    for path, request_type, summary, media in STREAMS:
        paths[ROOT + path] = {
            "get": {
                "operationId": path.strip("/"),
                "summary": summary,
                "parameters": _parameters(request_type),
                "responses": {"200": {"description": "The text.", "content": {media: {"schema": {"type": "string"}}}}}
                | _errors(),
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
    response = {"$ref": f"#/components/schemas/{op.response_type.__name__}"}
    described: dict[str, Any] = {
        "operationId": op.path.strip("/"),
        "summary": " ".join((op.call.__doc__ or "").split()),
        "responses": {"200": {"description": "The result.", "content": {"application/json": {"schema": response}}}}
        | _errors(),
    }
    if op.writes:
        body = {"$ref": f"#/components/schemas/{op.request_type.__name__}"}
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    else:
        described["parameters"] = _parameters(op.request_type)
    return described


def _errors() -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/ErrorResponse"}
    return {"default": {"description": "An error.", "content": {"application/json": {"schema": schema}}}}


def _parameters(request_type: type[requests.ApiRequest]) -> list[dict[str, Any]]:
    _, components = msgspec.json.schema_components([request_type])
    schema = components[request_type.__name__]
    return [
        {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": field}
        for name, field in schema.get("properties", {}).items()
    ]
