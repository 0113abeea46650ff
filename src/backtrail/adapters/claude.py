"""Claude Agent SDK: `BacktrailSessionStore` is its `SessionStore`, with all optional methods.

Each transcript (a session, or a subagent's under it) is one backtrail session whose messages are the transcript's
entries. An entry whose `uuid` is there already is not added again, whoever added it: each append stands on the head it
looked at, and looks again if another writer was faster. The summary that the SDK folds from the entries is saved with
them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, cast

import msgspec

from backtrail.adapters.ids import escape, join, split
from backtrail.adapters.optional_import import needed
from backtrail.adapters.sync_bridge import SyncBridge, settle
from backtrail.aio import AsyncStore
from backtrail.errors import Conflict, NotFound
from backtrail.message_shapes import user_turns
from backtrail.model import ThreadInfo
from backtrail.store import Store

with needed("claude"):
    from claude_agent_sdk import fold_session_summary
    from claude_agent_sdk.types import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStore,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

_ROOM = "claude"
_ATTEMPTS = 256
_REMEMBERED = 256  # transcripts
_ENTRIES, _TURNS, _SUMMARY = "messages", "user_turns", "claude_summary"


class _Transcript(msgspec.Struct, frozen=True):
    """A transcript as this process last saw it: where it stood, and the uuids in it."""

    head: str | None
    uuids: frozenset[str]
    summary: dict[str, Any] | None
    turns: int


class BacktrailSessionStore(SessionStore):
    """Transcripts on a backtrail store.

    options = ClaudeAgentOptions(session_store=BacktrailSessionStore(backtrail.open("agents.db")))
    """

    def __init__(self, store: Store | AsyncStore) -> None:
        self.store = store
        self._colour = SyncBridge(store)
        self._seen: OrderedDict[str, _Transcript] = OrderedDict()

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add entries, all or none; those whose `uuid` is there already are left out."""
        if entries:
            await self._colour.run(self._append(key, entries))

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """All entries of a transcript, or None if it was never written."""
        return await self._colour.run(self._load(key))

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The sessions of a project, without subagents' transcripts."""
        found = await self._colour.run(self._threads(project_key))
        return [{"session_id": split(info.id)[2], "mtime": _mtime(info)} for info in found]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """The summaries of a project's sessions; no transcript is read for them."""
        return await self._colour.run(self._summaries(project_key))

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript; with a session's own go those of its subagents."""
        await self._colour.run(self._delete(key))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """The subpaths under a session."""
        prefix = join(_ROOM, key["project_key"], key["session_id"]) + "/"
        found = await self._colour.run(self._under(prefix))
        return [split(info.id)[3] for info in found]

    # -- how it is done -----------------------------------------------------------------------------------------------

    def session(self, key: SessionKey) -> Any:
        """The backtrail session of a transcript, with its labels, forks and snapshots."""
        return self.store.session(_name(key))

    async def _append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        name, known = _name(key), self._seen.get(_name(key))
        for _ in range(_ATTEMPTS):
            seen = known or await self._look(name)
            new, uuids = _new(entries, seen.uuids)
            if not new:
                self._remember(name, seen)
                return
            changes: dict[str, Any] = {_TURNS: seen.turns + user_turns(new)}
            summary = seen.summary
            if not key.get("subpath"):
                before = None
                if summary is not None:
                    before = SessionSummaryEntry(session_id=key["session_id"], mtime=0, data=summary)
                summary = changes[_SUMMARY] = fold_session_summary(before, key, cast("Any", new))["data"]
            thread = self.store.session(name).thread
            try:
                saved: Any = await settle(cast("Any", thread).update(changes, append=(_ENTRIES, new), expect=seen.head))
            except Conflict:
                known = None
                continue
            self._remember(name, _Transcript(saved.id, seen.uuids | uuids, summary, changes[_TURNS]))
            return
        raise Conflict(name)

    async def _look(self, name: str) -> _Transcript:
        thread: Any = self.store.session(name).thread
        head = await settle(thread.head)
        if head is None:
            return _Transcript(None, frozenset(), None, 0)
        state = await settle(thread.load(at=head.id))
        uuids = frozenset(entry["uuid"] for entry in state.get(_ENTRIES, ()) if "uuid" in entry)
        return _Transcript(head.id, uuids, state.get(_SUMMARY), state.get(_TURNS, 0))

    def _remember(self, name: str, seen: _Transcript) -> None:
        self._seen.pop(name, None)
        self._seen[name] = seen
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)

    async def _load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        thread: Any = self.store.session(_name(key)).thread
        try:
            picked = await settle(thread.pick([_ENTRIES]))
        except NotFound:
            return None
        return cast("list[SessionStoreEntry]", picked.get(_ENTRIES, []))

    async def _under(self, prefix: str) -> list[ThreadInfo]:
        return cast("list[ThreadInfo]", await settle(self.store.threads(prefix=prefix)))

    async def _threads(self, project_key: str) -> list[ThreadInfo]:
        found = await self._under(f"{_ROOM}/{escape(project_key)}/")
        return [info for info in found if info.id.count("/") == 2]

    async def _summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        result: list[SessionSummaryEntry] = []
        for info in await self._threads(project_key):
            thread: Any = self.store.thread(info.id)
            data = (await settle(thread.pick([_SUMMARY]))).get(_SUMMARY)
            if data is not None:
                result.append({"session_id": split(info.id)[2], "mtime": _mtime(info), "data": data})
        return result

    async def _delete(self, key: SessionKey) -> None:
        name = _name(key)
        doomed = [name]
        if not key.get("subpath"):
            doomed += [info.id for info in await self._under(f"{name}/")]
        for one in doomed:
            self._seen.pop(one, None)
            try:
                await settle(self.store.thread(one).delete())
            except NotFound:
                continue  # never written, or gone already


def _name(key: SessionKey) -> str:
    subpath = key.get("subpath")
    return join(_ROOM, key["project_key"], key["session_id"], *([subpath] if subpath else []))


def _mtime(info: ThreadInfo) -> int:
    return int(info.updated_at.timestamp() * 1000)


def _new(entries: list[SessionStoreEntry], known: frozenset[str]) -> tuple[list[Any], set[str]]:
    """The entries that are not there yet, and their uuids; entries without one are always new."""
    new: list[Any] = []
    uuids: set[str] = set()
    for entry in entries:
        uuid = entry.get("uuid")
        if uuid is not None:
            if uuid in known or uuid in uuids:
                continue
            uuids.add(uuid)
        new.append(dict(entry))
    return new, uuids
