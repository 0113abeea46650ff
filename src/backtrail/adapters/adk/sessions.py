"""ADK's sessions on backtrail.

A session is one backtrail thread: its events as a list, its state beside them. State for a whole user (`user:`) or app
(`app:`) has a thread of its own, and `temp:` is never stored. Each event is one checkpoint that stands on the revision
its session object was read at: a writer with an older one gets ADK's `StaleSessionError`. The newest few events are
read without the rest.
"""

from __future__ import annotations

import uuid
from typing import Any, cast

import msgspec
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.platform import time as clock
from google.adk.sessions import BaseSessionService, Session, State
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
from pydantic_core import to_jsonable_python

from backtrail.adapters.ids import join, split
from backtrail.adapters.sync_bridge import SyncBridge, settle
from backtrail.aio import AsyncStore
from backtrail.errors import Conflict, NotFound, ThreadNotFound
from backtrail.store import Store

_ROOM = "adk"
_EVENTS, _STATE, _UPDATED = "events", "state", "last_update_time"
_ATTEMPTS = 256
_WINDOW = 64  # events read at first when looking back for a time


class BacktrailSessionService(BaseSessionService):
    """ADK's sessions on a backtrail store.

    runner = Runner(app_name="shop", agent=agent, session_service=BacktrailSessionService(backtrail.open("agents.db")))
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        self.store = store
        self._colour = SyncBridge(store)

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """A new session; `AlreadyExistsError` if there is one of that id."""
        wanted = session_id.strip() if session_id else ""
        return await self._colour.run(self._create(app_name, user_id, wanted or str(uuid.uuid4()), state or {}))

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """A session, with all its events or the ones that `config` asks for; only those are read."""
        return await self._colour.run(self._get(app_name, user_id, session_id, config or GetSessionConfig()))

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """The sessions of a user, or of all, without events; the one used last comes last."""
        return ListSessionsResponse(sessions=await self._colour.run(self._list(app_name, user_id)))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session; one that is not there is no error."""
        await self._colour.run(self._delete(join(_ROOM, app_name, user_id, session_id)))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """What a user's sessions share, without the `user:` prefix."""
        return await self._colour.run(self._shared(join(_ROOM, app_name, user_id)))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Add an event to a session, here and in the store; `StaleSessionError` if another writer was faster."""
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        await self._colour.run(self._append(session, event))
        self._commit_event_to_session(session, event)
        return event

    # -- how it is done -----------------------------------------------------------------------------------------------

    def thread(self, app_name: str, user_id: str, session_id: str) -> Any:
        """The backtrail thread of a session, with its history, labels, forks and diffs."""
        return self.store.thread(join(_ROOM, app_name, user_id, session_id))

    async def _create(self, app: str, user: str, id: str, state: dict[str, Any]) -> Session:
        for_app, for_user, own = _scopes(state)
        now = clock.get_time()
        try:
            saved: Any = await settle(
                self.thread(app, user, id).save({_EVENTS: [], _STATE: own, _UPDATED: now}, expect=None)
            )
        except Conflict as error:
            raise AlreadyExistsError(f"Session with id {id} already exists.") from error
        await self._share(join(_ROOM, app), for_app)
        await self._share(join(_ROOM, app, user), for_user)
        merged = await self._merged(app, user, own)
        return _session(app, user, id, merged, [], now, saved.id)

    async def _get(self, app: str, user: str, id: str, config: GetSessionConfig) -> Session | None:
        thread = self.thread(app, user, id)
        head = await settle(thread.head)
        if head is None:
            return None
        picked = await settle(thread.pick([_STATE, _UPDATED], at=head.id))
        events = await self._events(thread, head.id, config)
        merged = await self._merged(app, user, picked[_STATE])
        return _session(app, user, id, merged, events, picked[_UPDATED], head.id)

    async def _events(self, thread: Any, at: str, config: GetSessionConfig) -> list[Event]:
        count, since = config.num_recent_events, config.after_timestamp
        if count is None and since is None:
            return _read_events((await settle(thread.pick([_EVENTS], at=at)))[_EVENTS])
        window = count if count is not None else _WINDOW
        while True:
            found: list[Any] = await settle(thread.tail(_EVENTS, window, at=at))
            if since is not None:
                late = next((i for i, event in enumerate(reversed(found)) if event["timestamp"] < since), len(found))
                whole = late < len(found) or len(found) < window or count is not None
                if not whole:
                    window *= 4
                    continue
                found = found[len(found) - late :]
            return _read_events(found)

    async def _list(self, app: str, user: str | None) -> list[Session]:
        prefix = join(_ROOM, app, *([user] if user is not None else [])) + "/"
        infos: Any = await settle(self.store.threads(prefix=prefix))
        sessions = []
        for info in infos:
            parts = split(info.id)
            if len(parts) != 4:
                continue
            picked = await settle(self.store.thread(info.id).pick([_STATE, _UPDATED]))
            merged = await self._merged(app, parts[2], picked[_STATE])
            sessions.append(_session(app, parts[2], parts[3], merged, [], picked[_UPDATED], info.head))
        return sorted(sessions, key=lambda one: (one.last_update_time, one.user_id, one.id))

    async def _append(self, session: Session, event: Event) -> None:
        thread = self.thread(session.app_name, session.user_id, session.id)
        for_app, for_user, own = _scopes(event.actions.state_delta)
        marker = session._storage_update_marker  # noqa: SLF001 - ADK's place for a service's revision
        try:
            if marker is None:  # not from this service: it stands on whatever is there
                head = await settle(thread.head)
                marker = head.id if head is not None else None
            if marker is None:
                raise ThreadNotFound(thread.id)
            changes: dict[str, Any] = {_UPDATED: event.timestamp}
            if own:
                changes[_STATE] = {**(await settle(thread.pick([_STATE], at=marker)))[_STATE], **own}
            item = event.model_dump(mode="json", exclude_none=True)
            saved = await settle(thread.update(changes, append=(_EVENTS, [item]), expect=marker))
        except NotFound as error:
            raise SessionNotFoundError(f"Session {session.id} not found.") from error
        except Conflict as error:
            if error.actual is None:
                raise SessionNotFoundError(f"Session {session.id} not found.") from error
            raise StaleSessionError(
                "The session has been changed in the store since it was read: get it again before appending to it."
            ) from error
        await self._share(join(_ROOM, session.app_name), for_app)
        await self._share(join(_ROOM, session.app_name, session.user_id), for_user)
        session._storage_update_marker = saved.id  # noqa: SLF001 - as above
        session.last_update_time = event.timestamp

    async def _share(self, name: str, delta: dict[str, Any]) -> None:
        """Set keys of a user's or an app's state; other writers' keys stay."""
        if not delta:
            return
        for _ in range(_ATTEMPTS):
            thread: Any = self.store.thread(name)
            head = await settle(thread.head)
            before = (await settle(thread.pick([_STATE], at=head.id)))[_STATE] if head is not None else {}
            try:
                await settle(thread.update({_STATE: {**before, **delta}}, expect=head.id if head is not None else None))
            except Conflict:
                continue
            return
        raise Conflict(name)

    async def _shared(self, name: str) -> dict[str, Any]:
        try:
            picked = await settle(self.store.thread(name).pick([_STATE]))
        except NotFound:
            return {}
        return cast("dict[str, Any]", picked.get(_STATE, {}))

    async def _merged(self, app: str, user: str, own: dict[str, Any]) -> dict[str, Any]:
        for_app = await self._shared(join(_ROOM, app))
        for_user = await self._shared(join(_ROOM, app, user))
        return {
            **own,
            **{State.APP_PREFIX + key: value for key, value in for_app.items()},
            **{State.USER_PREFIX + key: value for key, value in for_user.items()},
        }

    async def _delete(self, name: str) -> None:
        try:
            await settle(self.store.thread(name).delete())
        except NotFound:
            return  # not there, which is what was asked for


def _scopes(delta: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """What of a state is the app's, the user's and the session's own, as plain data."""
    scopes: tuple[dict[str, Any], dict[str, Any], dict[str, Any]] = ({}, {}, {})
    for key, value in (to_jsonable_python(delta) if delta else {}).items():
        if key.startswith(State.APP_PREFIX):
            scopes[0][key.removeprefix(State.APP_PREFIX)] = value
        elif key.startswith(State.USER_PREFIX):
            scopes[1][key.removeprefix(State.USER_PREFIX)] = value
        elif not key.startswith(State.TEMP_PREFIX):
            scopes[2][key] = value
    return scopes


def _session(
    app: str, user: str, id: str, state: dict[str, Any], events: list[Event], updated: float, marker: str
) -> Session:
    session = Session(id=id, app_name=app, user_id=user, state=state, events=events, last_update_time=updated)
    session._storage_update_marker = marker  # noqa: SLF001 - ADK's place for a service's revision
    return session


def _read_events(items: list[Any]) -> list[Event]:
    """Events from plain data; read as JSON, which is what says that bytes are in base64."""
    return [Event.model_validate_json(msgspec.json.encode(item)) for item in items]
