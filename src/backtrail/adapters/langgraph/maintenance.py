"""Deleting, copying and pruning LangGraph threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backtrail.adapters.ids import escape
from backtrail.adapters.langgraph.checkpoints import Checkpoints
from backtrail.adapters.langgraph.ids import GraphThread, channel_of, graph_id
from backtrail.adapters.langgraph.message_codec import MARK
from backtrail.adapters.sync_bridge import settle
from backtrail.errors import InvalidInput, NotFound
from backtrail.model import Checkpoint


class Maintenance:
    """What takes checkpoints away, or makes more of them."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._store = checkpoints.store

    async def delete_thread(self, thread_id: str) -> None:
        """Everything of a thread goes."""
        prefix = escape(str(thread_id))
        for info in await settle(self._store.threads(prefix=prefix)):
            if info.id == prefix or info.id.startswith(f"{prefix}/"):
                await self._delete(info.id)

    async def _delete(self, name: str, at: str | None = None) -> None:
        self._checkpoints.forget(name)
        try:
            await settle(self._store.thread(name).delete(at))
        except NotFound:
            return  # gone already, or inherited by a copy: it is deleted where it belongs

    async def _forget(self, place: GraphThread, doomed: list[Checkpoint]) -> None:
        """Delete checkpoints and their pending writes."""
        ids = {graph_id(checkpoint) for checkpoint in doomed}
        for checkpoint in doomed:
            await self._delete(place.name, checkpoint.id)
        for record in await settle(self._store.thread(place.writes).history(all=True)):
            if record.custom.get("checkpoint") in ids:
                await self._delete(place.writes, record.id)

    async def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """What these runs wrote goes, in every thread."""
        runs = set(run_ids)
        for place in await self._checkpoints.places() if runs else []:
            doomed = [
                c for c in await self._checkpoints.history(place) if self._checkpoints.metadata(c).get("run_id") in runs
            ]
            if doomed:
                await self._forget(place, doomed)

    async def copy_thread(self, source: str, target: str) -> None:
        """A fork of each namespace, and beside it the branches that a fork does not inherit."""
        for place in await self._checkpoints.places(source):
            twin = GraphThread(str(target), place.ns)
            for name, to in ((place.name, twin.name), (place.writes, twin.writes)):
                thread: Any = self._store.thread(name)
                if not await settle(thread.exists()):
                    continue
                copy = await settle(thread.fork(to))
                trail = {c.id for c in await settle(thread.history())}
                head = await settle(thread.head)
                aside = [c for c in await settle(thread.history(all=True)) if c.id not in trail]
                for one in aside:  # branches that a fork does not inherit: they are put beside its head
                    state = await settle(thread.load(at=one.id))
                    facts = {"id": one.id, "custom": one.custom, "label": one.label, "tags": one.tags}
                    parent = one.parent_id or head.id
                    await settle(copy.save(state, expect=parent, on_conflict="branch", **facts))
                    if parent == head.id:
                        await settle(copy.rewind(head.id))

    async def prune(self, thread_ids: Sequence[str], strategy: str) -> None:
        """All but the newest checkpoints go, or all."""
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInput(f"strategy={strategy!r} is unknown: use 'keep_latest' or 'delete'")
        for thread_id in thread_ids:
            if strategy == "delete":
                await self.delete_thread(thread_id)
                continue
            for place in await self._checkpoints.places(thread_id):
                history = await self._checkpoints.history(place)
                kept = await self._needed(place, history)
                await self._forget(place, [c for c in history if c.id not in kept])

    async def _needed(self, place: GraphThread, history: list[Checkpoint]) -> set[str]:
        """The newest checkpoint, and what its delta channels are rebuilt from: all back to a full value of each."""
        if not history:
            return set()
        by_id = {graph_id(checkpoint): checkpoint for checkpoint in history}
        one: Checkpoint | None = by_id[max(by_id)]
        lacking = (
            set(self._checkpoints.metadata(one).get("counters_since_delta_snapshot") or ())
            if one is not None
            else set()
        )
        kept: set[str] = set()
        while one is not None:
            kept.add(one.id)
            if lacking:
                state = await settle(self._store.thread(place.name).load(at=one.id))
                lacking -= {channel_of(key) for key in state}
            parent = one.custom[MARK].get("parent", one.parent_id)
            one = by_id.get(parent) if lacking else None
        return kept
