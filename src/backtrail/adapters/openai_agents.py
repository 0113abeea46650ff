"""OpenAI Agents SDK: `BacktrailSession` is its `Session`, on a backtrail session of the same id.

Each call of `add_items` is one checkpoint. A limited read never separates a tool call from its output, and does not
read the items before it. Clearing, popping and replacing leave the earlier checkpoints in the history, where they can
be rewound to, forked from or compared.
"""

from __future__ import annotations

from typing import Any, cast

from backtrail.adapters.optional_import import require_extra
from backtrail.adapters.sync_bridge import SyncBridge, maybe_await
from backtrail.aio import AsyncStore
from backtrail.model import Checkpoint
from backtrail.store import Store

with require_extra("openai-agents"):
    from agents.items import TResponseInputItem
    from agents.memory import SessionABC, SessionSettings
    from agents.memory.session_settings import resolve_session_limit
    from agents.result import RunResultBase

_USAGE = "usage"


class BacktrailSession(SessionABC):
    """The memory of one conversation.

        result = await Runner.run(agent, "Hello", session=BacktrailSession(store, "customer-42"))

    `session_settings` may set a default limit of items that a run sees.
    """

    def __init__(
        self, store: Store | AsyncStore, session_id: str, *, session_settings: SessionSettings | None = None
    ) -> None:
        self.session_id = session_id
        self.session_settings = session_settings or SessionSettings()
        self.store = store
        self.session: Any = store.session(session_id)  #: the backtrail session, with its thread, labels and snapshots
        self._bridge = SyncBridge(store)

    # -- the SDK's interface ------------------------------------------------------------------------------------------

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The newest `limit` items in order, or all; a few more where the oldest is an output that needs its call."""
        resolved = resolve_session_limit(limit, self.session_settings)
        last = resolved if resolved is not None and resolved >= 0 else None
        return cast("list[TResponseInputItem]", await self._call(lambda: self.session.messages(last=last)))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items at the end, all or none."""
        if items:
            await self._call(lambda: self.session.extend([dict(item) for item in items]))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item and return it."""
        return cast("TResponseInputItem | None", await self._call(self.session.pop))

    async def clear_session(self) -> None:
        """Remove all items; the earlier checkpoints stay in the history."""
        await self._call(self.session.clear)

    # -- additions of backtrail ---------------------------------------------------------------------------------------

    async def replace_items(self, items: list[TResponseInputItem]) -> Checkpoint:
        """Replace all items in one checkpoint, as a compaction does. `Conflict` if another writer has added something
        since this session was last read."""
        return cast("Checkpoint", await self._call(lambda: self.session.replace([dict(item) for item in items])))

    async def checkpoints(self) -> list[Checkpoint]:
        """The checkpoints of the session, oldest first."""
        return cast("list[Checkpoint]", await self._call(self.session.thread.history))

    async def rewind(self, at: Checkpoint | str | int) -> Checkpoint:
        """Go back to a checkpoint; the later ones stay in the history."""
        return cast("Checkpoint", await self._call(lambda: self.session.thread.rewind(at)))

    async def fork(self, to: str | None = None, at: Checkpoint | str | int | None = None) -> BacktrailSession:
        """A new session that begins as a copy of this one, or of a checkpoint of it; one record is written."""
        forked: Any = await self._call(lambda: self.session.fork(to, at))
        return BacktrailSession(self.store, forked.id, session_settings=self.session_settings)

    async def store_run_usage(self, result: RunResultBase) -> Checkpoint:
        """Save the token counts of a run in a checkpoint after its items."""
        usage = result.context_wrapper.usage
        counts = {
            "requests": usage.requests,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
        }
        return cast("Checkpoint", await self._call(lambda: self.session.save(custom={_USAGE: counts})))

    async def usage(self) -> list[dict[str, int]]:
        """The saved token counts, a dict per run, oldest first."""
        return [checkpoint.custom[_USAGE] for checkpoint in await self.checkpoints() if _USAGE in checkpoint.custom]

    async def _call(self, method: Any) -> Any:
        """Call a method of the session: in a thread if the store is sync, since it may wait for a disk."""

        async def call() -> Any:
            return await maybe_await(method())

        return await self._bridge.run_async(call())
