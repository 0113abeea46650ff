"""OpenAI Agents SDK: `BacktrailSession` is its `Session`, on a backtrail session of the same id.

Each call of `add_items` is one checkpoint. A limited read never cuts a tool call from its output, and does not touch
the items before it. Clearing, popping and replacing leave the earlier checkpoints in the history, so any of them can be
rewound to, forked from or compared.
"""

from __future__ import annotations

from typing import Any, cast

from backtrail.adapters.optional_import import needed
from backtrail.adapters.sync_bridge import SyncBridge, settle
from backtrail.aio import AsyncStore
from backtrail.model import Checkpoint
from backtrail.store import Store

with needed("openai-agents"):
    from agents.items import TResponseInputItem
    from agents.memory import SessionABC, SessionSettings
    from agents.memory.session_settings import resolve_session_limit
    from agents.result import RunResultBase

_USAGE = "usage"


class BacktrailSession(SessionABC):
    """The memory of one conversation.

        result = await Runner.run(agent, "Hello", session=BacktrailSession(store, "customer-42"))

    `session_settings` may set a default limit for what a run sees of the history.
    """

    def __init__(
        self, store: Store | AsyncStore, session_id: str, *, session_settings: SessionSettings | None = None
    ) -> None:
        self.session_id = session_id
        self.session_settings = session_settings or SessionSettings()
        self.store = store
        self.session: Any = store.session(session_id)  #: the backtrail session, with its thread, labels and snapshots
        self._colour = SyncBridge(store)

    # -- the SDK's interface ------------------------------------------------------------------------------------------

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The newest `limit` items in order, or all; a few more where the oldest is an output that needs its call."""
        most = resolve_session_limit(limit, self.session_settings)
        last = most if most is not None and most >= 0 else None
        return cast("list[TResponseInputItem]", await self._call(lambda: self.session.messages(last=last)))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items at the end, all or none."""
        if items:
            await self._call(lambda: self.session.extend([dict(item) for item in items]))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the newest item away and return it."""
        return cast("TResponseInputItem | None", await self._call(self.session.pop))

    async def clear_session(self) -> None:
        """Start anew. What was there stays in the history."""
        await self._call(self.session.clear)

    # -- and what backtrail adds
    # -------------------------------------------------------------------------------------------

    async def replace_items(self, items: list[TResponseInputItem]) -> Checkpoint:
        """Put other items in the place of all, in one step: for compaction. `Conflict` if another writer has added
        something since this session was last read."""
        return cast("Checkpoint", await self._call(lambda: self.session.replace([dict(item) for item in items])))

    async def checkpoints(self) -> list[Checkpoint]:
        """The checkpoints of the session, oldest first."""
        return cast("list[Checkpoint]", await self._call(self.session.thread.history))

    async def rewind(self, at: Checkpoint | str | int) -> Checkpoint:
        """Go back to a checkpoint; what came after it stays in the history."""
        return cast("Checkpoint", await self._call(lambda: self.session.thread.rewind(at)))

    async def fork(self, to: str | None = None, at: Checkpoint | str | int | None = None) -> BacktrailSession:
        """A new session that begins as a copy of this one, or of a checkpoint of it; one record is written."""
        forked: Any = await self._call(lambda: self.session.fork(to, at))
        return BacktrailSession(self.store, forked.id, session_settings=self.session_settings)

    async def store_run_usage(self, result: RunResultBase) -> Checkpoint:
        """Keep the token counts of a run beside the turn that it made."""
        usage = result.context_wrapper.usage
        counts = {
            "requests": usage.requests,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
        }
        return cast("Checkpoint", await self._call(lambda: self.session.save(custom={_USAGE: counts})))

    async def usage(self) -> list[dict[str, int]]:
        """The token counts that were kept, a dict per turn, oldest first."""
        return [checkpoint.custom[_USAGE] for checkpoint in await self.checkpoints() if _USAGE in checkpoint.custom]

    async def _call(self, method: Any) -> Any:
        """One call of the store, made where it may block."""

        async def call() -> Any:
            return await settle(method())

        return await self._colour.run(call())
