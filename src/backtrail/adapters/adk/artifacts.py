"""Google ADK's artifact service on backtrail.

A file is one thread, a version of it one checkpoint. Equal content is stored once. A version may refer to another
artifact of the same user by its `artifact://` URI, and is loaded as that one. A rewind of a session saves an empty
version of a file that did not exist yet, which is loaded as absent.
"""

from __future__ import annotations

from typing import Any

from google.adk.artifacts import BaseArtifactService, artifact_util
from google.adk.artifacts.base_artifact_service import ArtifactVersion, ensure_part
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.platform import time as clock
from google.genai import types
from pydantic_core import to_jsonable_python

from backtrail.adapters.sync_bridge import SyncBridge, maybe_await
from backtrail.adapters.thread_ids import join_parts, split_parts
from backtrail.adapters.thread_writes import delete_if_present, retry_on_conflict
from backtrail.aio import AsyncStore
from backtrail.errors import NotFound
from backtrail.store import Store

_ID_PREFIX = "adk-artifacts"
_MAX_REFERENCES = 5  # that a load follows, as ADK's own services do
_ABSENT = (types.Part(), types.Part(inline_data=types.Blob(mime_type="application/octet-stream", data=b"")))


class BacktrailArtifactService(BaseArtifactService):
    """Artifacts on a backtrail store: a thread per file, a checkpoint per version."""

    def __init__(self, store: Store | AsyncStore) -> None:
        self.store = store
        self._bridge = SyncBridge(store)

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
        thread_id = _thread_id(app_name, user_id, session_id, filename)
        if artifact_util.is_artifact_ref(part):
            _reference(part, app_name, user_id, session_id)
        return await self._bridge.run_async(self._save(thread_id, part, custom_metadata or {}))

    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> types.Part | None:
        """A version, or the newest; None if it does not exist."""
        for _ in range(_MAX_REFERENCES + 1):
            thread_id = _thread_id(app_name, user_id, session_id, filename)
            part = await self._bridge.run_async(self._load(thread_id, version))
            if part is None or not artifact_util.is_artifact_ref(part):
                return part
            app_name, user_id, session_id, filename, version = _reference(part, app_name, user_id, session_id)
        raise InputValidationError(f"Exceeded maximum recursion depth resolving artifact reference: {filename}")

    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str | None = None) -> list[str]:
        """The names of a session's artifacts and of the user's own."""
        _check_names(app_name, user_id, session_id)
        return await self._bridge.run_async(self._keys(app_name, user_id, session_id))

    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        """Delete an artifact with all its versions."""
        thread_id = _thread_id(app_name, user_id, session_id, filename)
        await self._bridge.run_async(delete_if_present(self.store.thread(thread_id)))

    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        """The numbers of an artifact's versions."""
        thread_id = _thread_id(app_name, user_id, session_id, filename)
        return [one.version for one in await self._bridge.run_async(self._versions(thread_id))]

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        """Number, type, time and metadata of each version; no content is read."""
        return await self._bridge.run_async(self._versions(_thread_id(app_name, user_id, session_id, filename)))

    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        """Number, type, time and metadata of a version, or of the newest."""
        versions = await self._bridge.run_async(self._versions(_thread_id(app_name, user_id, session_id, filename)))
        return next((one for one in reversed(versions) if version in (None, one.version)), None)

    async def _save(self, thread_id: str, part: types.Part, metadata: dict[str, Any]) -> int:
        data, fields = None, part.model_dump(mode="json", exclude_none=True)
        mime_type = None
        if part.inline_data is not None:
            mime_type, data = part.inline_data.mime_type, part.inline_data.data
            fields["inline_data"].pop("data", None)  # stored beside the fields, as bytes and not as base64
        elif part.text is not None:
            mime_type = "text/plain"
        elif part.file_data is None:
            raise InputValidationError("Not supported artifact type.")
        elif not artifact_util.is_artifact_ref(part):
            mime_type = part.file_data.mime_type
        custom = {"metadata": to_jsonable_python(metadata), "mime_type": mime_type, "create_time": clock.get_time()}

        async def attempt() -> int:
            thread: Any = self.store.thread(thread_id)
            head = await maybe_await(thread.head)
            expect = head.id if head is not None else None
            saved = await maybe_await(thread.save({"part": fields, "data": data}, custom=custom, expect=expect))
            return int(saved.step) - 1

        return await retry_on_conflict(thread_id, attempt)

    async def _load(self, thread_id: str, version: int | None) -> types.Part | None:
        if version is not None and version < 0:
            return None
        try:
            state = await maybe_await(self.store.thread(thread_id).load(at=None if version is None else version + 1))
        except NotFound:
            return None
        part = types.Part.model_validate(state["part"])
        if part.inline_data is not None:
            part.inline_data.data = state["data"]
        return None if part in _ABSENT else part

    async def _keys(self, app: str, user: str, session: str | None) -> list[str]:
        names: list[str] = []
        for scope in [_scope_part(None)] + ([_scope_part(session)] if session is not None else []):
            infos: Any = await maybe_await(self.store.threads(prefix=join_parts(_ID_PREFIX, app, user, scope) + "/"))
            names += [split_parts(info.id)[4] for info in infos]
        return sorted(names)

    async def _versions(self, thread_id: str) -> list[ArtifactVersion]:
        history: Any = await maybe_await(self.store.thread(thread_id).history())
        return [
            ArtifactVersion(
                version=checkpoint.step - 1,
                canonical_uri=f"backtrail:///{thread_id}?version={checkpoint.step - 1}",
                custom_metadata=checkpoint.custom["metadata"],
                create_time=checkpoint.custom["create_time"],
                mime_type=checkpoint.custom["mime_type"],
            )
            for checkpoint in history
        ]


def _scope_part(session_id: str | None) -> str:
    """The part of a thread id that separates a session's artifacts from the user's own."""
    return "user" if session_id is None else f"session:{session_id}"


def _thread_id(app: str, user: str, session_id: str | None, filename: str) -> str:
    of_user = filename.startswith("user:")
    if session_id is None and not of_user:
        raise InputValidationError("Session ID must be provided for session-scoped artifacts.")
    _check_names(app, user, None if of_user else session_id)
    return join_parts(_ID_PREFIX, app, user, _scope_part(None if of_user else session_id), filename)


def _check_names(app: str, user: str, session_id: str | None) -> None:
    """Refuse names that ADK's own services refuse, because they would be paths there."""
    artifact_util.validate_path_segment(app, "app_name")
    artifact_util.validate_path_segment(user, "user_id")
    if session_id is not None:
        artifact_util.validate_path_segment(session_id, "session_id")


def _reference(
    part: types.Part, app: str, user: str, session_id: str | None
) -> tuple[str, str, str | None, str, int | None]:
    """App, user, session, file and version that a part refers to; `InputValidationError` if they are another user's or
    another session's."""
    uri = (part.file_data and part.file_data.file_uri) or ""
    parsed = artifact_util.parse_artifact_uri(uri)
    if parsed is None:
        raise InputValidationError(f"Invalid artifact reference URI: {uri}")
    artifact_util.validate_artifact_reference_scope(
        app_name=app, user_id=user, session_id=session_id, parsed_uri=parsed
    )
    return parsed.app_name, parsed.user_id, parsed.session_id, parsed.filename, parsed.version
