"""Google ADK's session service on backtrail.

A session is one backtrail thread: its events as a list, its state beside them. State of a user (`user:`) and of an app
(`app:`) has a thread of its own, and `temp:` is never stored. Each event is one checkpoint that expects the revision
its session object was read at: a writer with an older one gets ADK's `StaleSessionError`. The newest few events are
read without the rest. Values in a state become JSON as in ADK's own database services: what JSON does not have is
written as pydantic writes it, and what pydantic does not know as its `repr`.
"""

from __future__ import annotations

import logging
import weakref
from typing import Any, cast

import anyio
import anyio.lowlevel
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.platform import time as clock
from google.adk.platform import uuid as random_ids
from google.adk.sessions import BaseSessionService, Session, State
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
from pydantic_core import PydanticSerializationError, to_jsonable_python

from backtrail.adapters.sync_bridge import SyncBridge, maybe_await
from backtrail.adapters.thread_ids import join_parts, split_parts
from backtrail.adapters.thread_writes import delete_if_present, retry_on_conflict
from backtrail.aio import AsyncStore
from backtrail.errors import Conflict, NotFound, ThreadNotFound
from backtrail.store import Store

_ID_PREFIX = "adk"
_EVENTS, _STATE, _UPDATED = "events", "state", "last_update_time"  # keys of a thread's state
_FIRST_WINDOW = 64  # events that a search by time reads at first
_STALE = "The session has been modified in storage since it was read: get it again before appending to it."
_logger = logging.getLogger(__name__)


