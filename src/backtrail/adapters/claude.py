"""Claude Agent SDK: `BacktrailSessionStore` is its `SessionStore`, with all optional methods.

Each transcript (a session's, or that of a subagent under it) is one backtrail session whose messages are the
transcript's entries. An entry whose `uuid` is already stored is not added again, whoever added it: each append expects
the head it has read, and reads again if another writer was faster. The summary that the SDK folds from the entries is
saved with them.

`durable_tool` makes the calls of an in-process tool steps of the current run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import threading
from collections.abc import Callable
from typing import Any, cast

import msgspec

from backtrail.adapters.optional_import import require_extra
from backtrail.adapters.run_steps import require_run, step_async
from backtrail.adapters.sync_bridge import SyncBridge, maybe_await
from backtrail.adapters.thread_ids import escape_part, join_parts, split_parts
from backtrail.adapters.thread_writes import delete_if_present, retry_on_conflict
from backtrail.aio import AsyncStore
from backtrail.errors import InvalidInput, NotFound
from backtrail.lru import LRU
from backtrail.message_shapes import user_turns
from backtrail.model import ThreadInfo
from backtrail.store import Store

with require_extra("claude"):
    from claude_agent_sdk import SdkMcpTool, fold_session_summary
    from claude_agent_sdk.types import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStore,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

_ID_PREFIX = "claude"
_MAX_CACHED_TRANSCRIPTS = 256
_ENTRIES, _TURNS, _SUMMARY = "messages", "user_turns", "claude_summary"  # keys of the state


class _TranscriptSummary(msgspec.Struct, frozen=True):
    """The facts about a transcript that an append needs, as of the checkpoint `head`."""

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
        self._bridge = SyncBridge(store)
        self._cache: LRU[str, _TranscriptSummary] = LRU(_MAX_CACHED_TRANSCRIPTS)  # by thread id
        self._cache_lock = threading.Lock()

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Add entries, all or none; those whose `uuid` is already stored are left out."""
        await self._bridge.run_async(self._append(key, entries))

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """All entries of a transcript, or None if it was never written."""
        return await self._bridge.run_async(self._load(key))

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """The sessions of a project, without subagents' transcripts, the one that was written last first."""
        found = await self._bridge.run_async(self._project_sessions(project_key))
        return [{"session_id": split_parts(thread_id)[2], "mtime": mtime} for thread_id, mtime in found]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """The summaries of a project's sessions in the same order; no transcript is read for them."""
        return await self._bridge.run_async(self._summaries(project_key))

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript; deleting a session's own deletes those of its subagents as well."""
        await self._bridge.run_async(self._delete(key))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """The subpaths under a session."""
        prefix = join_parts(_ID_PREFIX, key["project_key"], key["session_id"]) + "/"
        infos = await self._bridge.run_async(self._threads_under(prefix))
        return [split_parts(info.id)[3] for info in infos]

    def session(self, key: SessionKey) -> Any:
        """The backtrail session of a transcript, with its labels, forks and snapshots."""
        return self.store.session(_thread_id(key))

    # -- appending ----------------------------------------------------------------------------------------------------

    async def _append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        thread_id = _thread_id(key)
        with self._cache_lock:
            cached = self._cache.get(thread_id)

        async def attempt() -> None:
            nonlocal cached
            thread: Any = self.store.session(thread_id).thread
            before, cached = cached or await self._read_summary(thread), None  # a second attempt reads again
            new, uuids = _new_entries(entries, before.uuids)
            if not new and before.head is not None:
                self._remember(thread_id, before)
                return
            changes: dict[str, Any] = {_TURNS: before.turns + user_turns(new)}
            summary = before.summary
            if not key.get("subpath"):
                previous = None
                if summary is not None:
                    previous = SessionSummaryEntry(session_id=key["session_id"], mtime=0, data=summary)
                summary = changes[_SUMMARY] = fold_session_summary(previous, key, cast("Any", new))["data"]
            saved = await maybe_await(thread.update(changes, append=(_ENTRIES, new), expect=before.head))
            self._remember(thread_id, _TranscriptSummary(saved.id, before.uuids | uuids, summary, changes[_TURNS]))

        await retry_on_conflict(thread_id, attempt)

    async def _read_summary(self, thread: Any) -> _TranscriptSummary:
        head = await maybe_await(thread.head)
        if head is None:
            return _TranscriptSummary(None, frozenset(), None, 0)
        state = await maybe_await(thread.load(at=head.id))
        uuids = frozenset(entry["uuid"] for entry in state.get(_ENTRIES, ()) if "uuid" in entry)
        return _TranscriptSummary(head.id, uuids, state.get(_SUMMARY), state.get(_TURNS, 0))

    def _remember(self, thread_id: str, transcript: _TranscriptSummary) -> None:
        with self._cache_lock:
            self._cache.put(thread_id, transcript)

    # -- reading, listing, deleting -----------------------------------------------------------------------------------

    async def _load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        thread: Any = self.store.session(_thread_id(key)).thread
        try:
            picked = await maybe_await(thread.pick([_ENTRIES]))
        except NotFound:
            return None
        return cast("list[SessionStoreEntry]", picked.get(_ENTRIES, []))

    async def _threads_under(self, prefix: str) -> list[ThreadInfo]:
        return cast("list[ThreadInfo]", await maybe_await(self.store.threads(prefix=prefix, newest_first=True)))

    async def _project_sessions(self, project_key: str) -> list[tuple[str, int]]:
        """Thread id and time of a project's sessions, newest first. The SDK sorts by these times, which are in whole
        milliseconds: of two that were written in the same one, the later gets the next."""
        found: list[tuple[str, int]] = []
        mtime = 0
        for info in reversed(await self._threads_under(f"{_ID_PREFIX}/{escape_part(project_key)}/")):
            if info.id.count("/") == 2:
                mtime = max(mtime + 1, int(info.updated_at.timestamp() * 1000))
                found.append((info.id, mtime))
        return found[::-1]

    async def _summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        summaries: list[SessionSummaryEntry] = []
        for thread_id, mtime in await self._project_sessions(project_key):
            thread: Any = self.store.thread(thread_id)
            try:
                data = (await maybe_await(thread.pick([_SUMMARY]))).get(_SUMMARY)
            except NotFound:
                continue  # deleted meanwhile
            if data is not None:
                summaries.append({"session_id": split_parts(thread_id)[2], "mtime": mtime, "data": data})
        return summaries

    async def _delete(self, key: SessionKey) -> None:
        thread_ids = [_thread_id(key)]
        if not key.get("subpath"):
            thread_ids += [info.id for info in await self._threads_under(f"{thread_ids[0]}/")]
        for thread_id in thread_ids:
            with self._cache_lock:
                self._cache.pop(thread_id)
            await delete_if_present(self.store.thread(thread_id))


