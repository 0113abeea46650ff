"""The summary of a run, small enough for the repository: medians, p99, sizes, ratios, the machine and the time.

The table of the page is made from it (`python -m bench --redraw`). The samples that it was made from stay in
bench/raw/, which git ignores.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any

from bench.measure import Series


def summarise(raw: dict[str, Any]) -> dict[str, Any]:
    """Everything but the samples."""
    found = dict(raw)
    if "w1" in raw:
        found["w1"] = {durability: _contenders(lanes) for durability, lanes in raw["w1"].items()}
    if "servers" in raw:
        found["servers"] = {
            name: lane
            for server in ("postgres", "redis")
            for name, lane in _contenders(raw["servers"], f"{server} ").items()
        }
    if "files" in raw:
        taken = {kind: _medians(raw["files"][kind]) for kind in ("seconds", "work")}
        found["files"] = {**raw["files"], **taken, "growth": _medians(raw["files"]["growth"])}
    return {key: value if key == "targets" else rounded(value) for key, value in found.items()}


def _contenders(lanes: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Each lane in a few figures. Ratios are those of the last tenth: to the floor, and to backtrail's own append."""
    series = {key: Series(lane["steps"], lane["seconds"], []) for key, lane in lanes.items() if key.startswith(prefix)}
    floor, append = (series[f"{prefix}{key}"].tenth(9) for key in ("floor", "append"))
    return {
        key: {
            "name": lanes[key]["name"],
            "median_ms": one.median * 1e3,
            **({"p99_ms": lanes[key]["p99"] * 1e3} if "p99" in lanes[key] else {}),
            "first_tenth_ms": one.tenth(0) * 1e3,
            "last_tenth_ms": one.tenth(9) * 1e3,
            "total_s": one.total,
            "to_floor": one.tenth(9) / floor,
            "to_append": one.tenth(9) / append,
        }
        for key, one in series.items()
    }


def _medians(samples: dict[str, Sequence[float]]) -> dict[str, float]:
    return {key: statistics.median(values) for key, values in samples.items() if values}


def rounded(value: Any) -> Any:
    """Floats to five significant digits: more of them is noise."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list | tuple) else value


def dumps(value: Any, indent: str = "") -> str:
    """JSON of which a diff can be read: a record, or a list of numbers, is one line."""
    inner = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(inner, list) or not any(isinstance(one, dict | list) for one in inner):
        return json.dumps(value, ensure_ascii=False)
    names = [f"{json.dumps(key)}: " for key in value] if isinstance(value, dict) else [""] * len(inner)
    lines = [f"{indent} {name}{dumps(one, indent + ' ')}" for name, one in zip(names, inner, strict=True)]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}\n" + ",\n".join(lines) + f"\n{indent}{closing}"
