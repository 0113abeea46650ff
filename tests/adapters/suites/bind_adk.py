"""A pytest plugin: Google ADK's own tests get backtrail's session and artifact services for the ones of ADK.

`InMemorySessionService`, `DatabaseSessionService` and `InMemoryArtifactService` are replaced before the tests, and the
modules of ADK that make them, are imported. Each is made on a store of its own.
"""

from __future__ import annotations

from typing import Any

import bound_stores
import google.adk.artifacts
import google.adk.artifacts.in_memory_artifact_service
import google.adk.sessions
import google.adk.sessions.database_session_service
import google.adk.sessions.in_memory_session_service

from backtrail.adapters.adk import BacktrailArtifactService, BacktrailSessionService


class BoundSessionService(BacktrailSessionService):
    """backtrail's service with the constructors of ADK's."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__(bound_stores.new_store())

    async def __aenter__(self) -> BoundSessionService:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    def create_session_sync(self, **names: Any) -> Any:
        return bound_stores.finish(self.create_session(**names))

    def get_session_sync(self, **names: Any) -> Any:
        return bound_stores.finish(self.get_session(**names))

    async def close(self) -> None:
        """The store belongs to the test."""


class BoundArtifactService(BacktrailArtifactService):
    """backtrail's service with the constructor of ADK's."""

    def __init__(self) -> None:
        super().__init__(bound_stores.new_store())


for module in (
    google.adk.sessions,
    google.adk.sessions.in_memory_session_service,
    google.adk.sessions.database_session_service,
):
    for name in ("InMemorySessionService", "DatabaseSessionService"):
        if hasattr(module, name):
            setattr(module, name, BoundSessionService)
for module in (google.adk.artifacts, google.adk.artifacts.in_memory_artifact_service):
    module.InMemoryArtifactService = BoundArtifactService


def pytest_runtest_teardown() -> None:
    bound_stores.end_test()
