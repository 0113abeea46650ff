"""pydantic-ai: `BacktrailDurability` makes an agent's model requests and tool calls steps of the current run.

pydantic-ai names each operation and turns its result into JSON; this gives both to `run.step`. A step is told apart by
the agent's run, its turn and the tool call's id, so calls may be done in parallel. Its arguments are what the model and
the tools are asked, without times, so that an agent which asks something else at that place is a `StepChanged`.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

from backtrail.adapters.optional_import import require_extra
from backtrail.adapters.run_steps import require_run, run_here, step_async

with require_extra("pydantic-ai"):
    from pydantic_ai.agent import AbstractAgent, EventStreamHandler
    from pydantic_ai.durable_exec import (
        JSON_CODEC,
        BaseDurabilityCapability,
        BoundDurableOperation,
        DurabilityEngineSpec,
        DurableOperation,
        DurableOperationId,
        JournalCallableOperationBackend,
        ModelRequestParams,
        RoleBasedOperationConfig,
        conversation_id_from_run_id,
    )
    from pydantic_ai.messages import ModelMessagesTypeAdapter
    from pydantic_ai.models import Model
    from pydantic_ai.tools import AgentDepsT

_CHANGES = ("timestamp", "run_id", "conversation_id")  # fields of a message that each process makes anew

_asked: ContextVar[tuple[str, Any]] = ContextVar("backtrail_pydantic_ai_asked")
_counts: WeakKeyDictionary[object, Counter[str]] = WeakKeyDictionary()  # of each run: how often a name came


def _next(run: object, name: str) -> int:
    counts = _counts.setdefault(run, Counter())
    counts[name] += 1
    return counts[name]


class _Bound(BoundDurableOperation[Any, Any, Any]):
    """An operation whose parameters say which step it is."""

    def __init__(self, inner: BoundDurableOperation[Any, Any, Any]) -> None:
        self._inner = inner

    @property
    def operation(self) -> DurableOperation[Any, Any, Any]:
        return self._inner.operation

    async def __call__(self, params: Any, *, config: object | None = None) -> Any:
        ctx = getattr(params, "run_context", None) or getattr(params, "ctx", None)
        place = "" if ctx is None else f"{ctx.run_id}/{ctx.run_step}/{ctx.tool_call_id or ''}"
        token = _asked.set((place, _arguments(params)))
        try:
            return await self._inner(params, config=config)
        finally:
            _asked.reset(token)


def _arguments(params: Any) -> Any:
    """What is asked, as far as it is the same in each process."""
    if isinstance(params, ModelRequestParams):
        return _lasting(ModelMessagesTypeAdapter.dump_python(params.messages, mode="json"))
    name, args = getattr(params, "name", None), getattr(params, "tool_args", None)
    return None if args is None else [name, args]


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(each) for name, each in value.items() if name not in _CHANGES}
    return [_lasting(each) for each in value] if isinstance(value, list) else value


class _Steps(JournalCallableOperationBackend[Any]):
    """Executes operations as steps of the current run."""

    def __init__(self, agent_name: str) -> None:
        config: RoleBasedOperationConfig[Any] = RoleBasedOperationConfig(model={}, event={}, capability={}, tool={})
        super().__init__(agent_name=agent_name, config=config)

    def bind(self, operation: DurableOperation[Any, Any, Any]) -> BoundDurableOperation[Any, Any, Any]:
        return _Bound(super().bind(operation))

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: Any,
    ) -> object:
        run = require_run(f"the step {name!r} of an agent")
        place, asked = _asked.get()
        key = f"{place}/{_next(run, f'{name} {place}')}"

        async def call(_: Any) -> object:
            return await body()

        return await step_async(run, name, call, asked, key=key)


class BacktrailDurability(BaseDurabilityCapability[AgentDepsT]):
    """A capability: what an agent does within the block of a run is done once.

        agent = Agent("openai:gpt-5", name="support", capabilities=[BacktrailDurability()])
        async with store.run("ticket-7") as run:
            run.result = (await agent.run("Refund order 12")).output

    Each model request and each tool call is a step, so a resumed run goes on after the last of them. Outside of a run
    the agent is as it was. The agent needs a name, and so do its toolsets (`id=`): they are in the names of the steps.
    """

    engine_spec = DurabilityEngineSpec(
        engine_name="backtrail",
        durable_unit_noun="step",
        durable_container_noun="run",
        codec=JSON_CODEC,
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
        unsupported_runtime_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._steps: _Steps | None = None

    def _bind_to_agent(self, agent: AbstractAgent[AgentDepsT, Any]) -> None:
        self._steps = _Steps(self.name)
        super()._bind_to_agent(agent)

    @property
    def in_durable_context(self) -> bool:
        """True inside of a run's block, and outside of its steps."""
        return run_here() is not None

    def get_durable_operation_backend(self) -> _Steps:
        """The steps."""
        assert self._steps is not None
        return self._steps

    def get_default_run_id(self) -> str | None:
        """The same in each process that resumes the run."""
        run = run_here()
        return None if run is None else f"{run.id}:{_next(run, 'agent runs')}"

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """That of the agent's run."""
        return conversation_id_from_run_id(run_id) if self.in_durable_context else None

    async def get_run_start_time(self, run_id: str) -> dt.datetime | None:
        """When the agent's run began, in whichever process: its timeout counts from then."""
        run = run_here()
        if run is None:
            return None
        began = await step_async(run, f"{self.name}__run_start_time", _now, key=run_id)
        return dt.datetime.fromisoformat(began)


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat()
