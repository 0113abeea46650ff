"""Google ADK: `ClewSessionService` and `ClewArtifactService`, and `register()` for ADK's command line."""

from __future__ import annotations

import clew
from clew.adapters.needed import needed
from clew.store import Store

with needed("adk"):
    from google.adk.cli.service_registry import get_service_registry

    from clew.adapters.adk.artifacts import ClewArtifactService
    from clew.adapters.adk.sessions import ClewSessionService

__all__ = ["ClewArtifactService", "ClewSessionService", "register"]

_SCHEMES = ("sqlite", "memory", "jsonl", "redis", "rediss", "postgresql", "postgres")


def register() -> None:
    """Let ADK's command line open clew stores: `clew+sqlite:///agents.db`, `clew+postgresql://…`, `clew+redis://…`.

    Call it in the `services.py` of your agents' directory.
    """
    registry = get_service_registry()
    for scheme in _SCHEMES:
        registry.register_session_service(f"clew+{scheme}", lambda uri, **_: ClewSessionService(_open(uri)))
        registry.register_artifact_service(f"clew+{scheme}", lambda uri, **_: ClewArtifactService(_open(uri)))


def _open(uri: str) -> Store:
    url = uri.removeprefix("clew+")
    return clew.open("memory:" if url.startswith("memory:") else url)
