"""ADK's artifacts on backtrail: a thread per file, a checkpoint per version; equal content is stored once."""

from __future__ import annotations

from typing import Any

import msgspec
from google.adk.artifacts import BaseArtifactService
from google.adk.artifacts.base_artifact_service import ArtifactVersion, ensure_part
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types
from pydantic_core import to_jsonable_python

from backtrail.adapters.ids import join, split
from backtrail.adapters.sync_bridge import SyncBridge, settle
from backtrail.aio import AsyncStore
from backtrail.errors import Conflict, NotFound
from backtrail.store import Store

_ROOM = "adk-artifacts"
_ATTEMPTS = 256


class BacktrailArtifactService(BaseArtifactService):
    """ADK's artifacts on a backtrail store: a thread per file, a checkpoint per version."""

    def __init__(self, store: Store | AsyncStore) -> None:
        self.store = store
        self._colour = SyncBridge(store)

    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        """Save a new version, and return its number: 0, 1, 2, …"""
        part = ensure_part(artifact)
        name = _artifact(app_name, user_id, session_id, filename)
        return await self._colour.run(self._save(name, part, custom_metadata or {}))

    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> types.Part | None:
        """A version, or the newest; None if there is none."""
        name = _artifact(app_name, user_id, session_id, filename)
        return await self._colour.run(self._load(name, version))

    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str | None = None) -> list[str]:
        """The names of a session's artifacts and of the user's own."""
        return await self._colour.run(self._keys(app_name, user_id, session_id))

    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        """Delete an artifact with all its versions."""
        await self._colour.run(self._delete(_artifact(app_name, user_id, session_id, filename)))

    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        """The numbers of an artifact's versions."""
        name = _artifact(app_name, user_id, session_id, filename)
        return [one.version for one in await self._colour.run(self._versions(name))]

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        """What is known of each version; no content is read."""
        return await self._colour.run(self._versions(_artifact(app_name, user_id, session_id, filename)))

    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        """What is known of a version, or of the newest."""
        found = await self._colour.run(self._versions(_artifact(app_name, user_id, session_id, filename)))
        return next((one for one in reversed(found) if version in (None, one.version)), None)

    async def _save(self, name: str, part: types.Part, metadata: dict[str, Any]) -> int:
        data, fields = None, part.model_dump(mode="json", exclude_none=True)
        mime_type = "text/plain" if part.text is not None else None
        if part.inline_data is not None:
            mime_type, data = part.inline_data.mime_type, part.inline_data.data
            fields["inline_data"].pop("data", None)  # bytes are kept as bytes
        elif part.file_data is not None:
            mime_type = part.file_data.mime_type
        elif part.text is None:
            raise InputValidationError("Not supported artifact type.")
        custom = {"metadata": to_jsonable_python(metadata), "mime_type": mime_type}
        for _ in range(_ATTEMPTS):
            thread: Any = self.store.thread(name)
            head = await settle(thread.head)
            try:
                saved = await settle(
                    thread.save(
                        {"part": fields, "data": data}, custom=custom, expect=head.id if head is not None else None
                    )
                )
            except Conflict:
                continue
            return int(saved.step) - 1
        raise Conflict(name)

    async def _load(self, name: str, version: int | None) -> types.Part | None:
        if version is not None and version < 0:
            return None
        try:
            state = await settle(self.store.thread(name).load(at=None if version is None else version + 1))
        except NotFound:
            return None
        part = types.Part.model_validate_json(msgspec.json.encode(state["part"]))
        if part.inline_data is not None:
            part.inline_data.data = state["data"]
        return None if part == types.Part() else part

    async def _keys(self, app: str, user: str, session: str | None) -> list[str]:
        names: list[str] = []
        for scope in [_scope(None)] + ([_scope(session)] if session is not None else []):
            infos: Any = await settle(self.store.threads(prefix=join(_ROOM, app, user, scope) + "/"))
            names += [split(info.id)[4] for info in infos]
        return sorted(names)

    async def _versions(self, name: str) -> list[ArtifactVersion]:
        history: Any = await settle(self.store.thread(name).history())
        return [
            ArtifactVersion(
                version=one.step - 1,
                canonical_uri=f"backtrail:///{name}?version={one.step - 1}",
                custom_metadata=one.custom["metadata"],
                create_time=one.created_at.timestamp(),
                mime_type=one.custom["mime_type"],
            )
            for one in history
        ]

    async def _delete(self, name: str) -> None:
        try:
            await settle(self.store.thread(name).delete())
        except NotFound:
            return  # not there, which is what was asked for


def _scope(session_id: str | None) -> str:
    """The part of an artifact's name that tells a session's from a user's own."""
    return "user" if session_id is None else f"session:{session_id}"


def _artifact(app: str, user: str, session_id: str | None, filename: str) -> str:
    own = filename.startswith("user:")
    if session_id is None and not own:
        raise InputValidationError("Session ID must be provided for session-scoped artifacts.")
    return join(_ROOM, app, user, _scope(None if own else session_id), filename)