class BacktrailSessionService(BaseSessionService):
    """Sessions on a backtrail store.

    runner = Runner(app_name="shop", agent=agent, session_service=BacktrailSessionService(backtrail.open("agents.db")))
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        self.store = store
        self._bridge = SyncBridge(store)
        self._turns: weakref.WeakValueDictionary[Any, anyio.Lock] = weakref.WeakValueDictionary()

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session; `AlreadyExistsError` if the id is taken."""
        id = (session_id or "").strip() or random_ids.new_uuid()
        return await self._bridge.run_async(self._create(app_name, user_id, id, state or {}))

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """A session, with all its events or the ones that `config` asks for; only those are read."""
        id = session_id.strip()
        return await self._bridge.run_async(self._get(app_name, user_id, id, config or GetSessionConfig()))

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """The sessions of a user, or of all users, without events; the one used last comes last."""
        return ListSessionsResponse(sessions=await self._bridge.run_async(self._list(app_name, user_id)))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session; a missing one is not an error."""
        await self._bridge.run_async(delete_if_present(self.thread(app_name, user_id, session_id.strip())))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """The state that a user's sessions share, without the `user:` prefix."""
        return await self._bridge.run_async(self._shared_state(join_parts(_ID_PREFIX, app_name, user_id)))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Add an event to the session object and to the store; `StaleSessionError` if another writer was faster."""
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        async with self._turn(session):
            await self._bridge.run_async(self._append(session, event))
            self._commit_event_to_session(session, event)
        return event

    def _turn(self, session: Session) -> anyio.Lock:
        """Held while an event is appended: tasks that share a session object, as those of a live run do, follow each
        other, and none finds the session changed by another."""
        key = (anyio.lowlevel.current_token(), session.app_name, session.user_id, session.id)
        return self._turns.setdefault(key, anyio.Lock())

    def thread(self, app_name: str, user_id: str, session_id: str) -> Any:
        """The backtrail thread of a session, with its history, labels, forks and diffs."""
        return self.store.thread(join_parts(_ID_PREFIX, app_name, user_id, session_id))

    # -- sessions -----------------------------------------------------------------------------------------------------

    async def _create(self, app: str, user: str, id: str, state: dict[str, Any]) -> Session:
        app_state, user_state, own = _split_by_scope(state)
        now = clock.get_time()
        try:
            saved: Any = await maybe_await(
                self.thread(app, user, id).save({_EVENTS: [], _STATE: own, _UPDATED: now}, expect=None)
            )
        except Conflict as error:
            raise AlreadyExistsError(f"Session with id {id} already exists.") from error
        await self._update_shared_state(join_parts(_ID_PREFIX, app), app_state)
        await self._update_shared_state(join_parts(_ID_PREFIX, app, user), user_state)
        merged = await self._with_shared_state(app, user, own)
        return _session(app, user, id, merged, [], now, saved.id)

    async def _get(self, app: str, user: str, id: str, config: GetSessionConfig) -> Session | None:
        thread = self.thread(app, user, id)
        head = await maybe_await(thread.head)
        if head is None:
            return None
        picked = await maybe_await(thread.pick([_STATE, _UPDATED], at=head.id))
        events = await self._events(thread, head.id, config)
        merged = await self._with_shared_state(app, user, picked[_STATE])
        return _session(app, user, id, merged, events, picked[_UPDATED], head.id)

    async def _events(self, thread: Any, at: str, config: GetSessionConfig) -> list[Event]:
        count, since = config.num_recent_events, config.after_timestamp
        if count is None and since is None:
            return _read_events((await maybe_await(thread.pick([_EVENTS], at=at)))[_EVENTS])
        window = count if count is not None else _FIRST_WINDOW
        while True:
            newest: list[Any] = await maybe_await(thread.tail(_EVENTS, window, at=at))
            if since is None:
                return _read_events(newest)
            late = next((i for i, event in enumerate(reversed(newest)) if event["timestamp"] < since), len(newest))
            if late < len(newest) or len(newest) < window or count is not None:
                return _read_events(newest[len(newest) - late :])
            window *= 4

    async def _list(self, app: str, user: str | None) -> list[Session]:
        prefix = join_parts(_ID_PREFIX, app, *([user] if user is not None else [])) + "/"
        infos: Any = await maybe_await(self.store.threads(prefix=prefix))
        sessions = []
        app_state = await self._shared_state(join_parts(_ID_PREFIX, app))
        user_states: dict[str, dict[str, Any]] = {}
        for info in infos:
            parts = split_parts(info.id)
            if len(parts) != 4:
                continue
            owner = parts[2]
            try:
                picked = await maybe_await(self.store.thread(info.id).pick([_STATE, _UPDATED]))
            except NotFound:
                continue  # deleted meanwhile
            if owner not in user_states:
                user_states[owner] = await self._shared_state(join_parts(_ID_PREFIX, app, owner))
            merged = _merge(picked[_STATE], app_state, user_states[owner])
            sessions.append(_session(app, owner, parts[3], merged, [], picked[_UPDATED], info.head))
        return sorted(sessions, key=lambda one: (one.last_update_time, one.user_id, one.id))

    async def _append(self, session: Session, event: Event) -> None:
        thread = self.thread(session.app_name, session.user_id, session.id)
        app_delta, user_delta, own = _split_by_scope(event.actions.state_delta)
        marker = session._storage_update_marker  # noqa: SLF001 - ADK's field for a service's revision
        try:
            if marker is None:  # the session object is not from this service
                marker = await self._marker_of(thread, session)
            changes: dict[str, Any] = {_UPDATED: event.timestamp}
            if own:
                changes[_STATE] = {**(await maybe_await(thread.pick([_STATE], at=marker)))[_STATE], **own}
            item = event.model_dump(mode="json", exclude_none=True)
            saved = await maybe_await(thread.update(changes, append=(_EVENTS, [item]), expect=marker))
        except NotFound as error:
            raise SessionNotFoundError(f"Session {session.id} not found.") from error
        except Conflict as error:
            if error.actual is None:
                raise SessionNotFoundError(f"Session {session.id} not found.") from error
            raise StaleSessionError(_STALE) from error
        await self._update_shared_state(join_parts(_ID_PREFIX, session.app_name), app_delta)
        await self._update_shared_state(join_parts(_ID_PREFIX, session.app_name, session.user_id), user_delta)
        session._storage_update_marker = saved.id  # noqa: SLF001 - as above
        session.last_update_time = event.timestamp

    async def _marker_of(self, thread: Any, session: Session) -> str:
        """The head of the thread, if a session object without a marker is up to date: it is as young as the stored
        session, or ends with the same event."""
        head = await maybe_await(thread.head)
        if head is None:
            raise ThreadNotFound(thread.id)
        if (await maybe_await(thread.pick([_UPDATED], at=head.id)))[_UPDATED] > session.last_update_time:
            last = [event["id"] for event in await maybe_await(thread.tail(_EVENTS, 1, at=head.id))]
            if last != [event.id for event in session.events[-1:]]:
                raise StaleSessionError(_STALE)
        return cast("str", head.id)

    # -- state of users and apps --------------------------------------------------------------------------------------

    async def _update_shared_state(self, thread_id: str, delta: dict[str, Any]) -> None:
        """Set keys of a user's or an app's state; other writers' keys stay."""
        if not delta:
            return

        async def attempt() -> None:
            thread: Any = self.store.thread(thread_id)
            head = await maybe_await(thread.head)
            before = (await maybe_await(thread.pick([_STATE], at=head.id)))[_STATE] if head is not None else {}
            expect = head.id if head is not None else None
            await maybe_await(thread.update({_STATE: {**before, **delta}}, expect=expect))

        await retry_on_conflict(thread_id, attempt)

    async def _shared_state(self, thread_id: str) -> dict[str, Any]:
        try:
            picked = await maybe_await(self.store.thread(thread_id).pick([_STATE]))
        except NotFound:
            return {}
        return cast("dict[str, Any]", picked.get(_STATE, {}))

    async def _with_shared_state(self, app: str, user: str, own: dict[str, Any]) -> dict[str, Any]:
        """A session's own state together with that of its app and its user."""
        app_state = await self._shared_state(join_parts(_ID_PREFIX, app))
        return _merge(own, app_state, await self._shared_state(join_parts(_ID_PREFIX, app, user)))


