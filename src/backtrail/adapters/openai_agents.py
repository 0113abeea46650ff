"""OpenAI Agents SDK: `BacktrailSession` is its `Session`, on a backtrail session of the same id.

Each call of `add_items` is one checkpoint. Items are JSON, as in the SDK's own sessions. A limited read does not read
the items before it. A write whose task is cancelled is waited for, so that it is never unknown to the SDK whether it
has happened. Clearing, popping and replacing leave the earlier checkpoints in the history, where they can be rewound
to, forked from or compared. The SDK's compaction finds here what it looks for in a session (`_get_compaction_snapshot`
and `_atomic_replace_items`), and replaces items in one checkpoint.

`durable_tool` makes the calls of a tool steps of the current run, and `run_with_approvals` the SDK's interruptions
questions of it, which `store.pending()` lists.
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, cast

from backtrail.adapters.optional_import import require_extra
from backtrail.adapters.run_steps import Question, ask_all, require_run, step_async
from backtrail.adapters.sync_bridge import SyncBridge, maybe_await
from backtrail.adapters.thread_writes import retry_on_conflict
from backtrail.aio import AsyncRun, AsyncStore
from backtrail.errors import InvalidInput
from backtrail.model import Checkpoint
from backtrail.run import Run
from backtrail.store import Store

with require_extra("openai-agents"):
    from agents import Agent, Runner, RunResult
    from agents.items import ToolApprovalItem, TResponseInputItem
    from agents.memory import SessionABC, SessionSettings
    from agents.memory.session_settings import coerce_session_settings, resolve_session_limit
    from agents.result import RunResultBase
    from agents.run_state import RunState
    from agents.tool import FunctionTool
    from agents.tool_context import ToolContext

_USAGE = "usage"
_CALL = ("arguments", "call_id")  # of a tool call, shown to whoever approves it


class _CompactionSnapshot(NamedTuple):
    """The newest items, as the SDK's compaction wants them."""

    items: list[TResponseInputItem]
    complete: bool  #: there are no items before them
    replace_suffix: Callable[[int, list[TResponseInputItem]], Awaitable[bool]]


