"""Google ADK: `BacktrailSessionService` and `BacktrailArtifactService`, and `register()` for ADK's command line."""

from __future__ import annotations

import backtrail
from backtrail.adapters.optional_import import require_extra
from backtrail.store import Store

with require_extra("adk"):
    from google.adk.cli.service_registry import get_service_registry

    from backtrail.adapters.adk.artifacts import BacktrailArtifactService
    from backtrail.adapters.adk.sessions import BacktrailSessionService

__all__ = ["BacktrailArtifactService", "BacktrailSessionService", "register"]

_SCHEMES = ("sqlite", "memory", "jsonl", "redis", "rediss", "postgresql", "postgres")


def register() -> None:
    """Let ADK's command line open backtrail stores.

    Call it in the `services.py` of your agents' directory; then ADK takes URLs such as `backtrail+sqlite:///agents.db`,
    `backtrail+postgresql://…` and `backtrail+redis://…`.
    """
    registry = get_service_registry()
    for scheme in _SCHEMES:
        registry.register_session_service(f"backtrail+{scheme}", lambda uri, **_: BacktrailSessionService(_open(uri)))
        registry.register_artifact_service(f"backtrail+{scheme}", lambda uri, **_: BacktrailArtifactService(_open(uri)))


def _open(uri: str) -> Store:
    url = uri.removeprefix("backtrail+")
    return backtrail.open("memory:" if url.startswith("memory:") else url)