def _merge(own: dict[str, Any], app_state: dict[str, Any], user_state: dict[str, Any]) -> dict[str, Any]:
    return {
        **own,
        **{State.APP_PREFIX + key: value for key, value in app_state.items()},
        **{State.USER_PREFIX + key: value for key, value in user_state.items()},
    }


def _split_by_scope(state: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A state as JSON values, in three parts: the app's, the user's and the session's own."""
    app_state: dict[str, Any] = {}
    user_state: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for key, value in state.items():
        if key.startswith(State.APP_PREFIX):
            app_state[key.removeprefix(State.APP_PREFIX)] = value
        elif key.startswith(State.USER_PREFIX):
            user_state[key.removeprefix(State.USER_PREFIX)] = value
        elif not key.startswith(State.TEMP_PREFIX):
            own[key] = value
    scopes = (app_state, user_state, own)
    try:
        return cast("tuple[Any, Any, Any]", tuple(to_jsonable_python(scopes)))
    except (PydanticSerializationError, ValueError, TypeError):
        _logger.warning("some values of a session's state are not JSON: their repr is stored instead", exc_info=True)
        return cast("tuple[Any, Any, Any]", tuple(to_jsonable_python(scopes, serialize_unknown=True)))


def _session(
    app: str, user: str, id: str, state: dict[str, Any], events: list[Event], updated: float, marker: str
) -> Session:
    session = Session(id=id, app_name=app, user_id=user, state=state, events=events, last_update_time=updated)
    session._storage_update_marker = marker  # noqa: SLF001 - ADK's field for a service's revision
    return session


def _read_events(items: list[Any]) -> list[Event]:
    return [Event.model_validate(item) for item in items]
