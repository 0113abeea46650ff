"""Deleting, copying and pruning LangGraph threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backtrail.adapters.langgraph.checkpoints import Checkpoints
from backtrail.adapters.langgraph.ids import GraphThread, channel_name, graph_id, short_id
from backtrail.adapters.sync_bridge import maybe_await
from backtrail.adapters.thread_ids import escape_part
from backtrail.adapters.thread_writes import delete_if_present
from backtrail.errors import InvalidInput
from backtrail.model import Checkpoint


class Maintenance:
    """The operations of a saver on whole threads and runs."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._store = checkpoints.store

    async def delete_thread(self, thread_id: str) -> None:
        """Delete all namespaces of a thread, with their pending writes."""
        prefix = escape_part(str(thread_id))
        for info in await maybe_await(self._store.threads(prefix=prefix)):
            if info.id == prefix or info.id.startswith(f"{prefix}/"):
                await self._delete(info.id)

    async def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of these runs in every thread."""
        runs = set(run_ids)
        for graph_thread in await self._checkpoints.graph_threads() if runs else []:
            history = await self._checkpoints.history(graph_thread)
            of_runs = [one for one in history if self._checkpoints.metadata(one).get("run_id") in runs]
            if of_runs:
                await self._delete_checkpoints(graph_thread, of_runs)

    async def _delete(self, thread: str, at: str | None = None) -> None:
        self._checkpoints.forget(thread)
        # A copy of a thread does not have the checkpoints it inherits: they are deleted in the thread that has them.
        await delete_if_present(self._store.thread(thread), at)

    async def _delete_checkpoints(self, graph_thread: GraphThread, checkpoints: list[Checkpoint]) -> None:
        """Delete checkpoints and their pending writes."""
        ids = {short_id(graph_id(checkpoint)) for checkpoint in checkpoints}
        for checkpoint in checkpoints:
            await self._delete(graph_thread.checkpoints, checkpoint.id)
        for record in await maybe_await(self._store.thread(graph_thread.writes).history(all=True)):
            if record.custom.get("checkpoint") in ids:
                await self._delete(graph_thread.writes, record.id)

    async def copy_thread(self, source: str, target: str) -> None:
        """Fork each namespace and its pending writes, abandoned branches included."""
        for graph_thread in await self._checkpoints.graph_threads(source):
            copy = GraphThread(str(target), graph_thread.ns)
            await self._fork_with_branches(graph_thread.checkpoints, copy.checkpoints)
            await self._fork_with_branches(graph_thread.writes, copy.writes)

    async def _fork_with_branches(self, source: str, target: str) -> None:
        """Fork a backtrail thread, and save again in the fork the branches that it does not inherit."""
        thread: Any = self._store.thread(source)
        if not await maybe_await(thread.exists()):
            return
        fork = await maybe_await(thread.fork(target))
        inherited = {checkpoint.id for checkpoint in await maybe_await(thread.history())}
        head = await maybe_await(thread.head)
        for one in await maybe_await(thread.history(all=True)):
            if one.id in inherited:
                continue
            state = await maybe_await(thread.load(at=one.id))
            parent = one.parent_id or head.id
            options = {"id": one.id, "custom": one.custom, "label": one.label, "tags": one.tags}
            await maybe_await(fork.save(state, expect=parent, on_conflict="branch", **options))
            if parent == head.id:
                await maybe_await(fork.rewind(head.id))

    async def prune(self, thread_ids: Sequence[str], strategy: str) -> None:
        """Delete all checkpoints but the newest of each namespace (`keep_latest`), or all (`delete`)."""
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInput(f"strategy={strategy!r} is unknown: use 'keep_latest' or 'delete'")
        for thread_id in thread_ids:
            if strategy == "delete":
                await self.delete_thread(thread_id)
            else:
                await self._keep_latest(thread_id)

    async def _keep_latest(self, thread_id: str) -> None:
        namespaces = sorted(
            await self._checkpoints.graph_threads(thread_id), key=lambda one: one.ns
        )  # the root's first
        of_root: set[str] = set()
        kept_of_root: set[str] = set()
        for graph_thread in namespaces:
            history = await self._checkpoints.history(graph_thread)
            kept = await self._newest_and_its_bases(graph_thread, history)
            if graph_thread.ns == "":
                of_root = {graph_id(one) for one in history}
                kept_of_root = {graph_id(one) for one in history if one.id in kept}
            elif history and self._began_at(graph_thread, history) in of_root - kept_of_root:
                await self._delete(graph_thread.checkpoints)
                await self._delete(graph_thread.writes)
                continue
            await self._delete_checkpoints(graph_thread, [one for one in history if one.id not in kept])

    def _began_at(self, graph_thread: GraphThread, history: list[Checkpoint]) -> str | None:
        """The root graph's checkpoint at which the call of a subgraph began. None if the namespace is not of one call:
        that of a call has the id of its task after a colon."""
        newest = max(history, key=graph_id)
        parents = self._checkpoints.metadata(newest).get("parents") or {}
        return parents.get("") if ":" in graph_thread.ns else None

    async def _newest_and_its_bases(self, graph_thread: GraphThread, history: list[Checkpoint]) -> set[str]:
        """The ids of the newest checkpoint and of those that its delta channels are rebuilt from: all back to the
        one that has the full value of each."""
        if not history:
            return set()
        by_id = {graph_id(checkpoint): checkpoint for checkpoint in history}
        newest = by_id[max(by_id)]
        incomplete = set(self._checkpoints.metadata(newest).get("counters_since_delta_snapshot") or ())
        kept: set[str] = set()
        checkpoint: Checkpoint | None = newest
        while checkpoint is not None:
            kept.add(checkpoint.id)
            if incomplete:
                state = await maybe_await(self._store.thread(graph_thread.checkpoints).load(at=checkpoint.id))
                incomplete -= {channel_name(key) for key in state}
            parent = await self._checkpoints.parent_of(graph_thread, checkpoint)
            checkpoint = by_id.get(parent or "") if incomplete else None
        return kept