class BacktrailSession(SessionABC):
    """The memory of one conversation.

        result = await Runner.run(agent, "Hello", session=BacktrailSession(store, "customer-42"))

    `session_settings` may set a default limit of items that a run sees. With `whole=True` a limited read gives a few
    more where the oldest item is a tool's output that needs its call.
    """

    def __init__(
        self,
        store: Store | AsyncStore,
        session_id: str,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        whole: bool = False,
    ) -> None:
        self.session_id = session_id
        self.session_settings = coerce_session_settings(session_settings if session_settings is not None else {})
        self.whole = whole
        self.store = store
        self.session: Any = store.session(session_id)  #: the backtrail session, with its thread, labels and snapshots
        self._bridge = SyncBridge(store)

    # -- the SDK's interface ------------------------------------------------------------------------------------------

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The newest `limit` items in order; all, if it is None and the settings have no limit, or negative."""
        resolved = resolve_session_limit(limit, self.session_settings)
        last = resolved if resolved is not None and resolved >= 0 else None
        items = await self._call(lambda: self.session.messages(last=last, whole=self.whole))
        return cast("list[TResponseInputItem]", items)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items at the end, all or none."""
        if items:
            await self._write(lambda: self.session.extend(_as_json(items)))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item and return it."""
        return cast("TResponseInputItem | None", await self._write(self.session.pop))

    async def clear_session(self) -> None:
        """Remove all items; the earlier checkpoints stay in the history."""
        await self._write(self.session.clear)

    # -- what the SDK's compaction looks for --------------------------------------------------------------------------

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[TResponseInputItem], bool] | None = None
    ) -> _CompactionSnapshot | None:
        """The newest `limit` items, and a function that replaces the last of them if nobody has changed those since;
        it also removes the first items of the session for which `prune_prefix` is true."""
        if not self._stores_what_it_is_given():
            return None
        newest: list[Any] = await self._call(lambda: self.session.messages(last=limit + 1, whole=False))
        items = newest[-limit:] if limit > 0 else []

        async def replace_suffix(start: int, output: list[TResponseInputItem]) -> bool:
            expected, new = items[start:], _as_json(output)

            def change(current: list[Any]) -> list[Any] | None:
                kept = len(current) - len(expected)
                if not expected or current[max(kept, 0) :] != expected:
                    return None
                first = 0
                while prune_prefix is not None and first < kept and prune_prefix(current[first]):
                    first += 1
                return current[first:kept] + new

            return await self._change_items(change)

        return _CompactionSnapshot(items, len(newest) <= limit, replace_suffix)

    async def _atomic_replace_items(self, items: list[TResponseInputItem]) -> bool:
        """Replace all items in one checkpoint."""
        new = _as_json(items)
        return self._stores_what_it_is_given() and await self._change_items(lambda _: new)

    def _stores_what_it_is_given(self) -> bool:
        """False in a subclass that transforms items: then the SDK must use `get_items` and `add_items`."""
        own = type(self)
        return own.get_items is BacktrailSession.get_items and own.add_items is BacktrailSession.add_items

    async def _change_items(self, change: Callable[[list[Any]], list[Any] | None]) -> bool:
        """Replace all items by what `change` makes of them, in one checkpoint that nobody's write is lost by; False,
        and nothing is changed, if that is None."""

        async def attempt() -> bool:
            session: Any = self.store.session(self.session_id)
            new = change(await maybe_await(session.messages()))
            if new is not None:
                await maybe_await(session.replace(new))
            return new is not None

        return cast("bool", await self._write(lambda: retry_on_conflict(self.session_id, attempt)))

    # -- additions of backtrail ---------------------------------------------------------------------------------------

    async def replace_items(self, items: list[TResponseInputItem]) -> Checkpoint:
        """Replace all items in one checkpoint, as a compaction does. `Conflict` if another writer has added something
        since this session was last read."""
        return cast("Checkpoint", await self._write(lambda: self.session.replace(_as_json(items))))

    async def checkpoints(self) -> list[Checkpoint]:
        """The checkpoints of the session, oldest first."""
        return cast("list[Checkpoint]", await self._call(self.session.thread.history))

    async def rewind(self, at: Checkpoint | str | int) -> Checkpoint:
        """Go back to a checkpoint; the later ones stay in the history."""
        return cast("Checkpoint", await self._write(lambda: self.session.thread.rewind(at)))

    async def fork(self, to: str | None = None, at: Checkpoint | str | int | None = None) -> BacktrailSession:
        """A new session that begins as a copy of this one, or of a checkpoint of it; one record is written."""
        forked: Any = await self._write(lambda: self.session.fork(to, at))
        return BacktrailSession(self.store, forked.id, session_settings=self.session_settings, whole=self.whole)

    async def store_run_usage(self, result: RunResultBase) -> Checkpoint:
        """Save the token counts of a run in a checkpoint after its items."""
        usage = result.context_wrapper.usage
        counts = {
            "requests": usage.requests,
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.total_tokens,
        }
        return cast("Checkpoint", await self._write(lambda: self.session.save(custom={_USAGE: counts})))

    async def usage(self) -> list[dict[str, int]]:
        """The saved token counts, a dict per run, oldest first."""
        return [checkpoint.custom[_USAGE] for checkpoint in await self.checkpoints() if _USAGE in checkpoint.custom]

    async def _write(self, method: Any) -> Any:
        """Call a method that writes. If the task is cancelled meanwhile, wait for the outcome first."""
        call = asyncio.ensure_future(self._call(method))
        cancelled: asyncio.CancelledError | None = None
        while not call.done():
            try:
                await asyncio.wait([call])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            call.exception()  # the caller, who wants to end, gets the cancellation
            raise cancelled
        return call.result()

    async def _call(self, method: Any) -> Any:
        """Call a method of the session: in a thread if the store is sync, since it may wait for a disk."""

        async def call() -> Any:
            return await maybe_await(method())

        return await self._bridge.run_async(call())


def _as_json(items: list[TResponseInputItem]) -> list[Any]:
    """Items as they come back from JSON; `TypeError` or `ValueError` for what it does not have."""
    return cast("list[Any]", json.loads(json.dumps(items)))


def durable_tool(tool: FunctionTool) -> FunctionTool:
    """A copy of a tool whose calls are steps of the current run: each is done once, by the id of its call.

        @durable_tool
        @function_tool
        def pay(order: str) -> str: ...

    A call that the SDK makes again with the same id, as when a `RunState` is resumed, gets the recorded output. The
    output must be text or another value that can be saved.
    """
    if not isinstance(tool, FunctionTool):
        raise InvalidInput(
            f"durable_tool() takes a FunctionTool, as function_tool() makes it, not {type(tool).__name__}"
        )
    inner = tool.on_invoke_tool

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        run = require_run(f"the durable tool {tool.name!r}")
        return await step_async(
            run, tool.name, lambda given: inner(context, given), arguments, key=context.tool_call_id
        )

    durable = copy.copy(tool)
    durable.on_invoke_tool = invoke
    return durable


async def run_with_approvals(
    run: Run | AsyncRun,
    agent: Agent[Any],
    input: str | list[TResponseInputItem],
    *,
    name: str = "agent",
    **options: Any,
) -> RunResult:
    """Run an agent inside of a durable run; tool calls that need an approval are questions of it.

        async with store.run("refund-12") as run:
            result = await run_with_approvals(run, agent, "Refund order 12")

    `store.pending()` lists them, each bound to the call that is shown; `store.answer()` takes True or False.
    `Suspended` leaves the block until all are answered. The SDK's `RunState` is saved in the run, so another process
    goes on from there, with the same calls. `name` tells several agents in one run apart; the options are those of
    `Runner.run`. In a program without an event loop, `asyncio.run(run_with_approvals(run, …))` inside the block of a
    blocking run does the same.
    """
    field = f"openai-agents {name}"
    saved = run.custom.get(field)
    given: Any = input if saved is None else await RunState.from_string(agent, saved)
    while True:
        if isinstance(given, RunState):
            await _ask_approvals(run, given)
        result = await Runner.run(agent, given, **options)
        if not result.interruptions:
            return result
        given = result.to_state()
        await maybe_await(run.checkpoint(custom={field: given.to_string()}))


async def _ask_approvals(run: Run | AsyncRun, state: RunState[Any, Any]) -> None:
    """Put the answers into the state."""
    waiting = state.get_interruptions()
    for item, approved in zip(waiting, await ask_all(run, list(map(_approval, waiting))), strict=True):
        if approved:
            state.approve(item)
        else:
            state.reject(item)


def _approval(item: ToolApprovalItem) -> Question:
    raw = item.raw_item
    call = {field: raw.get(field) if isinstance(raw, dict) else getattr(raw, field, None) for field in _CALL}
    about = {"tool": item.tool_name, **call}
    return Question(f"approve {call['call_id']}", f"Allow the call of {item.tool_name}?", bool, about)
