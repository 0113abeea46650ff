"""The machine and the versions that a run was measured on; with the load of others, because it is in the figures."""

from __future__ import annotations

import os
import platform
import sqlite3
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

PEERS = (
    "langgraph",
    "langgraph-checkpoint",
    "langgraph-checkpoint-sqlite",
    "openai-agents",
    "msgspec",
    "zstandard",
    "backtrail",
)


def machine(load_before: float) -> dict[str, Any]:
    """To be called at the end of a run."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load_before": round(load_before, 2),
        "load_at_end": round(os.getloadavg()[0], 2),
        "sqlite": sqlite3.sqlite_version,
        "versions": {name: version(name) for name in PEERS},
    }
