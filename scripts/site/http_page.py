"""The page of all HTTP operations, from the OpenAPI document that the server hands out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import backtrail
from backtrail.server.routes import openapi


def http_page() -> str:
    """The page in Markdown."""
    document = openapi(backtrail.__version__)
    lines = [
        "# Every HTTP operation",
        "",
        "Generated from the OpenAPI document that the server hands out at `GET /api/v1/openapi.json`.",
        "[The HTTP API](../http-api.md) explains it, with access control, events and errors.",
        "",
        document["info"]["description"],
        "",
        "## Operations",
        "",
    ]
    schemas = document["components"]["schemas"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            lines += _operation(method.upper(), path, operation, schemas)
    lines += ["## Shapes", ""]
    requests = {_body(op) for ops in document["paths"].values() for op in ops.values()}
    for name, schema in schemas.items():
        if name not in requests:
            lines += [f"### {_title(name)} {{ #{_anchor(name)} }}", "", *_text(schema)]
            lines += [*_fields(schema.get("properties", {}), schema.get("required", ())), ""]
    return "\n".join(lines)


def _operation(method: str, path: str, operation: dict[str, Any], schemas: dict[str, Any]) -> Iterator[str]:
    yield f"### `{method} {path}`"
    yield ""
    yield operation["summary"]
    yield ""
    if parameters := operation.get("parameters"):
        fields = {one["name"]: one["schema"] for one in parameters}
        yield from _fields(fields, [one["name"] for one in parameters if one["required"]])
        yield ""
    if body := _body(operation):
        schema = schemas[body]
        yield from _text(schema)
        yield from _fields(schema.get("properties", {}), schema.get("required", ()))
        yield ""
    (media, content), *_ = operation["responses"]["200"]["content"].items()
    shape = _type(content["schema"])
    yield f"Returns {shape}." if media == "application/json" else f"Returns `{media}`."
    yield ""


def _body(operation: dict[str, Any]) -> str:
    """The name of the shape of the request's body; nothing if it has none."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    return str(content.get("schema", {}).get("$ref", "")).rpartition("/")[2]


def _text(schema: dict[str, Any]) -> Iterator[str]:
    if description := schema.get("description"):
        yield " ".join(description.split())
        yield ""


def _fields(fields: dict[str, Any], required: Any) -> Iterator[str]:
    if not fields:
        return
    yield "| field | type | default |"
    yield "| --- | --- | --- |"
    for name, schema in fields.items():
        default = (
            "required" if name in required else f"`{json.dumps(schema['default'])}`" if "default" in schema else ""
        )
        yield f"| `{name}` | {_type(schema)} | {default} |"


def _type(schema: dict[str, Any]) -> str:
    if reference := schema.get("$ref"):
        name = reference.rpartition("/")[2]
        return f"[{_title(name)}](#{_anchor(name)})"
    if any_of := schema.get("anyOf"):
        return " or ".join(_type(one) for one in any_of)
    if values := schema.get("enum"):
        return ", ".join(f"`{value}`" for value in values)
    kind = schema.get("type", "any value")
    if kind == "array":
        return f"array of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_type(schema['additionalProperties'])}"
    limits = [f"{word} {schema[key]:,}" for key, word in _LIMITS.items() if key in schema]
    return f"{kind} ({', '.join(limits)})" if limits else str(kind)


_LIMITS = {"minimum": "at least", "maximum": "at most", "maxLength": "characters at most", "maxItems": "items at most"}


def _title(name: str) -> str:
    """Two shapes of one name are told apart by their modules."""
    *module, title = name.split(".")
    return f"{title} ({module[-1]})" if module else title


def _anchor(name: str) -> str:
    return f"shape-{name.lower().replace('.', '-').replace('_', '-')}"