def _thread_id(key: SessionKey) -> str:
    subpath = key.get("subpath")
    return join_parts(_ID_PREFIX, key["project_key"], key["session_id"], *([subpath] if subpath else []))


def _new_entries(entries: list[SessionStoreEntry], stored: frozenset[str]) -> tuple[list[Any], set[str]]:
    """The entries that are not stored yet, and their uuids; an entry without a uuid is always new."""
    new: list[Any] = []
    uuids: set[str] = set()
    for entry in entries:
        uuid = entry.get("uuid")
        if uuid is not None:
            if uuid in stored or uuid in uuids:
                continue
            uuids.add(uuid)
        new.append(dict(entry))
    return new, uuids


def durable_tool(tool: SdkMcpTool[Any], key: Callable[[Any], str | int] | None = None) -> SdkMcpTool[Any]:
    """A copy of an in-process tool whose calls are steps of the current run.

        server = create_sdk_mcp_server("shop", tools=[durable_tool(pay, key=lambda given: given["order"])])

    The SDK does not tell a tool the id of its call, so calls are told apart by `key`, which is given the arguments; by
    default by all of them: within one run, a second call with the same arguments gets the result of the first.
    """
    if not isinstance(tool, SdkMcpTool):
        raise InvalidInput(f"durable_tool() takes a tool, as @tool makes it, not {type(tool).__name__}")

    async def handler(given: Any) -> Any:
        run = require_run(f"the durable tool {tool.name!r}")
        own = _digest(given) if key is None else str(key(given))
        return await step_async(run, tool.name, tool.handler, given, key=own)

    return dataclasses.replace(tool, handler=handler)


def _digest(given: Any) -> str:
    return hashlib.blake2b(json.dumps(given, sort_keys=True).encode(), digest_size=16).hexdigest()
