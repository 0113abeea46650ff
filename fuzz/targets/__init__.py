"""What is fuzzed. A target is a module with two functions: `make(rng)` makes one input as bytes, `attempt(data)` tries
it and returns if all is well. `attempt` may raise BacktrailError only."""

from __future__ import annotations

from types import ModuleType

from fuzz.targets import damage, decoders, http, importers, jsonl_lines, sqlite_rows, workspaces

TARGETS: dict[str, ModuleType] = {
    "decoders": decoders,
    "damage": damage,
    "sqlite-rows": sqlite_rows,
    "jsonl-lines": jsonl_lines,
    "importers": importers,
    "http": http,
    "workspaces": workspaces,
}
